"""Resampling of a finished machine from noise, a test for training out of equilibrium."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.chains import Gibbs, Info, KernelState, run
from harmonium.data import Rows
from harmonium.likelihood import BASE_ROWS, read_rows
from harmonium.machine import BoltzmannMachine, States
from harmonium.report.moments import PairStatistics
from harmonium.training import Metric

_GROUPS = 20  # of chains, left out one by one for standard errors
_RATE = 0.001  # of false alarms by chance alone, over all numbers of sweeps
_CERTAIN = 1 - 1e-9  # of a correlation, so that its Fisher transform is finite
_NOISE_CHAINS, _NOISE_SWEEPS = 1000, 50  # of a metric: where decision 18 has the highest points
_LEAST = 0.02  # of a correlation: a smaller fall is of no consequence


class Resampling(NamedTuple):
    """The correlation of a machine's pair statistics with the data's, over the sweeps from noise.

    Attributes:
        sweeps: 1, 2, 4, … and the last one, (times,) int64.
        correlation: Pearson correlation of the covariances of pairs of visible units, of chains after so many
            sweeps and of the data, (times,) float64.
        drop: correlation minus the last correlation, (times,).
        drop_error: standard error of the drop from the number of chains, (times,): a jackknife over 20 groups
            of chains, which are the same ones at every time.
        score: drop of the Fisher transform of the correlation over its standard error, from the same
            jackknife, (times,); 0 at the end. Where pairs are few the correlation itself is far from normal.
        data: the correlation of as many rows of the data, or of half of them if they are fewer, with the
            other rows: what a perfect machine would reach.
        states: States of the chains after the last sweep, for each layer (chains, width_l).
    """

    sweeps: Tensor
    correlation: Tensor
    drop: Tensor
    drop_error: Tensor
    score: Tensor
    data: float
    states: States

    @property
    def peak(self) -> int:
        """Returns the number of sweeps with the highest correlation."""
        return int(self.sweeps[self.correlation.argmax()])

    @property
    def falls(self) -> bool:
        """Returns True if the curve rises above its end and falls: a sign of training out of equilibrium.

        The fall from the highest point has to be 0.02 or more, and significant at a rate of 0.001 over all
        times.
        """
        return self._passes(int(self.correlation.argmax()), 1)

    @property
    def rises(self) -> bool:
        """Returns True if the curve still rises at its end, by the rule of ``falls``, so that chains from
        noise need more sweeps."""
        return len(self.sweeps) > 1 and self._passes(-2, -1)

    def _passes(self, time: int, sign: int) -> bool:
        """Returns whether the drop at a time, with a sign, is large and significant."""
        from scipy.special import stdtrit  # slow to import, and only needed here

        limit = -float(stdtrit(_GROUPS - 1, _RATE / len(self.sweeps)))
        return sign * float(self.score[time]) > limit and sign * float(self.drop[time]) > _LEAST


def pair_correlation(
    machine: BoltzmannMachine,
    X: Numbers | Rows,
    weights: Tensor | None = None,
    *,
    seed: int | torch.Generator = 0,
) -> dict[str, Metric]:
    """Returns a metric for ``harmonium.train``: how well chains from noise have learned the data.

    It is Pearson's correlation of the pair covariances of 1,000 chains, 50 sweeps from noise, with those of
    the rows.

    Args:
        machine: Machine to be trained.
        X: the training rows, visible states (rows, visible_width); those that lack a cell are left out.
        weights: Row weights, (rows,); None means uniform.
        seed: Seed of the chains.

    Returns:
        The metric, which does not read its own rows, by the name ``pair_correlation``.

    Raises:
        ValueError: no row without missing cells, or no two pairs of units of different covariances.
    """
    rows = read_rows(machine, X)
    index = rows.spread(BASE_ROWS, whole=True)
    if not len(index):
        raise ValueError("until_correlation: expected rows without missing cells, received none")
    weights = None if weights is None else weights[index.to(weights.device)]
    pairs = PairStatistics(machine, rows.take(index).to(machine.device), weights)
    if not pairs.varied:
        raise ValueError("until_correlation: expected data of which pairs of columns differ, received others")

    def correlate(judged: BoltzmannMachine, X: Tensor) -> float:
        generator = _random.as_generator(seed, judged.device)
        start = judged.random_states(_NOISE_CHAINS, seed=generator)
        states = run(judged, Gibbs(), start, _NOISE_SWEEPS, seed=generator)
        return float(pairs.correlation(judged.hamiltonian().visible_states(states)))

    return {"pair_correlation": correlate}


@torch.no_grad()
def resampling(
    machine: BoltzmannMachine,
    data: Numbers,
    *,
    chains: int = 1000,
    sweeps: int = 1000,
    weights: Numbers | None = None,
    seed: int | torch.Generator = 0,
) -> Resampling:
    """Follows the pair statistics of Gibbs chains from noise towards, and maybe away from, those of the data.

    A machine that was trained by chains too short to reach its distribution can generate good samples after
    as many sweeps as the training's chains had made, and bad ones later: its distribution is another than the
    samples then seen (Nijkamp et al. 2020; Agoritsas et al. 2023). The correlation of the pair statistics
    with the data's then rises above its end and falls. Means play no part, as covariances have them taken
    off.

    Args:
        machine: the machine.
        data: (rows, visible_width), complete rows, at least two; best the training data.
        chains: at least 40. The fewer, the larger a fall has to be to be seen.
        sweeps: at least 1.
        weights: Row weights, (rows,), those of the training; None means uniform. Without them a machine that
            was trained with weights is compared with another distribution than its own.
        seed: an int or a generator.

    Returns:
        The curve, with what tells a fall from chance.

    Raises:
        TypeError: arguments of another type.
        ValueError: numbers out of range, rows that do not fit, or data without two pairs of visible units of
            different covariance.
    """
    _checks.positive_int(chains, "chains", minimum=2 * _GROUPS)
    _checks.positive_int(sweeps, "sweeps")
    generator = _random.as_generator(seed, machine.device)
    rows = machine.visible_rows(data, "data")
    row_weights = _checks.weights(weights, "weights", len(rows))
    order = _random.permutation(len(rows), generator)
    rows, row_weights = (
        rows[order],
        None if row_weights is None else row_weights[order.to(row_weights.device)],
    )
    hamiltonian = machine.hamiltonian()
    pairs = PairStatistics(machine, rows, row_weights)
    if not pairs.varied:
        raise ValueError(
            "data: expected rows in which at least two pairs of visible units differ in their covariance, "
            f"received {len(rows)} rows of {rows.shape[1]} columns without"
        )
    marks = sorted({sweeps, *(2**k for k in range(sweeps.bit_length()))})
    curves: list[tuple[Tensor, Tensor]] = []

    def observe(number: int, state: KernelState, info: Info) -> None:
        if number in marks:
            curves.append(pairs.jackknife(hamiltonian.visible_states(state.states), _GROUPS))

    start = machine.random_states(chains, seed=generator)
    states = run(machine, Gibbs(), start, sweeps, seed=generator, observer=observe)
    correlation = torch.stack([whole for whole, _ in curves])
    without = torch.stack([parts for _, parts in curves])  # (times, groups)
    drop, error = _drop(correlation, without)
    drop_z, error_z = _drop(_transform(correlation), _transform(without))
    score = torch.where(error_z > 0, drop_z / error_z, 0.0)
    some = min(chains, len(rows) // 2)
    first, rest = (None, None) if row_weights is None else (row_weights[:some], row_weights[some:])
    between = float(PairStatistics(machine, rows[some:], rest).correlation(rows[:some], first))
    return Resampling(torch.tensor(marks), correlation, drop, error, score, between, states)


def _drop(values: Tensor, without: Tensor) -> tuple[Tensor, Tensor]:
    """Returns values minus the last one, and the standard errors of that from values without each group."""
    drops = without - without[-1]
    return values - values[-1], (drops.var(1, correction=0) * (_GROUPS - 1)).sqrt()


def _transform(correlation: Tensor) -> Tensor:
    """Returns Fisher's transform of correlations, which is nearly normal."""
    return correlation.clamp(-_CERTAIN, _CERTAIN).atanh()
