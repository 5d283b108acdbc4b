"""Meeting times of pairs of chains, and the bounds on mixing that they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, _html
from harmonium.machine import States


@final
@dataclass(frozen=True)
class Meetings:
    """The meetings of pairs of chains (X_t, Y_{t-lag}), and their cost.

    Attributes:
        times: (pairs,), the meeting time τ, the first t ≥ lag with X_t = Y_{t-lag}; for capped pairs the cap.
        capped: (pairs,), true where the pair was given up before it met.
        tries: (pairs,), proposals of rejection sampling in all sweeps.
        cost: (pairs,), sweeps of a single chain that the pair took, a coupled sweep counted twice.
        flip_rate: the fraction of even-layer units that changed in a sweep of the first chain: beside
            meeting times near the lag it distinguishes mixing chains from frozen ones.
        lag: the lag.
        states: for each layer (pairs, width_l), X at the horizon (at the lag in ``meet``): where to go on
            from.
    """

    times: Tensor
    capped: Tensor
    tries: Tensor
    cost: Tensor
    flip_rate: float
    lag: int
    states: States

    def _repr_html_(self) -> str:
        met = self.times[~self.capped]
        rows: list[tuple[str, object]] = [
            ("met", f"{len(met):,} of {len(self.times):,} pairs"),
            (
                "meeting time",
                f"{met.double().mean():.1f} on average, at most {int(met.max())}" if len(met) else "none",
            ),
            ("units changed by a sweep", f"{self.flip_rate:.1%}"),
            ("sweeps", f"{int(self.cost.sum()):,}"),
        ]
        return _html.table(f"Pairs with a lag of {self.lag}", rows)


def join_meetings(parts: Sequence[Meetings]) -> Meetings:
    """Joins the pairs of several meetings with the same lag."""
    sweeps = [int(part.times.sum()) for part in parts]  # each counts the units of one first chain once
    changed = sum(part.flip_rate * number for part, number in zip(parts, sweeps, strict=True))
    return Meetings(
        times=torch.cat([part.times for part in parts]),
        capped=torch.cat([part.capped for part in parts]),
        tries=torch.cat([part.tries for part in parts]),
        cost=torch.cat([part.cost for part in parts]),
        flip_rate=changed / max(sum(sweeps), 1),
        lag=parts[0].lag,
        states=[torch.cat(x) for x in zip(*(part.states for part in parts), strict=True)],
    )


def mixing_bound(meetings: Meetings, steps: Tensor | range) -> Tensor:
    """Estimates upper bounds on the total variation between X_t and the machine (Biswas et al. 2019).

    d_TV(t) ≤ E[N_t] with N_t = max(0, ⌈(τ - lag - t)/lag⌉), estimated by the mean over pairs. The chains'
    start is the start of the pairs; a larger lag gives a tighter bound at a higher cost. As an estimate it is
    0 past the longest meeting time, whatever rarer pairs would have done: see ``mixing_limit``.

    Args:
        meetings: from ``coupled.meet``.
        steps: the numbers t of sweeps, (steps,), each at least 0.

    Returns:
        A bound for each t, (steps,), float64, at most 1.

    Raises:
        TypeError: not ``Meetings``, or steps that are no tensor or range.
        ValueError: a pair was capped, so that nothing is bounded, or a step below 0.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
        >>> start = machine.random_states(50, seed=0)
        >>> met = hm.coupled.meet(machine, hm.coupled.Gibbs(), start, seed=1)
        >>> bounds = hm.coupled.mixing_bound(met, range(20))
        >>> bool(bounds[0] <= 1), bool(bounds[19] == 0)
        (True, True)
    """
    return _count_lags(meetings, _read_steps(meetings, steps)).mean(-1).clamp(max=1)


def mixing_limit(meetings: Meetings, steps: Tensor | range, confidence: float = 0.95) -> Tensor:
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
        steps: the numbers t of sweeps, (steps,), each at least 0.
        confidence: how often the limit is to be right, above 0 and below 1.

    Returns:
        A limit for each t, (steps,), float64, at least ``mixing_bound`` and at most 1. All are 1 where every
        pair met at the lag itself: h is then unknown.

    Raises:
        TypeError, ValueError: as ``mixing_bound``, or a confidence out of range.
    """
    from scipy.special import betaincinv  # slow to import, and only needed here

    risk = (1 - _checks.real(confidence, "confidence", 0.0, 1.0)) / 2
    if not 0 < risk < 0.5:
        raise ValueError(f"confidence: expected a number above 0 and below 1, received {confidence:g}")
    t = _read_steps(meetings, steps)
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


def _count_lags(meetings: Meetings, t: Tensor) -> Tensor:
    """Returns N_t of every pair, (steps, pairs)."""
    excess = (meetings.times.double() - meetings.lag - t.unsqueeze(-1)) / meetings.lag
    return excess.ceil().clamp(min=0)


def _read_steps(meetings: Meetings, steps: Tensor | range) -> Tensor:
    """Returns the checked numbers of sweeps, (steps,) float64."""
    _checks.instance(meetings, "meetings", Meetings, "the meetings of pairs of chains")
    _checks.instance(steps, "steps", Tensor | range, "a tensor or a range")
    if bool(meetings.capped.any()):
        raise ValueError(
            f"meetings: expected pairs that all met, received {int(meetings.capped.sum())} of "
            f"{len(meetings.capped)} capped after {int(meetings.times.max())} sweeps, which bound nothing: "
            "chains from this start do not mix within them. A larger max_steps helps if pairs still met near "
            "the end; else start nearer to the machine's law (data, tempered chains)"
        )
    t = steps if isinstance(steps, Tensor) else torch.tensor(list(steps))
    if t.dim() != 1 or t.is_complex():
        raise ValueError(
            f"steps: expected numbers of sweeps, (steps,), received {t.dtype} of shape {tuple(t.shape)}"
        )
    t = t.to(meetings.times.device, torch.float64)
    if not bool((t >= 0).all()):
        wrong = t[~(t >= 0)][0]
        raise ValueError(f"steps: expected numbers of at least 0, received {float(wrong):g}")
    return t
