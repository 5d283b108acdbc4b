"""What cells are filled in with, against plain NumPy: lines, their shares, means along curves, intervals."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch

import harmonium as hm
from harmonium.tables import Intervals, LinearPrediction, Table, bend, find_intervals, linear as lines_module
from harmonium.tables.filling import Cells, expected_cells, straighten
from harmonium.tables.linear import choose_mixing_weights


def correlated(rows: int = 400, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    root = np.array([[1.0, 0, 0, 0], [0.8, 0.5, 0, 0], [-0.3, 0.4, 1.0, 0], [0.0, 0.0, 0.0, 2.0]])
    return 5 + random.normal(size=(rows, 4)) @ root.T


def lines_of(x: np.ndarray) -> LinearPrediction:
    return LinearPrediction.fit(torch.from_numpy(x))


def test_predictions_are_conditional_means_within_the_range_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "_RIDGE", 0.0)
    x = np.column_stack([correlated(), np.full(400, 3.0)])  # the last column never varies
    lines, random = lines_of(x), np.random.default_rng(1)
    shown = x.copy()
    shown[random.random(x.shape) < 0.4] = np.nan
    shown[0] = np.nan
    mean, covariance = x[:, :4].mean(0), np.cov(x[:, :4].T, ddof=0)
    expected = shown.copy()
    for row in expected:
        gone = np.isnan(row[:4])
        slope = covariance[np.ix_(gone, ~gone)] @ np.linalg.pinv(covariance[np.ix_(~gone, ~gone)])
        row[:4][gone] = mean[gone] + slope @ (row[:4] - mean)[~gone]
        row[4] = 3.0
    expected = np.where(np.isnan(shown), expected.clip(x.min(0), x.max(0)), shown)
    np.testing.assert_allclose(lines.predict(torch.from_numpy(shown)).numpy(), expected, atol=1e-6)
    far, end = torch.full((2, 1, 5), torch.nan, dtype=torch.float64)
    far[0, 0], end[0, 0] = 1e6, x[:, 0].max()
    assert torch.equal(lines.predict(far)[:, 1:], lines.predict(end)[:, 1:])
    assert float(lines.predict(far)[0, 0]) == 1e6 and float(lines.predict(far)[0, 1]) < x[:, 1].max()


def test_shares_are_those_of_a_regression() -> None:
    random = np.random.default_rng(0)
    places = [[0], [1, 2], [3]]  # a number, a label of two states, another number
    units = torch.tensor([0, 1, 1, 2])
    cells, machine, lines = random.normal(size=(3, 50, 4))
    cells[random.random(cells.shape) < 0.2] = np.nan
    lines[:, 0] = 0.7 * np.nan_to_num(cells[:, 0]) + 0.3 * lines[:, 0]
    weights = random.uniform(0.5, 2.0, 50)
    arrays = [torch.from_numpy(x) for x in (cells, machine, lines, weights)]
    shares = choose_mixing_weights(*arrays, units)
    for columns in places:
        known = ~np.isnan(cells[:, columns])
        apart, off = ((x - machine)[:, columns][known] for x in (lines, cells))
        root = np.sqrt(np.broadcast_to(weights[:, None], known.shape)[known])
        solution = np.linalg.lstsq((root * apart)[:, None], root * off, rcond=None)[0][0]
        np.testing.assert_allclose(shares[columns].numpy(), np.clip(solution, 0, 1), rtol=1e-9)
    none = torch.full((4, 1), torch.nan, dtype=torch.float64)
    assert choose_mixing_weights(none, none, none, None, torch.tensor([0])).item() == 0.0


def skewed() -> tuple[Table, np.ndarray]:
    """A table of a line, a logarithm, quantiles and zeros, labels, counts and ranks."""
    random = np.random.default_rng(3)
    z = random.normal(size=300)
    columns = [
        z,
        np.exp(z),
        np.sinh(2 * z),
        np.where(z < -0.5, 0.0, np.exp(z)),
        z > 0,
        random.poisson(2, 300),
        np.array([17.5, 22.0, 27.0, 42.0])[random.integers(0, 4, 300)],
    ]
    x = np.column_stack(columns).astype(float)
    kinds = {
        0: "gaussian",
        1: {"kind": "gaussian", "transform": "log"},
        2: {"kind": "gaussian", "transform": "quantile"},
        3: {"kind": "truncated_gauss_bernoulli", "transform": "quantile"},
        4: "bernoulli",
        5: "binomial",
        6: {"kind": "binomial", "values": [17.5, 22.0, 27.0, 42.0]},
    }
    return Table.fit(x, kinds), x


def test_cells_of_curves_come_and_go() -> None:
    table, x = skewed()
    v = torch.from_numpy(table.encode(x))
    straight = straighten(table, v)
    order = [table.names.index(column.name) for column in table.columns]
    curved = [place for place, column in enumerate(table.columns) if column.curved or column.name == 6]
    assert len(curved) == 4
    np.testing.assert_allclose(straight[:, curved].numpy(), x[:, order][:, curved], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(bend(table, straight), v)


def test_means_along_a_curve_are_those_of_cells() -> None:
    random = np.random.default_rng(0)
    table = Table.fit(np.exp(random.normal(size=(200, 1))), {0: {"kind": "gaussian", "transform": "log"}})
    machine = hm.BoltzmannMachine([hm.Gaussian(1), hm.Bernoulli(1)], seed=0).double()
    machine.couplings[0].fill_(torch.tensor([[1.5]]))
    hidden_states, v = (
        hm.likelihood.HiddenStates.of(machine),
        torch.full((400, 1), torch.nan, dtype=torch.float64),
    )
    nodes = np.linspace(-9, 9, 4001)  # of a standard normal number, whose cells stay within those seen
    weights = np.exp(-(nodes**2) / 2)
    (column,) = table.columns
    assert column.ends is not None
    low, high = column.ends
    p, means = hidden_states.posterior(v[:1]).probabilities[0], hidden_states.moments.mean[:, 0].detach()
    value = sum(
        float(q) * weights @ column.cells_of(float(m) + nodes).clip(low, high) / weights.sum()
        for q, m in zip(p, means, strict=True)
    )
    drawn, spread = expected_cells(hidden_states, table, v, torch.Generator().manual_seed(0))
    error = float(drawn.std()) / len(v) ** 0.5
    assert abs(float(drawn.mean()) - value) < 4 * error  # fails by chance once in 15,000 seeds
    squares = sum(
        float(q) * weights @ column.cells_of(float(m) + nodes).clip(low, high) ** 2 / weights.sum()
        for q, m in zip(p, means, strict=True)
    )
    assert float(spread.mean()) == pytest.approx((squares - value**2) ** 0.5, rel=0.05)


def test_lines_travel_with_the_machine_and_damage_is_named(tmp_path: object) -> None:
    x = correlated()
    machine = hm.BoltzmannMachine([hm.Gaussian(4), hm.Bernoulli(2)], seed=0)
    assert LinearPrediction.of(machine) is None
    lines = lines_of(x)
    lines.keep_in(machine)
    machine.save(f"{tmp_path}/machine.safetensors")
    read = LinearPrediction.of(hm.load(f"{tmp_path}/machine.safetensors"))
    assert read is not None
    shown = torch.from_numpy(x).masked_fill(torch.rand(x.shape) < 0.3, torch.nan)
    torch.testing.assert_close(read.predict(shown), lines.predict(shown), rtol=1e-6, atol=1e-6)
    for name, value in {"shares": [0.5], "covariance": [1.0], "columns": "x", "mean": None}.items():
        damaged = dict(machine.metadata["linear"]) | {name: value}
        other = hm.BoltzmannMachine([hm.Gaussian(4), hm.Bernoulli(2)], seed=0)
        other.metadata["linear"] = damaged
        with pytest.raises(ValueError, match="metadata are damaged, linear"):
            LinearPrediction.of(other)


def mixed_machine() -> tuple[hm.BoltzmannMachine, Table]:
    """Two numbers, a label of three values, and a bit."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=60), "b": 3 + 2 * random.normal(size=60)})
    frame["label"], frame["bit"] = random.choice([*"xyz"], 60), random.choice(["no", "yes"], 60)
    table = Table.fit(frame, {"a": "gaussian", "b": "gaussian"})
    machine = hm.machine.join_layers(table.layers, [hm.Bernoulli(2)], 0).double()
    hm.machine.normal_(machine, 0.5, 1)
    return machine, table


def test_intervals_are_quantiles_of_errors_over_deviations(tmp_path: object) -> None:
    machine, table = mixed_machine()
    random = np.random.default_rng(1)
    width, names = machine.visible_width, [column.name for column in table.columns]
    starts = np.cumsum([0, *(column.width for column in table.columns)])
    place = {name: slice(*ends) for name, ends in zip(names, pairwise(starts), strict=True)}
    mean, cells = random.random((2, 99, width))
    mean[:, place["label"]] /= mean[:, place["label"]].sum(1, keepdims=True)
    truth = random.integers(0, 3, 99)
    cells[:, place["label"]], cells[:, place["bit"]] = np.eye(3)[truth], random.integers(0, 2, (99, 1))
    spread = random.uniform(0.5, 2.0, (99, width))
    cells[:10, place["b"]] = np.nan
    filled = Cells(torch.from_numpy(mean), torch.from_numpy(spread))
    Intervals.fit(machine, torch.from_numpy(cells), filled).keep_in(machine)
    machine.save(f"{tmp_path}/machine.safetensors")
    read = Intervals.of(hm.load(f"{tmp_path}/machine.safetensors"))
    for level in (0.05, 0.5, 0.9, 0.985):
        found = read.at(level).numpy()
        for name in "ab":
            errors = ((cells - mean) / spread)[10 * (name == "b") :, place[name]].ravel()
            expected = np.quantile(errors, level, method="weibull") if level < 0.985 or name == "a" else None
            if expected is not None:
                np.testing.assert_allclose(found[place[name]], expected, rtol=1e-4)
        wrong = 1 - mean[:, place["label"]][np.arange(99), truth]
        expected = np.quantile(wrong, level, method="weibull")
        np.testing.assert_allclose(found[place["label"]], expected, rtol=1e-4)
        wrong = np.abs(cells - mean)[:, place["bit"]]
        np.testing.assert_allclose(
            found[place["bit"]], np.quantile(wrong, level, method="weibull"), rtol=1e-4
        )
    few = Intervals.fit(machine, torch.from_numpy(cells[:30]), Cells(*(x[:30] for x in filled)))
    assert bool(few.at(0.98)[place["a"]].isnan()) and not bool(few.at(0.95)[place["a"]].isnan())
    for name, value in {"quantiles": [[1.0]], "floor": "x"}.items():
        machine.metadata["intervals"] = dict(machine.metadata["intervals"]) | {name: value}
        with pytest.raises(ValueError, match="metadata are damaged, intervals"):
            Intervals.of(machine)


def test_intervals_of_cells_have_their_ends_in_the_data() -> None:
    """By hand from the moments of what a row lacks, of numbers on a line and of labels."""
    machine, table = mixed_machine()
    with pytest.raises(ValueError, match="interval: expected a machine that was trained without chains"):
        find_intervals(machine, table, torch.zeros(1, machine.visible_width).double())
    levels = torch.arange(1, 200).double() / 200
    quantiles = (levels - 0.5).unsqueeze(1).repeat(1, machine.visible_width)
    Intervals(quantiles, torch.zeros(machine.visible_width).double()).keep_in(machine)
    v = torch.full((1, machine.visible_width), torch.nan).double()
    cells = {cell.column: cell for cell in find_intervals(machine, table, v, 0.8)}
    moments = hm.likelihood.HiddenStates.of(machine).posterior(v).moments()
    start = 0
    for column in table.columns:
        place, start = slice(start, start + column.width), start + column.width
        mean, cell = moments.mean[0, place].numpy(), cells[column.name]
        if column.name in ("a", "b"):
            deviation = moments.variance[0, place].sqrt().numpy()
            ends = [
                column.decode((mean + sign * 0.4 * deviation)[None], rounded=False)[0] for sign in (-1, 0, 1)
            ]
            np.testing.assert_allclose([cell.low, cell.value, cell.high], ends, rtol=1e-4)
            assert cell.labels == ()
        else:
            p = mean if column.name == "label" else np.array([1 - mean[0], mean[0]])
            several = [
                value for value, q in zip(column.values, p, strict=True) if 1 - q <= 0.3 or q == p.max()
            ]
            assert [*cell.labels] == several and cell.value == column.values[int(p.argmax())]
            assert np.isnan([cell.low, cell.high]).all()
    for interval in (0.0, 0.995, 1.0):
        with pytest.raises(ValueError, match="interval"):
            find_intervals(machine, table, v, interval)


@pytest.mark.nightly
def test_cells_are_filled_in_as_well_as_by_lines_and_covered() -> None:
    """Columns of a normal distribution, and a label that shifts one of them, in few rows and in more."""
    covered, errors = [], []
    for seed, rows in enumerate((60, 60, 60, 200, 200)):
        random = np.random.default_rng(seed)
        x = pd.DataFrame(correlated(rows, seed=5 + seed), columns=[*"abcd"])
        x["label"] = np.where(random.random(rows) < 0.5, "yes", "no")
        x["e"] = x["a"] + 2.0 * (x["label"] == "yes") + 0.3 * random.normal(size=rows)
        holes, numbers = x.mask(random.random(x.shape) < 0.15), [*"abcde"]
        rbm = hm.RBM(random_state=0).fit(holes)
        label = (holes["label"] == "yes").astype(float).where(holes["label"].notna())
        shown = torch.from_numpy(holes[numbers].assign(label=label).to_numpy(float))
        lines = LinearPrediction.fit(shown).predict(shown)[:, :5].numpy()
        truth, gone = x[numbers].to_numpy(), holes[numbers].isna().to_numpy()
        filled = rbm.impute(holes, value="mean")[numbers].to_numpy()
        off = [((done - truth) / truth.std(0))[gone] for done in (filled, lines)]
        errors.append([float(np.sqrt(np.mean(x**2))) for x in off])
        if rows >= 200:
            for cell in rbm.intervals(holes):
                true = x[cell.column][cell.row]
                covered.append(true in cell.labels if cell.labels else cell.low <= true <= cell.high)
    ours, theirs = np.mean(errors, 0)
    assert ours < 1.02 * theirs, errors
    assert 0.85 < np.mean(covered) < 0.97  # of 90 %: three standard errors of 360 cells are 0.047


@pytest.mark.nightly
def test_means_are_whole_only_where_the_type_is() -> None:
    random = np.random.default_rng(0)
    x = pd.DataFrame({"a": random.integers(0, 50, 200), "b": random.integers(0, 5, 200)})
    x["c"] = x["a"] // 3 + x["b"]
    holes = x.astype(float).mask(random.random(x.shape) < 0.2)
    rbm = hm.RBM(random_state=0).fit(holes)
    mean, mode = rbm.impute(holes, value="mean"), rbm.impute(holes)
    assert (mode % 1 == 0).all(axis=None) and not (mean % 1 == 0).all(axis=None)
    ranks = next(column for column in skewed()[0].columns if column.name == 6)
    assert ranks.decode(np.array([[2.5]]), rounded=False)[0] == 34.5
    assert ranks.decode(np.array([[2.41]]))[0] == 33.2  # a tenth is what all are multiples of
    assert ranks.decode(np.array([[2.4]]), drawn="cells")[0] == 27.0
    whole = holes.astype("Int64")
    assert (hm.RBM(random_state=0).fit(whole).impute(whole, value="mean").astype(float) % 1 == 0).all(
        axis=None
    )
