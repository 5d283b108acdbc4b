"""Imputation and sampling: shapes, what is kept, which way was taken, and rows that are refused."""

from __future__ import annotations

import networkx as nx
import pytest
import torch

import harmonium as hm
from harmonium.data import missing_at_random, missing_half
from harmonium.sums import has_posterior
from harmonium.tasks import impute, sample

LAYERS = {
    "bernoulli": lambda: [hm.Bernoulli(6), hm.Bernoulli(4)],
    "spin": lambda: [hm.Spin(6), hm.Spin(4), hm.Spin(3)],
    "categorical": lambda: [hm.Categorical(6, 3), hm.Bernoulli(4)],
    "gaussian": lambda: [hm.Gaussian(6), hm.Bernoulli(4), hm.Gaussian(2)],
}


def made(kind: str) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine(LAYERS[kind]())
    hm.machine.normal_(machine, 0.3, torch.Generator().manual_seed(0))
    return machine


@pytest.mark.parametrize("method", hm.tasks.IMPUTE_METHODS)
@pytest.mark.parametrize("kind", LAYERS)
def test_given_values_stay_and_the_rest_is_in_the_support(kind, method):
    machine = made(kind)
    layer = machine.layers[0]
    X = machine.random_states(9, seed=torch.Generator().manual_seed(1))[0]
    missing = missing_at_random(9, 6, 0.5, seed=1)
    columns = missing.repeat_interleave(layer.width // 6, -1)
    done = impute(machine, X.masked_fill(columns, torch.nan), missing, method, draws=3, sweeps=4)
    assert done.method == ("exact" if method == "auto" else method)
    assert done.mode.shape == done.mean.shape == X.shape
    assert done.draws.shape == (3, *X.shape)
    for part in (done.mode, done.mean, *done.draws):
        assert torch.equal(part[~columns], X[~columns])
        assert bool(torch.isfinite(part).all())
    for part in (done.mode, *done.draws):
        layer.check(part, "completed")
    again = impute(machine, X, missing, method, draws=3, sweeps=4)
    assert all(torch.equal(a, b) for a, b in zip(done[:3], again[:3], strict=True))


def test_nothing_or_all_may_be_missing():
    machine = made("bernoulli")
    X = machine.random_states(3, seed=torch.Generator().manual_seed(1))[0]
    nothing = impute(machine, X, torch.zeros(1, 6, dtype=torch.bool))
    assert torch.equal(nothing.mode, X)
    everything = impute(machine, torch.full_like(X, torch.nan), torch.ones(3, 1, dtype=torch.bool))
    machine.layers[0].check(everything.mode, "all")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"missing": torch.ones(2, 5, dtype=torch.bool)}, ValueError, "missing: expected"),
        ({"missing": torch.ones(3, 6)}, TypeError, "missing: expected booleans"),
        ({"X": torch.zeros(3, 5)}, ValueError, "X: expected"),
        ({"X": torch.full((3, 6), 0.5)}, ValueError, "X: expected values"),
        ({"X": torch.full((3, 6), torch.nan)}, ValueError, "X: expected finite"),
        ({"method": "magic"}, ValueError, "method: expected one of"),
        ({"sweeps": 1}, ValueError, "sweeps: expected"),
        ({"draws": 0}, ValueError, "draws: expected"),
    ],
)
def test_what_cannot_be_imputed(arguments, error, message):
    given = {"X": torch.zeros(3, 6), "missing": torch.arange(6).unsqueeze(0) > 2, **arguments}
    with pytest.raises(error, match=message):
        impute(made("bernoulli"), **given)


def test_patterns():
    assert missing_at_random(200, 50, 0.3).double().mean().item() == pytest.approx(0.3, abs=0.02)
    for side in ("upper", "lower", "left", "right"):
        half = missing_half(2, (5, 4), side).view(2, 5, 4)
        assert int(half[0].sum()) == 2 * (4 if side in ("upper", "lower") else 5)
    assert bool(missing_half(1, (4, 4), "lower").view(4, 4)[3].all())
    assert bool(missing_half(1, (4, 4), "right").view(4, 4)[:, 3].all())


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
def test_what_cannot_be_drawn(machine, arguments, message):
    with pytest.raises(ValueError, match=message):
        sample(machine, **arguments)


NAN = float("nan")


@pytest.mark.parametrize("method", ["exact", "gibbs", "auto"])
@pytest.mark.parametrize("cell", [-1.0, 0.5, float("inf")])
def test_predictions_take_rows_in_the_support_alone(cell: float, method: str) -> None:
    layers = [hm.Bernoulli(3), hm.Categorical(1, 2), hm.Bernoulli(2)]
    machine = hm.BoltzmannMachine(layers, [(0, 2), (1, 2)], (0, 1), seed=0)
    row = torch.tensor([[cell, 1.0, 0.0, 0.0, 1.0]])
    with pytest.raises(ValueError, match=r"X \(layer 0\): expected"):
        hm.tasks.predict(machine, row, 1, method=method)
    own = torch.tensor([[0.0, 1.0, 0.0, cell, NAN]])  # cells of what is asked for are not read
    assert hm.tasks.predict(machine, own, 1, method=method).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_predictions_refuse_units_given_in_part(method: str) -> None:
    layers = [hm.Categorical(1, 3), hm.Bernoulli(1), hm.Bernoulli(2)]
    machine = hm.BoltzmannMachine(layers, [(0, 2), (1, 2)], (0, 1), seed=0)
    with pytest.raises(ValueError, match="given in part"):
        hm.tasks.predict(machine, torch.tensor([[1.0, NAN, 0.0, 0.0]]), 1, method=method)


@pytest.mark.parametrize("flips", [0.0, 0.1])
@pytest.mark.parametrize("first", [[0.0, 0.0, NAN], [NAN, 0.0, 0.0], [1.0, NAN, 0.0]])
def test_denoising_refuses_units_erased_in_part(first: list[float], flips: float) -> None:
    machine = hm.BoltzmannMachine([hm.Categorical(2, 3), hm.Bernoulli(2)], seed=0)
    with pytest.raises(ValueError, match=r"as a whole, received one given in part at \(0, 0\)"):
        hm.tasks.denoise(machine, torch.tensor([[*first, 0.0, 1.0, 0.0]]), flips)


def test_activation_refuses_weights_that_are_none() -> None:
    mask = torch.zeros(3, 3, dtype=torch.bool)
    machine = hm.BoltzmannMachine([hm.Spin(3)], {(0, 0): hm.Masked(mask)}, [0], seed=None)
    X = torch.ones(4, 3)
    with pytest.raises(ValueError, match="weights"):
        hm.tasks.activate(machine, 1, X, X, weights=torch.tensor([1.0, -1.0] * 2))
