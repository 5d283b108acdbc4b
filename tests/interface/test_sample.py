"""The sampling task: shapes, what is kept, which way was taken, and errors."""

from __future__ import annotations

import networkx as nx
import pytest
import torch

import harmonium as hm
from harmonium.sums import has_posterior
from harmonium.tasks import sample

TABLE = hm.BoltzmannMachine(
    [hm.Gaussian(2), hm.Categorical(1, 3), hm.Bernoulli(4)], edges=[(0, 2), (1, 2)], visible=[1, 0], seed=0
)
LARGE = hm.BoltzmannMachine([hm.Bernoulli(40), hm.Bernoulli(40)], seed=0)
NARROW = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(13)], seed=0)


@pytest.mark.parametrize(
    ("machine", "method", "used"),
    [
        (TABLE, "auto", "exact"),
        (TABLE, "exact", "exact"),
        (TABLE, "gibbs", "gibbs"),
        (LARGE, "auto", "gibbs"),
        (NARROW, "auto", "exact"),  # hidden units are summed out one by one
        (LARGE, "tempered", "tempered"),
    ],
)
def test_rows_are_in_the_support_and_the_way_is_named(machine, method, used):
    drawn = sample(machine, 7, method=method, sweeps=3, seed=1)
    assert drawn.method == used
    assert drawn.rows.shape == (7, machine.visible_width) and drawn.rows.dtype == machine.dtype
    machine.check_rows(drawn.rows, "rows")
    again = sample(machine, 7, method=method, sweeps=3, seed=1)
    other = sample(machine, 7, method=method, sweeps=3, seed=2)
    assert torch.equal(drawn.rows, again.rows) and not torch.equal(drawn.rows, other.rows)


def lattice(side: int, periodic: bool) -> hm.BoltzmannMachine:
    pairs = nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, side, periodic=periodic))
    return hm.BoltzmannMachine([hm.Spin(side**2)], {(0, 0): hm.Sparse(pairs)}, seed=0)


@pytest.mark.parametrize(
    ("machine", "exact"),
    [
        (lattice(12, True), True),  # ln Z takes 2^29 unit updates
        (lattice(13, True), False),  # whose largest table has 2^27 entries
        (lattice(20, False), True),
        (hm.BoltzmannMachine([hm.Bernoulli(64), hm.Bernoulli(20)], seed=0), True),
        (hm.BoltzmannMachine([hm.Bernoulli(784), hm.Bernoulli(18)], seed=0), False),  # more than 1 GB wait
    ],
)
def test_whole_states_are_drawn_exactly_where_ln_z_is(machine, exact):
    assert has_posterior(machine.hamiltonian()) is exact


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_given_cells_stay_and_rows_come_one_after_the_other(method):
    nan = torch.nan
    given = torch.tensor([[0.0, 1.0, 0.0, nan, 2.0], [nan, nan, nan, 1.0, nan]])
    drawn = sample(TABLE, 3, given=given, method=method, sweeps=2).rows
    assert drawn.shape == (6, 5)
    expected = given.repeat_interleave(3, 0)
    assert torch.equal(drawn[~expected.isnan()], expected[~expected.isnan()])
    TABLE.check_rows(drawn, "rows")


@pytest.mark.parametrize(
    ("machine", "arguments", "message"),
    [
        (LARGE, {"method": "exact"}, "expected discrete hidden layers with at most 4096 joint states"),
        (TABLE, {"method": "magic"}, "method: expected one of"),
        (TABLE, {"rows": 0}, "rows: expected"),
        (TABLE, {"sweeps": -1}, "sweeps: expected"),
        (TABLE, {"given": torch.zeros(2, 4)}, "given: expected"),
        (TABLE, {"given": torch.full((1, 5), 0.5)}, "given"),
    ],
)
def test_errors(machine, arguments, message):
    with pytest.raises(ValueError, match=message):
        sample(machine, **arguments)
