"""Pairs of ladders meet where pairs of Gibbs chains do not, and their estimates are unbiased.

Failure rate on a fresh seed: |z| < 4 fails with probability 6e-5.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.coupled import meet, meet_ladders, mixing_bound

from .test_ladder import spins_in_two_modes


def up(states: list[Tensor]) -> Tensor:
    total = states[0].sum(1)
    return (total > 0).double() + (total == 0).double() / 2


@pytest.mark.parametrize(("lag", "after"), [(1, 0), (5, 3)])
def test_the_weights_of_two_modes_are_unbiased(lag: int, after: int) -> None:
    """So early that the chains themselves are far from the law: half of them are up."""
    made = spins_in_two_modes()
    found = meet_ladders(made, pairs=400, lag=lag, after=after, statistic=up, seed=lag)
    assert not bool(found.meetings.capped.any()) and found.estimates is not None
    error = float(found.estimates.std()) / 20
    assert abs(float(found.estimates.mean()) - 0.6457) < 4 * error < 0.3
    assert bool((found.meetings.times >= lag).all())
    bounds = mixing_bound(found.meetings, range(0, 200, 20))
    assert float(bounds[0]) > 0.1 and float(bounds[-1]) < 0.05


def test_gibbs_pairs_do_not_meet_there() -> None:
    made = spins_in_two_modes()
    with torch.no_grad():
        start = made.random_states(50, seed=0)
    met = meet(made, hm.coupled.Gibbs(), start, max_steps=200, seed=1)
    assert float(met.capped.double().mean()) > 0.3


def test_a_pair_that_has_met_stays_together() -> None:
    """So that an estimate after the last meeting is the state of the first ladder alone."""
    made = spins_in_two_modes()
    early, late = (meet_ladders(made, pairs=50, after=after, statistic=up, seed=3) for after in (0, 150))
    assert torch.equal(early.meetings.times, late.meetings.times) and int(early.meetings.times.max()) < 150
    assert late.estimates is not None and torch.equal(late.estimates, up(late.meetings.states))


def test_capped_pairs_are_marked() -> None:
    found = meet_ladders(spins_in_two_modes(), pairs=10, max_rounds=2, seed=0)
    assert bool(found.meetings.capped.any()) and found.estimates is None
    with pytest.raises(ValueError, match="max_rounds"):
        meet_ladders(spins_in_two_modes(), pairs=10, after=5, max_rounds=2, seed=0)
