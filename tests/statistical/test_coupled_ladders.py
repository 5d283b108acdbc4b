"""Pairs of ladders meet between modes, and their estimates are unbiased.

Failure rate on a fresh seed: |z| < 4 fails with probability 6e-5.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from harmonium.coupled import meet_ladders, mixing_bound

from .test_ladder import spins_in_two_modes


def up(states: list[Tensor]) -> Tensor:
    total = states[0].sum(1)
    return (total > 0).double() + (total == 0).double() / 2


def test_the_weights_of_two_modes_are_unbiased() -> None:
    """After so few rounds the ladders themselves do not yet follow the law."""
    made = spins_in_two_modes()
    found = meet_ladders(made, pairs=400, lag=20, after=6, statistic=up, seed=0)
    assert not bool(found.meetings.capped.any()) and found.estimates is not None
    error = float(found.estimates.std()) / 20
    assert abs(float(found.estimates.mean()) - 0.6457) < 4 * error < 0.6
    assert bool((found.meetings.times >= 20).all())
    bounds = mixing_bound(found.meetings, range(0, 400, 20))
    assert float(bounds[0]) > 0.1 and float(bounds[-1]) < 0.05


def test_a_pair_that_has_met_stays_together() -> None:
    """So that an estimate after the last meeting is the state of the first ladder alone."""
    made = spins_in_two_modes()
    early, late = (meet_ladders(made, pairs=50, after=after, statistic=up, seed=3) for after in (0, 150))
    assert torch.equal(early.meetings.times, late.meetings.times) and int(early.meetings.times.max()) < 150
    assert late.estimates is not None and torch.equal(late.estimates, up(late.meetings.states))


def test_capped_pairs_are_marked() -> None:
    found = meet_ladders(spins_in_two_modes(), pairs=10, max_rounds=2, seed=0)
    assert bool(found.meetings.capped.any()) and found.estimates is None
    with pytest.raises(ValueError, match="lag: expected an even number, received 3"):
        meet_ladders(spins_in_two_modes(), lag=3, seed=0)
    with pytest.raises(ValueError, match="max_rounds"):
        meet_ladders(spins_in_two_modes(), pairs=10, after=5, max_rounds=2, seed=0)
