"""Results of meeting pairs of chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from harmonium.machine import States


@final
@dataclass(frozen=True)
class Meetings:
    """The meetings of pairs of chains (X_t, Y_{t-lag}), and their cost.

    Attributes:
        times: (pairs,), the meeting time τ, the first t ≥ lag with X_t = Y_{t-lag}; for capped pairs the cap.
        capped: (pairs,), whether the pair was given up before it met.
        tries: (pairs,), proposals of rejection sampling in all sweeps.
        cost: (pairs,), sweeps of a single chain that the pair took, a coupled sweep counted twice.
        flip_rate: the fraction of even-layer units that changed in a sweep of the first chain: beside
            meeting times near the lag it tells mixing chains from frozen ones.
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


def joined(parts: Sequence[Meetings]) -> Meetings:
    """The pairs of several meetings with the same lag."""
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
