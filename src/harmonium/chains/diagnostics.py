"""Convergence diagnostics: rank-normalised split R̂, effective sample sizes and errors of means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from harmonium.machine import BoltzmannMachine, States

Array = NDArray[np.float64]
Observable = Callable[[States], Tensor]
"""A function of the states of all layers, each (chains, width_l), to one number for each chain, (chains,)."""

R_HAT, ESS = 1.01, 400  # the limits that Vehtari et al. (2021) recommend
SWAP_RATE = 0.2  # below it temperatures lie too far apart: 0.234 is best (Atchadé et al. 2011)
_TAILS = (0.05, 0.95)  # the quantiles of Vehtari et al. (2021)
_FEWEST = 20  # draws of a chain, so that the autocorrelation of each half can fall to 0


class Convergence(NamedTuple):
    """Diagnostics and the mean of one quantity; all but the mean are NaN where all draws are equal.

    Attributes:
        r_hat: ratio of the spread over all chains to the spread within one, at least about 1. Vehtari et al.
            (2021) recommend at most 1.01.
        ess_bulk: effective sample size for the centre of the distribution, of all chains together.
        ess_tail: smaller one of the effective sample sizes for the 5 % and the 95 % quantile.
        mean: mean over all draws of all chains.
        standard_error: Standard error of ``mean``: the standard deviation of the draws over the root of their
            effective sample size, without ranks. NaN where all draws are equal; too small where ``r_hat`` is
            large, since the chains have not seen all of the distribution.
    """

    r_hat: float
    ess_bulk: float
    ess_tail: float
    mean: float
    standard_error: float


def convergence(draws: Numbers) -> Convergence:
    """Computes R̂, effective sample sizes and the mean of a scalar quantity (Vehtari et al. 2021).

    Every chain is cut into halves, and draws are replaced by the normal scores of their ranks. R̂ is the
    larger one of the draws' and of their distances from the median, so that it sees both location and scale.
    Autocorrelations are summed up to Geyer's initial monotone sequence.

    Args:
        draws: (chains, sweeps), at least 20 sweeps, after a warm-up.

    Returns:
        R̂, both effective sample sizes, the mean and its standard error.

    Raises:
        TypeError: not an array or tensor of real numbers.
        ValueError: another shape, fewer sweeps, or draws that are not finite.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> noise = torch.randn(4, 10_000, generator=torch.Generator().manual_seed(0))
        >>> round(hm.chains.convergence(noise).standard_error, 3)  # 1 / sqrt(40,000)
        0.005
    """
    x = _read_draws(draws)
    half = x.shape[1] // 2
    halves = torch.cat([x[:, :half], x[:, -half:]]).numpy()
    tails = [_find_ess((halves <= np.quantile(x.numpy(), tail)).astype(np.float64)) for tail in _TAILS]
    known = [size for size in tails if not np.isnan(size)]
    distances = np.abs(halves - np.median(halves))
    return Convergence(
        float(np.fmax(_find_r_hat(_score_ranks(halves)), _find_r_hat(_score_ranks(distances)))),
        _find_ess(_score_ranks(halves)),
        min(known, default=float("nan")),
        float(x.mean()),
        float(x.std()) / _find_ess(halves) ** 0.5,
    )


def _read_draws(draws: Numbers) -> Tensor:
    """Returns draws as (chains, sweeps) on the CPU, checked."""
    x = _checks.tensor(draws, "draws", torch.float64, torch.device("cpu"))
    if x.dim() != 2 or len(x) == 0 or x.shape[1] < _FEWEST:
        raise ValueError(
            f"draws: expected (chains, sweeps) with at least {_FEWEST} sweeps, received {tuple(x.shape)}"
        )
    _checks.finite(x, "draws")
    return x


def _score_ranks(x: Array) -> Array:
    """Returns normal quantiles of the ranks' plotting positions (Blom 1958), ties sharing their mean rank."""
    from scipy.special import ndtri  # slow to import, and only needed here

    _, inverse, ties = np.unique(x, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[inverse.reshape(x.shape)]
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
    return float(m * n / max(_sum_correlations(rho), 1 / np.log10(m * n)))


def _sum_correlations(rho: Array) -> float:
    """Returns 1 + 2 Σ ρ(lag) up to Geyer's initial monotone sequence, of autocorrelations from lag 0."""
    n = len(rho)
    pairs = rho[: 2 * ((n - 1) // 2)].reshape(-1, 2).sum(1)  # the last lags rest on hardly any product
    end = int(np.argmax(pairs < 0)) if (pairs < 0).any() else len(pairs) - 1
    time = 2 * np.minimum.accumulate(pairs[:end]).sum() - 1
    return float(time + max(float(rho[2 * end]), 0.0))  # the last even lag alone, for chains that alternate


def autocorrelation_times(draws: Numbers) -> Tensor:
    """Computes the integrated autocorrelation time of a scalar quantity, chain by chain.

    It is 1 + 2 Σ ρ(lag), in sweeps: a mean over n sweeps of a chain is worth n over the time independent
    draws. ρ is taken about the mean of all chains, so that a chain that stays elsewhere has a long time; the
    sum ends at Geyer's initial monotone sequence.

    Args:
        draws: (chains, sweeps), at least 20 sweeps, after a warm-up.

    Returns:
        (chains,), float64; NaN for a chain that never left the mean. Times near the number of sweeps, or
        above a twentieth of it, are lower bounds.

    Raises:
        TypeError, ValueError: as ``convergence``.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> noise = torch.randn(4, 10_000, generator=torch.Generator().manual_seed(0))
        >>> (hm.chains.autocorrelation_times(noise) - 1).abs().max() < 0.2
        tensor(True)
    """
    x = _read_draws(draws).numpy()
    centred = x - x.mean()
    covariances = _find_autocovariances(centred, about_zero=True)
    times = [_sum_correlations(row / row[0]) if row[0] > 0 else float("nan") for row in covariances]
    return torch.tensor(times, dtype=torch.float64, device="cpu")


def _find_autocovariances(x: Array, about_zero: bool = False) -> Array:
    """Returns sums of products at every lag over n, (chains, n), by a padded Fourier transform."""
    n = x.shape[1]
    spectrum: Any = np.fft.rfft(x if about_zero else x - x.mean(1, keepdims=True), 2 * n)
    products: Array = np.fft.irfft(np.abs(spectrum) ** 2 / n, 2 * n)[:, :n]
    return products


class Diagnosis(NamedTuple):
    """Convergence diagnostics and means of some quantities along chains; printed as a table.

    Attributes:
        quantities: R̂, effective sample sizes, mean and standard error (``Convergence``) by the quantity's
            name: "free energy", and for every edge "edge (l, m), direction k", the projection of layer l on
            the coupling's k-th singular vector. Where no layer is summed out the first is "energy".
            Observables follow by their names.
        draws: sweeps after the warm-up, of all chains together.
        times: Integrated autocorrelation times of every chain (replica), in sweeps, (chains,), by the
            quantity's name; see ``autocorrelation_times``.
        info: Means over the same sweeps of the kernel's own diagnostics by name, such as the "swap_rate" of
            ``Tempering``; empty for a kernel without any.
    """

    quantities: dict[str, Convergence]
    draws: int
    times: dict[str, Tensor]
    info: dict[str, float]

    @property
    def r_hat(self) -> float:
        """Returns the largest R̂; NaN if a quantity never moved."""
        return float(np.max([quantity.r_hat for quantity in self.quantities.values()]))

    @property
    def ess(self) -> float:
        """Returns the smallest effective sample size, of bulk or tail; NaN if a quantity never moved."""
        return float(np.min([(row.ess_bulk, row.ess_tail) for row in self.quantities.values()]))

    @property
    def passed(self) -> bool:
        """Returns True if every R̂ is at most 1.01 and every effective sample size at least 400."""
        return self.r_hat <= R_HAT and self.ess >= ESS

    def __repr__(self) -> str:
        width = max(len(name) for name in self.quantities)
        head = f"{'R̂':>7} {'bulk':>8} {'tail':>8} {'time':>8} {'mean':>10} {'error':>8}"
        lines = [f"{'':{width}} {head}   of {self.draws} draws"]
        for name, row in self.quantities.items():
            time = float(self.times[name].mean())
            sizes = f"{row.ess_bulk:>8.0f} {row.ess_tail:>8.0f} {time:>8.1f}"
            mean = f"{row.mean:>10.4g} {row.standard_error:>8.2g}"
            lines.append(f"{name:{width}} {row.r_hat:>6.3f} {sizes} {mean}")
        lines += [f"{name} {value:.3g}" for name, value in self.info.items()]
        lines.append(
            f"{'mixed' if self.passed else 'NOT mixed'}: R̂ {self.r_hat:.3f}, at most {R_HAT} asked for; "
        )
        lines[-1] += f"effective sample size {self.ess:.0f}, at least {ESS}"
        if not self.passed:
            swaps = self.info.get("swap_rate", 1.0)
            lines.append(f"take more {'temperatures' if swaps < SWAP_RATE else 'sweeps, or Tempering'}")
        return "\n".join(lines)


@torch.no_grad()
def diagnose_chains(
    machine: BoltzmannMachine,
    kernel: Kernel | None = None,
    start: Sequence[Numbers] | Numbers | None = None,
    *,
    chains: int = 50,
    sweeps: int = 2000,
    directions: int = 3,
    observables: Mapping[str, Observable] | None = None,
    seed: int | torch.Generator = 0,
) -> Diagnosis:
    """Runs chains and computes R̂, effective sample sizes, times and means of what mixes worst.

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
        observables: quantities of your own by name: functions of the states of all layers, each (chains,
            width_l), that return (chains,).
        seed: an int or a generator.

    Returns:
        The diagnostics by quantity.

    Raises:
        TypeError, ValueError: arguments out of range, a start that does not fit, or an observable that
            returns something else.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Spin(6)], edges=[(0, 0)], seed=0)
        >>> found = hm.chains.diagnose_chains(machine, observables={"m": lambda states: states[0].mean(1)})
        >>> list(found.quantities)[-1], found.times["m"].shape
        ('m', torch.Size([50]))
        >>> m = found.quantities["m"]
        >>> abs(m.mean) < 5 * m.standard_error  # up and down are alike
        True
    """
    kernel = Gibbs() if kernel is None else kernel
    _checks.instance(kernel, "kernel", Kernel, "a kernel")
    _checks.positive_int(sweeps, "sweeps", minimum=2 * _FEWEST)
    _checks.positive_int(directions, "directions", minimum=0)
    generator = _random.as_generator(seed, machine.device)
    if start is None:
        start = machine.random_states(_checks.positive_int(chains, "chains"), seed=generator)
    hamiltonian = machine.hamiltonian()
    axes = [(l, m, hamiltonian.J.directions(edge, directions)) for edge, (l, m) in enumerate(machine.edges)]
    names = ["free energy" if hamiltonian.graph.summed else "energy"]
    for l, m, axis in axes:
        names += [f"edge ({l}, {m}), direction {k}" for k in range(1, axis.shape[1] + 1)]
    observables = {} if observables is None else observables
    _checks.instance(observables, "observables", Mapping, "a dict of functions")
    if taken := set(names) & set(observables):
        raise ValueError(f"observables: expected names other than {names}, received {sorted(taken)}")
    draws_by_sweep: list[Tensor] = []
    totals: dict[str, float | Tensor] = {}

    def observe(number: int, state: KernelState, info: Info) -> None:
        if number > sweeps // 2:
            free_energy = hamiltonian.free_energy(state.states, hamiltonian.graph.summed).unsqueeze(0)
            places = (axis.t() @ state.states[l].double().t() for l, _, axis in axes)
            measured = [_observe(function, name, state.states) for name, function in observables.items()]
            draws_by_sweep.append(torch.cat([free_energy, *places, *measured]))
            totals.update({name: totals.get(name, 0.0) + value for name, value in info.items()})

    run(machine, kernel, start, sweeps, seed=generator, observer=observe)
    draws = torch.stack(draws_by_sweep).cpu()  # (sweeps, quantities, chains)
    series = {name: draws[:, number].t() for number, name in enumerate([*names, *observables])}
    return Diagnosis(
        {name: convergence(x) for name, x in series.items()},
        draws.shape[0] * draws.shape[2],
        {name: autocorrelation_times(x) for name, x in series.items()},
        {name: float(total) / len(draws) for name, total in totals.items()},
    )


def _observe(function: Observable, name: str, states: States) -> Tensor:
    """Returns an observable of the states as a row, (1, chains) float64."""
    chains = len(states[0])
    value = function([x.clone() for x in states])
    if not isinstance(value, Tensor) or value.shape != (chains,):
        received = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"observables: expected a tensor of shape ({chains},), one number a chain, from {name!r}, "
            f"received {received}"
        )
    return value.to(states[0].device, torch.float64).unsqueeze(0)
