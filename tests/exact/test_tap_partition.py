"""ln Z by TAP on nets whose states are listed: within a nat, or with a doubt."""

from __future__ import annotations

import pytest

import harmonium as hm
from tests.campaigns.tap import build, exact, make


def test_the_list_of_states_is_that_of_the_library() -> None:
    for kind in ("glass", "RBM of bits", "DBM of bits"):
        net = make(kind, 5)
        assert exact(net) == pytest.approx(float(hm.likelihood.exact_log_partition(build(net))), abs=1e-9)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Hopfield", "ferromagnet", "RBM of bits", "positive RBM"])
def test_the_value_is_within_a_nat_or_doubted(kind: str, order: int) -> None:
    for number in (50, 51, 52):
        net = make(kind, number)
        machine = build(net)
        found = hm.likelihood.tap_log_partition(machine, machine.random_states(20, seed=1)[0], order=order)
        assert found.doubts or found.value == pytest.approx(exact(net), abs=1.0), (kind, number)
