"""Cleaning noisy observations, with a machine as the prior."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.chains import Gibbs, Info, KernelState, complete, run_kernel
from harmonium.layers import Layer, Theta
from harmonium.machine import BoltzmannMachine, Hamiltonian, fit_states_
from harmonium.meanfield import Plefka, solve
from harmonium.meanfield.fixed_point import DampingLike
from harmonium.products import product
from harmonium.tasks._decision import nearest_state
from harmonium.tasks.channel import Channel, GaussianChannel, SymmetricChannel

DENOISE_METHODS = ("tap", "gibbs", "pointwise", "neighbours")

_ROWS = 4096  # chains, or rows, at a time


class Denoised(NamedTuple):
    """The posterior of the clean visible units given the noisy ones, each (batch, visible_width).

    Attributes:
        mean: posterior means.
        variance: posterior variances.
        decision: of discrete units the state nearest to the mean (of two-valued and categorical ones the most
            probable, which errs least); of real ones the mean.
        converged: (batch,), for "tap" whether the row has converged; all true otherwise.
    """

    mean: Tensor
    variance: Tensor
    decision: Tensor
    converged: Tensor


@torch.no_grad()
def denoise(
    machine: BoltzmannMachine,
    noisy: Numbers,
    flip_probability: float | None = None,
    *,
    noise_deviation: float | Numbers | None = None,
    method: str = "tap",
    data: Numbers | None = None,
    sweeps: int = 200,
    damping: DampingLike = 0.5,
    chains: int = 10,
    neighbours: int = 1,
    seed: int | torch.Generator = 0,
) -> Denoised:
    """Estimates clean visible states from noisy ones, under the machine's law (Tramel et al. 2018, §VII.4).

    The noise is known: discrete units are seen in another state with probability ``flip_probability``, or
    ``noise_deviation`` times normal noise was added. Either adds its evidence to the natural parameters of
    the visible units, a posterior that is again a machine, other for every row. NaN is an erasure.

    Args:
        machine: the machine, with one visible layer.
        noisy: observations, (batch, visible_width).
        flip_probability: of a symmetric channel, in [0, 1); 0 for rows with erasures alone.
        noise_deviation: of normal noise, a number or one for each column, at least 0; for real and two-state
            units.
        method: "tap": the posterior means of ``meanfield.tap``, started at the pointwise estimate. "gibbs":
            chains of the posterior, which follow it as far as they have mixed. Two baselines that read
            ``data`` and not the machine: "pointwise", the posterior of independent units with the data's
            statistics, and "neighbours", the average of the rows nearest to the observation.
        data: clean rows, (rows, visible_width), such as the training set; without them TAP and chains start
            from the observation under a flat prior.
        sweeps: of every chain, at least 2; the second half is averaged. Of TAP the largest number.
        damping: of TAP, see ``meanfield.tap``; under strong noise an undamped iteration seldom settles.
        chains: of "gibbs" for every row, at least 1.
        neighbours: rows that "neighbours" averages, at least 1.
        seed: an int or a generator.

    Returns:
        Means, variances and decisions; rows of TAP that did not converge say so.

    Raises:
        ValueError: not one kind of noise, one that does not suit the units, or shapes that do not fit.
    """
    _checks.one_of(method, "method", DENOISE_METHODS)
    _checks.positive_int(sweeps, "sweeps", minimum=2)
    _checks.positive_int(chains, "chains")
    _checks.positive_int(neighbours, "neighbours")
    generator = _random.as_generator(seed, machine.device)
    hamiltonian = machine.hamiltonian()
    if len(machine.visible) > 1:
        raise ValueError(
            f"machine: expected one visible layer, whose units share one kind of noise, received "
            f"{len(machine.visible)}: {list(machine.visible)}"
        )
    layer = machine.layers[machine.visible[0]]
    if (flip_probability is None) == (noise_deviation is None):
        raise ValueError("flip_probability, noise_deviation: expected one of the two")
    channel: Channel
    if noise_deviation is not None:
        channel = GaussianChannel(noise_deviation)
    else:
        channel = SymmetricChannel(_checks.real(flip_probability, "flip_probability", 0.0, 1.0))
    noisy, erased = _observed(machine, noisy, channel)
    if data is not None:
        data = machine.visible_rows(data, "data")
    elif method in ("pointwise", "neighbours"):
        raise ValueError(f'data: expected clean rows for method="{method}", received None')

    alone = layer.reference() if data is None else _independent(layer, data)
    parts = []
    for rows in torch.split(torch.arange(len(noisy), device="cpu"), max(1, _ROWS // chains)):
        seen = _see(channel, layer, noisy[rows], erased[rows])
        if method == "neighbours":
            assert data is not None
            estimate = _nearest(seen, data, neighbours, getattr(channel, "deviation", 1.0))
        elif method == "pointwise":
            estimate = _pointwise(layer, seen, alone)
        elif method == "tap":
            estimate = _tap(hamiltonian, seen, alone, sweeps, damping)
        else:
            estimate = _gibbs(hamiltonian, seen, alone, sweeps, chains, generator)
        parts.append(estimate)
    mean, variance, converged = (torch.cat(part) for part in zip(*parts, strict=True))
    return Denoised(mean, variance, nearest_state(layer, mean), converged)


class _Seen(NamedTuple):
    """Observations of a block of rows.

    Attributes:
        evidence: what they add to the natural parameters, each (batch, width); zero where held or erased.
        held: values that are certain, (batch, width), NaN elsewhere.
        values: the observations, NaN where erased.
    """

    evidence: Theta
    held: Tensor
    values: Tensor

    def posterior(self, prior: Theta) -> Theta:
        """Natural parameters of every row."""
        return tuple(theta + e for theta, e in zip(prior, self.evidence, strict=True))

    def settle(self, mean: Tensor, variance: Tensor, converged: Tensor) -> _Estimate:
        """With what is certain put in."""
        certain = ~torch.isnan(self.held)
        return torch.where(certain, self.held, mean), variance.masked_fill(certain, 0.0), converged


_Estimate = tuple[Tensor, Tensor, Tensor]


def _observed(machine: BoltzmannMachine, noisy: Numbers, channel: Channel) -> tuple[Tensor, Tensor]:
    """Checked observations with some state in the place of erasures, and where those are."""
    layer = machine.layers[machine.visible[0]]
    noisy = _checks.tensor(noisy, "noisy", machine.dtype, machine.device)
    if noisy.dim() != 2 or noisy.shape[1] != layer.width or len(noisy) == 0:
        raise ValueError(
            f"noisy: expected (batch, {layer.width}) with at least one row, received {tuple(noisy.shape)}"
        )
    erased = torch.isnan(noisy)
    filled = torch.where(erased, layer.mode(torch.zeros_like(noisy), layer.reference()), noisy)
    _checks.finite(filled, "noisy")
    _checks.squares(filled, "noisy")
    channel.check(layer, filled)
    return filled, erased


def _see(channel: Channel, layer: Layer, noisy: Tensor, erased: Tensor) -> _Seen:
    values = noisy.masked_fill(erased, torch.nan)
    if channel.exact:
        nothing = tuple(torch.zeros_like(noisy) for _ in layer.natural())
        return _Seen(nothing, values, values)
    evidence = tuple(e.masked_fill(erased, 0.0) for e in channel.evidence(layer, noisy))
    return _Seen(evidence, torch.full_like(noisy, torch.nan), values)


def _independent(layer: Layer, data: Tensor) -> Theta:
    """θ of independent units with the statistics of the data."""
    fitted = deepcopy(layer)
    fit_states_(fitted, data)
    return fitted.natural()


def _pointwise(layer: Layer, seen: _Seen, alone: Theta) -> _Estimate:
    mean, variance = layer.moments(torch.zeros_like(seen.held), theta=seen.posterior(alone))
    return seen.settle(mean, variance, torch.ones(len(mean), dtype=torch.bool, device=mean.device))


def _nearest(seen: _Seen, data: Tensor, neighbours: int, deviation: float | Tensor) -> _Estimate:
    """Rows of data that most probably were what was seen: distances are in units of the noise."""
    if neighbours > len(data):
        raise ValueError(f"neighbours: expected at most the {len(data)} rows of data, received {neighbours}")
    present = (~torch.isnan(seen.values)).to(data.dtype)
    precision: float | Tensor = 1.0
    if isinstance(deviation, Tensor):
        precision = deviation.to(data).square().reciprocal()
    # Σ over what was seen of (y - x)², up to a term that all x share.
    distance = product(present, (precision * data.square()).t())
    distance = distance - 2 * product(seen.values.nan_to_num(nan=0.0) * precision, data.t())
    chosen = data[distance.topk(neighbours, largest=False).indices]  # (batch, neighbours, width)
    variance = chosen.var(1, correction=0)
    return seen.settle(
        chosen.mean(1), variance, torch.ones(len(chosen), dtype=torch.bool, device=data.device)
    )


def _conditioned(hamiltonian: Hamiltonian, seen: _Seen) -> Hamiltonian:
    """The machine given what was seen, another one for every row."""
    return _with_visible(hamiltonian, seen.posterior(hamiltonian.thetas[hamiltonian.graph.visible[0]]))


def _with_visible(hamiltonian: Hamiltonian, theta: Theta) -> Hamiltonian:
    seen = hamiltonian.graph.visible
    thetas = tuple(theta if l in seen else other for l, other in enumerate(hamiltonian.thetas))
    return replace(hamiltonian, thetas=thetas)


def _tap(hamiltonian: Hamiltonian, seen: _Seen, alone: Theta, sweeps: int, damping: DampingLike) -> _Estimate:
    l = hamiltonian.graph.visible[0]
    start, _, _ = _pointwise(hamiltonian.layers[l], seen, alone)
    scheme = Plefka(_conditioned(hamiltonian, seen).given(seen.held, len(start)))
    solution = solve(scheme, start, damping=damping, max_sweeps=sweeps)
    return solution.means[l], solution.variances[l], solution.converged


def _gibbs(
    hamiltonian: Hamiltonian, seen: _Seen, alone: Theta, sweeps: int, chains: int, generator: torch.Generator
) -> _Estimate:
    rows = torch.arange(len(seen.held), device=seen.held.device).repeat(chains)
    l = hamiltonian.graph.visible[0]
    layer = hamiltonian.layers[l]
    posterior = _conditioned(hamiltonian, seen).given(seen.held, len(seen.held)).take(rows)
    zero = torch.zeros_like(seen.held[rows])
    begin = _with_visible(posterior, tuple(t[rows] for t in seen.posterior(alone)))
    v = begin.hold(l, begin.sample(l, zero, generator))
    sums = [torch.zeros_like(zero) for _ in range(2)]

    def observe(number: int, state: KernelState, info: Info) -> None:
        if number > sweeps // 2:
            mean, variance = layer.moments(posterior.field(l, state.states), theta=posterior.thetas[l])
            sums[0] += mean
            sums[1] += variance + mean.square()

    start = KernelState(complete(posterior, v, generator), 0)
    run_kernel(posterior, Gibbs(), start, sweeps, generator, observe)
    mean, square = (total.view(chains, *seen.held.shape).mean(0) / (sweeps - sweeps // 2) for total in sums)
    return seen.settle(
        mean,
        (square - mean.square()).clamp(min=0),
        torch.ones(len(mean), dtype=torch.bool, device=mean.device),
    )
