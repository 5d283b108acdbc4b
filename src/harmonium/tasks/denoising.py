"""Cleaning noisy observations, with a machine as the prior."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.layers import Layer, Theta
from harmonium.machine import BoltzmannMachine, Hamiltonian, States, fitted_layer
from harmonium.meanfield import SOLVERS, DampingLike, solve
from harmonium.tasks.channel import Channel, GaussianChannel, SymmetricChannel
from harmonium.tasks.rows import average_chains, nearest_state, read_rows

DENOISE_METHODS = (*SOLVERS, "gibbs", "pointwise")

_ROWS = 4096  # chains, or rows, at a time


class Denoised(NamedTuple):
    """The posterior of the clean visible units given the noisy ones, each (batch, visible_width).

    Attributes:
        mean: posterior means.
        variance: posterior variances.
        mode: of discrete units the state nearest to the mean (of two-valued and categorical ones the most
            probable, which errs least); of real ones the mean.
        converged: (batch,), for the three solvers whether the row has converged; all true otherwise.
    """

    mean: Tensor
    variance: Tensor
    mode: Tensor
    converged: Tensor


@torch.no_grad()
def denoise(
    machine: BoltzmannMachine,
    noisy: Numbers,
    flip_probability: float | None = None,
    *,
    noise_std: float | Numbers | None = None,
    method: str = "tap",
    clean: Numbers | None = None,
    sweeps: int = 200,
    damping: DampingLike = 0.5,
    chains: int = 10,
    seed: int | torch.Generator = 0,
) -> Denoised:
    """Estimates clean visible states from noisy ones by the machine's p(v) (Tramel et al. 2018, §VII.4).

    The noise is known: discrete units are seen in another state with probability ``flip_probability``, or
    ``noise_std`` times normal noise was added. Either adds its evidence to the natural parameters of
    the visible units, a posterior that is again a machine, other for every row. NaN is an erasure.

    Args:
        machine: the machine, with one visible layer.
        noisy: observations, (batch, visible_width).
        flip_probability: Flip probability of a symmetric channel, in [0, 1); 0 for rows with erasures alone.
        noise_std: Standard deviation of normal noise, a number or one for each column, at least 0; for
            real and two-state units.
        method: "tap": the posterior means of ``meanfield.tap``, started at the pointwise estimate, or of
            another solver, "adatap" or "relaxed_bp", for units of one column. "gibbs": chains of the
            posterior, which follow it as far as they have mixed. "pointwise": a baseline without the machine,
            the posterior of independent units with the statistics of ``clean``.
        clean: clean rows, (rows, visible_width), such as the training set; without them solvers and chains
            start from the observation under a flat prior.
        sweeps: Sweeps of every chain, at least 2; the second half is averaged. Of solvers the largest number.
        damping: Damping of solvers, see ``meanfield.tap``; under strong noise it seldom settles without.
        chains: Chains of "gibbs" for every row, at least 1.
        seed: an int or a generator.

    Returns:
        Means, variances and decisions; rows of solvers that did not converge say so.

    Raises:
        ValueError: not one kind of noise, one that does not suit the units, or shapes that do not fit.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0)
        >>> noisy = torch.tensor([[1.0, 0.0, float("nan")]])  # the last unit is erased
        >>> hm.tasks.denoise(machine, noisy, flip_probability=0.1).mode[:, :2]
        tensor([[1., 0.]])
    """
    _checks.one_of(method, "method", DENOISE_METHODS)
    _checks.positive_int(sweeps, "sweeps", minimum=2)
    _checks.positive_int(chains, "chains")
    generator = _random.as_generator(seed, machine.device)
    hamiltonian = machine.hamiltonian()
    if len(machine.visible) > 1:
        raise ValueError(
            f"machine: expected one visible layer, whose units share one kind of noise, received "
            f"{len(machine.visible)}: {list(machine.visible)}"
        )
    l = machine.visible[0]
    layer = machine.layers[l]
    channel: Channel
    if noise_std is None and flip_probability is not None:
        channel = SymmetricChannel(flip_probability)
    elif noise_std is not None and flip_probability is None:
        channel = GaussianChannel(noise_std)
    else:
        raise ValueError("flip_probability, noise_std: expected one of the two")
    noisy, erased = _check(machine, noisy, channel)
    if clean is not None:
        clean = machine.visible_rows(clean, "clean")
    elif method == "pointwise":
        raise ValueError('clean: expected clean rows for method="pointwise", received None')

    alone = layer.reference() if clean is None else fitted_layer(layer, clean).natural()
    parts = []
    for rows in torch.split(torch.arange(len(noisy), device="cpu"), max(1, _ROWS // chains)):
        seen = _see(channel, layer, noisy[rows], erased[rows])
        theta = seen.add_to(alone)
        estimate: tuple[Tensor, ...] = layer.moments(torch.zeros_like(seen.held), theta=theta)
        visible = seen.add_to(hamiltonian.thetas[l])
        posterior = _replace_visible(hamiltonian, visible).clamp(seen.held, len(rows))
        if method in SOLVERS:
            start = seen.settle(*estimate)[0]
            solution = solve(SOLVERS[method](posterior), start, damping=damping, max_sweeps=sweeps)
            estimate = solution.means[l], solution.variances[l], solution.converged
        elif method == "gibbs":
            estimate = _run_chains(posterior, theta, sweeps, chains, generator)
        parts.append(seen.settle(*estimate))
    mean, variance, converged = (torch.cat(part) for part in zip(*parts, strict=True))
    return Denoised(mean, variance, nearest_state(layer, mean), converged)


class _Seen(NamedTuple):
    """Observations of a block of rows.

    Attributes:
        evidence: what they add to the natural parameters, each (batch, width); zero where held or erased.
        held: values that are certain, (batch, width), NaN elsewhere.
    """

    evidence: Theta
    held: Tensor

    def add_to(self, prior: Theta) -> Theta:
        """Returns natural parameters of every row."""
        return tuple(theta + e for theta, e in zip(prior, self.evidence, strict=True))

    def settle(
        self, mean: Tensor, variance: Tensor, converged: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns an estimate with what is certain put in, and which rows have converged (None: all)."""
        certain = ~torch.isnan(self.held)
        if converged is None:
            converged = torch.ones(len(mean), dtype=torch.bool, device=mean.device)
        return torch.where(certain, self.held, mean), variance.masked_fill(certain, 0.0), converged


def _check(machine: BoltzmannMachine, noisy: Numbers, channel: Channel) -> tuple[Tensor, Tensor]:
    """Returns checked observations with some state in the place of erasures, and where those are."""
    layer, noisy = machine.layers[machine.visible[0]], read_rows(machine, noisy, "noisy")
    erased = torch.isnan(noisy)
    layer.check_whole(~erased, "noisy")
    filled = torch.where(erased, layer.mode(torch.zeros_like(noisy), layer.reference()), noisy)
    _checks.finite(filled, "noisy")
    _checks.squares(filled, "noisy")
    channel.check(layer, filled)
    return filled, erased


def _see(channel: Channel, layer: Layer, noisy: Tensor, erased: Tensor) -> _Seen:
    """Returns what observations say of the units."""
    if channel.exact:
        nothing = tuple(torch.zeros_like(noisy) for _ in layer.natural())
        return _Seen(nothing, noisy.masked_fill(erased, torch.nan))
    evidence = tuple(e.masked_fill(erased, 0.0) for e in channel.evidence(layer, noisy))
    return _Seen(evidence, torch.full_like(noisy, torch.nan))


def _replace_visible(hamiltonian: Hamiltonian, theta: Theta) -> Hamiltonian:
    """Returns the machine with other natural parameters of its visible layer, another one for every row."""
    seen = hamiltonian.graph.visible
    thetas = tuple(theta if l in seen else other for l, other in enumerate(hamiltonian.thetas))
    return replace(hamiltonian, thetas=thetas)


def _run_chains(
    posterior: Hamiltonian, start: Theta, sweeps: int, chains: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Averages conditional moments of visible units over chains that start at θ = ``start``."""
    rows = torch.arange(len(start[0]), device=posterior.device).repeat(chains)
    posterior, l = posterior.select_rows(rows), posterior.graph.visible[0]
    independent = _replace_visible(posterior, tuple(t[rows] for t in start))
    v = independent.sample(l, torch.zeros_like(independent.thetas[l][0]), generator)

    def find_moments(states: States) -> Tensor:
        mean, variance = posterior.layers[l].moments(posterior.field(l, states), theta=posterior.thetas[l])
        return torch.stack((mean, variance + mean.square()))

    averaged = average_chains(posterior, posterior.apply_clamp(l, v), sweeps, find_moments, generator)
    mean, square = averaged.view(2, chains, len(start[0]), -1).mean(1)
    return mean, (square - mean.square()).clamp(min=0)
