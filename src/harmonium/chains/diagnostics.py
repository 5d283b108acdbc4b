"""Convergence diagnostics: rank-normalised split R̂ and effective sample sizes, of draws and of chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.chains.gibbs import Gibbs
from harmonium.chains.kernel import Info, Kernel, KernelState
from harmonium.chains.moving import run
from harmonium.machine import BoltzmannMachine

Array = NDArray[np.float64]

R_HAT, ESS = 1.01, 400  # the limits that Vehtari et al. (2021) recommend
_TAILS = (0.05, 0.95)  # the quantiles of Vehtari et al. (2021)
_FEWEST = 20  # draws of a chain, so that the autocorrelation of each half can fall to 0


class Convergence(NamedTuple):
    """Diagnostics of one quantity; NaN where all draws are equal.

    Attributes:
        r_hat: ratio of the spread over all chains to the spread within one, at least about 1. Vehtari et al.
            (2021) recommend at most 1.01.
        ess_bulk: effective sample size for the centre of the distribution, of all chains together.
        ess_tail: smaller one of the effective sample sizes for the 5 % and the 95 % quantile.
    """

    r_hat: float
    ess_bulk: float
    ess_tail: float


def convergence(draws: Numbers) -> Convergence:
    """Computes R̂ and effective sample sizes of a scalar quantity (Vehtari et al. 2021, Bayesian Analysis 16).

    Every chain is cut into halves, and draws are replaced by the normal scores of their ranks. R̂ is the
    larger one of the draws' and of their distances from the median, so that it sees both location and scale.
    Autocorrelations are summed up to Geyer's initial monotone sequence.

    Args:
        draws: (chains, sweeps), at least 20 sweeps, after a warm-up.

    Returns:
        R̂ and both effective sample sizes.

    Raises:
        TypeError: not an array or tensor of real numbers.
        ValueError: another shape, fewer sweeps, or draws that are not finite.
    """
    x = _checks.tensor(draws, "draws", torch.float64, torch.device("cpu"))
    if x.dim() != 2 or len(x) == 0 or x.shape[1] < _FEWEST:
        raise ValueError(
            f"draws: expected (chains, sweeps) with at least {_FEWEST} sweeps, received {tuple(x.shape)}"
        )
    _checks.finite(x, "draws")
    half = x.shape[1] // 2
    halves = torch.cat([x[:, :half], x[:, -half:]]).numpy()
    tails = [_find_ess((halves <= np.quantile(x.numpy(), tail)).astype(np.float64)) for tail in _TAILS]
    known = [size for size in tails if not np.isnan(size)]
    distances = np.abs(halves - np.median(halves))
    return Convergence(
        float(np.fmax(_find_r_hat(_score_ranks(halves)), _find_r_hat(_score_ranks(distances)))),
        _find_ess(_score_ranks(halves)),
        min(known, default=float("nan")),
    )


def _score_ranks(x: Array) -> Array:
    """Returns normal quantiles of the ranks' plotting positions (Blom 1958), ties sharing their mean rank."""
    from scipy.special import ndtri  # slow to import, and only needed here

    _, place, ties = np.unique(x, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place.reshape(x.shape)]
    scores: Array = ndtri((ranks - 0.375) / (x.size + 0.25))
    return scores


def _find_variances(x: Array) -> tuple[float, float]:
    """Returns the variance within chains, and the whole: (n - 1)/n of it plus that of the chains' means."""
    n = x.shape[1]
    within = float(x.var(1, ddof=1).mean())
    between = float(x.mean(1).var(ddof=1)) if len(x) > 1 else 0.0
    return within, within * (n - 1) / n + between


def _find_r_hat(x: Array) -> float:
    if x.min() == x.max():
        return float("nan")
    within, whole = _find_variances(x)
    return float(np.sqrt(whole / within)) if within > 0 else float("inf")


def _find_ess(x: Array) -> float:
    """Returns draws over their autocorrelation time, summed over pairs of lags while these are positive."""
    if x.min() == x.max():
        return float("nan")
    m, n = x.shape
    within, whole = _find_variances(x)
    rho = 1 - (within - _find_autocovariances(x).mean(0)) / whole
    rho[0] = 1
    pairs = rho[: 2 * ((n - 1) // 2)].reshape(-1, 2).sum(1)  # the last lags rest on hardly any product
    end = int(np.argmax(pairs < 0)) if (pairs < 0).any() else len(pairs) - 1
    time = 2 * np.minimum.accumulate(pairs[:end]).sum() - 1
    time += max(float(rho[2 * end]), 0.0)  # the last even lag alone, for chains that alternate
    return float(m * n / max(time, 1 / np.log10(m * n)))


def _find_autocovariances(x: Array) -> Array:
    """Returns sums of products at every lag over n, (chains, n), by a padded Fourier transform."""
    n = x.shape[1]
    spectrum: Any = np.fft.rfft(x - x.mean(1, keepdims=True), 2 * n)
    products: Array = np.fft.irfft(np.abs(spectrum) ** 2 / n, 2 * n)[:, :n]
    return products


class Diagnosis(NamedTuple):
    """Convergence diagnostics of some quantities along chains; printed as a table.

    Attributes:
        quantities: R̂ and effective sample sizes by the quantity's name: "free energy", and for every edge
            "edge (l, m), direction k", the projection of layer l on the coupling's k-th singular vector.
            Where no layer is summed out the first is "energy".
        draws: sweeps after the warm-up, of all chains together.
    """

    quantities: dict[str, Convergence]
    draws: int

    @property
    def r_hat(self) -> float:
        """Returns the largest R̂; NaN if a quantity never moved."""
        return float(np.max([quantity.r_hat for quantity in self.quantities.values()]))

    @property
    def ess(self) -> float:
        """Returns the smallest effective sample size, of bulk or tail; NaN if a quantity never moved."""
        return float(np.min([quantity[1:] for quantity in self.quantities.values()]))

    @property
    def passed(self) -> bool:
        """Returns True if every R̂ is at most 1.01 and every effective sample size at least 400."""
        return self.r_hat <= R_HAT and self.ess >= ESS

    def __repr__(self) -> str:
        width = max(len(name) for name in self.quantities)
        lines = [f"{'':{width}}  {'R̂':>6} {'bulk':>8} {'tail':>8}   of {self.draws} draws"]
        for name, row in self.quantities.items():
            lines.append(f"{name:{width}} {row.r_hat:>6.3f} {row.ess_bulk:>8.0f} {row.ess_tail:>8.0f}")
        return "\n".join(lines)


@torch.no_grad()
def diagnose(
    machine: BoltzmannMachine,
    kernel: Kernel | None = None,
    start: Sequence[Numbers] | Numbers | None = None,
    *,
    chains: int = 50,
    sweeps: int = 2000,
    directions: int = 3,
    seed: int | torch.Generator = 0,
) -> Diagnosis:
    """Runs chains and computes R̂ and effective sample sizes of what they have most trouble to mix.

    The quantities are the free energy of the layers that are not summed out, F(v) of a machine with one
    hidden layer, and projections on the leading singular directions of every coupling, along which modes lie
    apart. Good values are necessary, not sufficient: a mode that no chain has found is not seen.

    Args:
        machine: the machine.
        kernel: moves the chains; None: ``Gibbs()``.
        start: states as in ``chains.run``, a row (chains, width_l) for each chain; None: noise.
        chains: at least 1; ignored where ``start`` is given.
        sweeps: at least 40, of which the first half is a warm-up.
        directions: singular directions of each coupling, at least 0.
        seed: an int or a generator.

    Returns:
        The diagnostics by quantity.

    Raises:
        TypeError, ValueError: arguments out of range, or a start that does not fit.
    """
    kernel = Gibbs() if kernel is None else kernel
    _checks.instance(kernel, "kernel", Kernel, "a kernel")
    _checks.positive_int(sweeps, "sweeps", minimum=2 * _FEWEST)
    _checks.positive_int(directions, "directions", minimum=0)
    generator = _random.as_generator(seed, machine.device)
    if start is None:
        start = machine.random_states(_checks.positive_int(chains, "chains"), seed=generator)
    hamiltonian = machine.hamiltonian()
    axes = [(l, m, hamiltonian.directions(edge, directions)) for edge, (l, m) in enumerate(machine.edges)]
    kept: list[Tensor] = []

    def observe(number: int, state: KernelState, info: Info) -> None:
        if number > sweeps // 2:
            free_energy = hamiltonian.free_energy(state.states, hamiltonian.graph.summed).unsqueeze(0)
            places = (axis.t() @ state.states[l].double().t() for l, _, axis in axes)
            kept.append(torch.cat([free_energy, *places]))

    run(machine, kernel, start, sweeps, seed=generator, observer=observe)
    draws = torch.stack(kept).cpu()  # (sweeps, quantities, chains)
    names = ["free energy" if hamiltonian.graph.summed else "energy"]
    for l, m, axis in axes:
        names += [f"edge ({l}, {m}), direction {k}" for k in range(1, axis.shape[1] + 1)]
    by_name = {name: convergence(draws[:, number].t()) for number, name in enumerate(names)}
    return Diagnosis(by_name, draws.shape[0] * draws.shape[2])
