"""Bounds on the mixing of chains, from the meeting times of pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium.coupled.kernels import Gibbs
from harmonium.coupled.meeting import Meetings, meet
from harmonium.machine import BoltzmannMachine


def mixing_bound(meetings: Meetings, sweeps: Tensor | range) -> Tensor:
    """Estimates upper bounds on the total variation between X_t and the machine (Biswas et al. 2019).

    d_TV(t) ≤ E[N_t] with N_t = max(0, ⌈(τ - lag - t)/lag⌉), estimated by the mean over pairs. The chains'
    start is the start of the pairs; a larger lag gives a tighter bound at a higher cost. As an estimate it is
    0 past the longest meeting time, whatever rarer pairs would have done: see ``mixing_limit``.

    Args:
        meetings: from ``coupled.meet``.
        sweeps: numbers t of sweeps, (sweeps,), each at least 0.

    Returns:
        A bound for each t, (sweeps,), float64, at most 1.

    Raises:
        TypeError: not ``Meetings``, or ``sweeps`` that is no tensor or range.
        ValueError: a pair was capped, so that nothing is bounded, or a number below 0.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
        >>> start = machine.random_states(50, seed=0)
        >>> met = hm.coupled.meet(machine, hm.coupled.Gibbs(), start, seed=1)
        >>> bounds = hm.coupled.mixing_bound(met, range(20))
        >>> bool(bounds[0] <= 1), bool(bounds[19] == 0)
        (True, True)
    """
    return _count_lags(meetings, _read_sweeps(meetings, sweeps)).mean(-1).clamp(max=1)


def mixing_limit(meetings: Meetings, sweeps: Tensor | range, confidence: float = 0.95) -> Tensor:
    """Returns upper confidence limits of the bounds that ``mixing_bound`` estimates.

    No limit holds without an assumption: a mode that no pair has found may keep pairs apart for as long as it
    likes. Assumed is a geometric tail: a pair still apart meets within a further lag with a probability h,
    the same after any number of sweeps, or higher from t + lag on. Then E[N_t] ≤ P(τ > t + lag)/h, and the
    limit is the upper limit of P(τ > t + lag), which needs no assumption, over the lower limit of h (both of
    Clopper & Pearson 1934, with half the risk each). Past the longest of n meeting times it is about
    3.7/(n h) at 95 %.

    The limits hold for one t each. They never rise in t, so that the first t with a limit below some distance
    has that distance with the same confidence.

    Args:
        meetings: from ``coupled.meet``, best with a lag near the longest meeting time at lag 1.
        sweeps: numbers t of sweeps, (sweeps,), each at least 0.
        confidence: how often the limit is to be right, above 0 and below 1.

    Returns:
        A limit for each t, (sweeps,), float64, at least ``mixing_bound`` and at most 1. All are 1 where every
        pair met at the lag itself: h is then unknown.

    Raises:
        TypeError, ValueError: as ``mixing_bound``, or a confidence out of range.
    """
    from scipy.special import betaincinv  # slow to import, and only needed here

    risk = (1 - _checks.real(confidence, "confidence", 0.0, 1.0, "neither")) / 2
    t = _read_sweeps(meetings, sweeps)
    lags = _count_lags(meetings, t)
    pairs = lags.shape[-1]
    late = (lags > 0).sum(-1).cpu().numpy()
    # Were all pairs apart, the upper limit would be 1; the formula has no value there.
    apart = np.where(late < pairs, betaincinv(late + 1.0, np.maximum(pairs - late, 1), 1 - risk), 1.0)
    # From the start on: every lag that a pair began apart is a trial, the one in which it met a success.
    begun = _count_lags(meetings, torch.zeros(1, dtype=torch.float64, device=t.device))
    trials, met = float(begun.sum()), float((begun > 0).sum())
    readiness = float(betaincinv(met, trials - met + 1, risk)) if met else 0.0
    limit = torch.from_numpy(apart).to(t.device) / readiness
    return torch.maximum(limit, lags.mean(-1)).clamp(max=1)


class MixingTimes(NamedTuple):
    """Meeting times of pairs of chains from noise, and the sweeps that bring chains near their distribution.

    Attributes:
        pairs: Number of pairs.
        mean_meeting_time: Mean meeting time at lag 1, in sweeps; too small where pairs were given up.
        longest_meeting_time: the longest of these times.
        given_up: Fraction of the pairs that had not met; above 0 nothing is bounded.
        flip_rate: see ``Meetings``.
        lag: Lag of ``meetings``: the longest meeting time where all pairs met, else 1.
        distance: a total variation distance.
        sweeps: Sweeps after which ``mixing_bound`` is at most that distance; None: it is nowhere.
        sweeps_with_confidence: as ``sweeps``, by ``mixing_limit`` at 95 %.
        meetings: the pairs with that lag, for ``mixing_bound``.
    """

    pairs: int
    mean_meeting_time: float
    longest_meeting_time: int
    given_up: float
    flip_rate: float
    lag: int
    distance: float
    sweeps: int | None
    sweeps_with_confidence: int | None
    meetings: Meetings


def mixing_times(
    machine: BoltzmannMachine,
    *,
    pairs: int = 400,
    max_sweeps: int = 10_000,
    distance: float = 0.1,
    seed: int | torch.Generator,
) -> MixingTimes:
    """Finds how many sweeps pairs of Gibbs chains from noise take to meet, and chains to mix.

    A first run with lag 1 gives the lag of a second one, which bounds the total variation distance (Biswas et
    al. 2019). A mode that no pair has found is not seen.

    Args:
        machine: the machine.
        pairs: at least 1; with few the confidence limit is far above the bound.
        max_sweeps: sweeps after which a pair of the first run is given up, at least 1.
        distance: between 0 and 1.
        seed: an int or a generator.

    Raises:
        TypeError, ValueError: arguments out of range.
    """
    _checks.real(distance, "distance", 0.0, 1.0)
    generator = _random.as_generator(seed, machine.device)
    start = machine.random_states(_checks.positive_int(pairs, "pairs"), seed=generator)
    first = met = meet(machine, Gibbs(), start, max_sweeps=max_sweeps, seed=generator)
    longest, capped = int(first.times.max()), float(first.capped.double().mean())
    near = limit = None
    if not capped:
        met = meet(machine, Gibbs(), start, lag=longest, seed=generator)
        sweeps = range(int(met.times.max()) + 1)
        below = [curve <= distance for curve in (mixing_bound(met, sweeps), mixing_limit(met, sweeps))]
        near, limit = (int(is_below.nonzero()[0]) if bool(is_below.any()) else None for is_below in below)
    mean = float(first.times.double().mean())
    return MixingTimes(pairs, mean, longest, capped, first.flip_rate, met.lag, distance, near, limit, met)


def _count_lags(meetings: Meetings, t: Tensor) -> Tensor:
    """Returns N_t of every pair, (sweeps, pairs)."""
    excess = (meetings.times.double() - meetings.lag - t.unsqueeze(-1)) / meetings.lag
    return excess.ceil().clamp(min=0)


def _read_sweeps(meetings: Meetings, sweeps: Tensor | range) -> Tensor:
    """Returns the checked numbers of sweeps, (sweeps,) float64."""
    _checks.instance(meetings, "meetings", Meetings, "the meetings of pairs of chains")
    _checks.instance(sweeps, "sweeps", Tensor | range, "a tensor or a range")
    if bool(meetings.capped.any()):
        raise ValueError(
            f"meetings: expected pairs that all met, received {int(meetings.capped.sum())} of "
            f"{len(meetings.capped)} capped after {int(meetings.times.max())} sweeps, which bound nothing: "
            "chains from this start do not mix within them. A larger max_sweeps helps if pairs still met "
            "near the end; else start nearer to the machine's distribution (data, tempered chains)"
        )
    t = sweeps if isinstance(sweeps, Tensor) else torch.tensor(list(sweeps))
    if t.dim() != 1 or t.is_complex():
        raise ValueError(
            f"sweeps: expected numbers of sweeps, (sweeps,), received {t.dtype} of shape {tuple(t.shape)}"
        )
    t = t.to(meetings.times.device, torch.float64)
    if not bool((t >= 0).all()):
        wrong = t[~(t >= 0)][0]
        raise ValueError(f"sweeps: expected numbers of at least 0, received {float(wrong):g}")
    return t
