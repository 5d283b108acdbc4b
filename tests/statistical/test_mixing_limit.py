"""Confidence limits of the mixing bound: how often they fail, on meeting times of a known distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.coupled import Gibbs, Meetings, meet, mixing_bound, mixing_limit

REPLICATES = 400
# A binomial count of failures at a rate of 5 % is above this with probability 1e-4.
MOST_FAILURES = 39


def meetings(times: np.ndarray, lag: int) -> Meetings:
    t = torch.from_numpy(times)
    return Meetings(t, torch.zeros_like(t, dtype=torch.bool), t * 0, t * 0, 0.5, lag, [])


@pytest.mark.parametrize("lag", [1, 10, 60])
@pytest.mark.parametrize("pairs", [20, 200])
def test_the_limit_covers_a_geometric_tail(lag: int, pairs: int) -> None:
    """τ = lag + a geometric number of sweeps of mean 20: E[N_t] = P(τ > t + lag)/h, exactly.

    At five t, two of them past nearly every meeting time. Failure rate 1e-4 each, 3e-3 in all.
    """
    rng = np.random.default_rng([lag, pairs])
    survival = 1 - 1 / 20
    steps = torch.tensor([0, 10, 40, 150, 300])
    true = survival ** steps.double() / (1 - survival**lag)
    failures = torch.zeros(len(steps))
    zeros = 0
    for _ in range(REPLICATES):
        seen = meetings(lag + rng.geometric(1 / 20, pairs), lag)
        limit, bound = mixing_limit(seen, steps), mixing_bound(seen, steps)
        assert bool((limit >= bound).all() and (limit <= 1).all() and (limit > 0).all())
        assert bool((limit[1:] <= limit[:-1]).all())
        failures += limit < true.clamp(max=1)
        zeros += int(bound[3] == 0)
    assert bool((failures <= MOST_FAILURES).all()), failures
    assert zeros > REPLICATES / 3  # where the estimate said 0


def test_the_limit_is_above_the_true_distance_where_the_estimate_says_zero() -> None:
    """An RBM of two spins, whose distance to its distribution is known: |E[v_t]|/2 from a fixed start.

    Failure rate below 30 x 1e-4. With 30 pairs the estimate often is 0 where the distance is 2 % or more.
    """
    machine = hm.BoltzmannMachine([hm.Spin(1), hm.Spin(1)])
    coupling = 1.2
    with torch.no_grad():
        machine.couplings[0].weight.fill_(coupling)
    keep = np.tanh(coupling) ** 2  # of the mean, in every sweep
    steps = torch.arange(30)
    true = torch.from_numpy(keep ** steps.double().numpy() / 2)
    generator = torch.Generator().manual_seed(5)
    start = torch.ones(30, 1)
    missed = torch.zeros(len(steps))
    failures = torch.zeros(len(steps))
    for _ in range(REPLICATES):
        seen = meet(machine, Gibbs(), start, lag=10, seed=generator)
        limit, bound = mixing_limit(seen, steps), mixing_bound(seen, steps)
        missed += (bound == 0) & (true > 0.02)
        failures += limit < true
    assert int(missed.max()) > REPLICATES / 20
    assert bool((failures <= MOST_FAILURES).all()), failures


def test_the_limit_past_every_meeting_is_the_one_of_no_events() -> None:
    """20 pairs that met in one lag: (1 - 0.025^(1/20)) / 0.025^(1/20)."""
    seen = meetings(np.full(20, 13), 10)
    least = 0.025 ** (1 / 20)
    assert float(mixing_limit(seen, range(3, 4))) == pytest.approx((1 - least) / least)
    assert float(mixing_bound(seen, range(3, 4))) == 0
    assert float(mixing_limit(seen, range(1))) == 1
    # Pairs that never began a lag apart say nothing of how readily pairs meet.
    assert float(mixing_limit(meetings(np.full(20, 10), 10), range(50, 51))) == 1


def test_wrong_arguments_are_refused() -> None:
    seen = meetings(np.full(4, 3), 2)
    for call in (mixing_bound, mixing_limit):
        with pytest.raises(ValueError, match="sweeps: expected numbers of at least 0, received -2"):
            call(seen, torch.tensor([1, -2]))
        with pytest.raises(ValueError, match="sweeps: expected numbers of at least 0, received nan"):
            call(seen, torch.tensor([1, torch.nan]))
        with pytest.raises(
            ValueError, match=r"sweeps: expected .*\(sweeps,\), received torch.int64 of shape \(\)"
        ):
            call(seen, torch.tensor(3))
        with pytest.raises(TypeError, match="sweeps: expected a tensor or a range, received int"):
            call(seen, 3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="meetings: expected the meetings of pairs of chains, received"):
            call(seen.times, range(3))  # type: ignore[arg-type]
    for confidence in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="confidence: expected"):
            mixing_limit(seen, range(3), confidence)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pairs": 0}, "pairs: expected an int of at least 1, received 0"),
        ({"max_sweeps": 0}, "max_sweeps: expected an int of at least 1, received 0"),
        ({"distance": 2}, r"distance: expected a finite number in \[0, 1\], received 2"),
    ],
)
def test_mixing_times_name_what_they_refuse(settings: dict, message: str) -> None:
    machine = hm.BoltzmannMachine([hm.Spin(1), hm.Spin(1)])
    with pytest.raises(ValueError, match=message):
        hm.coupled.mixing_times(machine, seed=0, **settings)
