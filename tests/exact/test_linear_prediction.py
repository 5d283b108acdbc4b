"""Straight lines beside a machine against plain NumPy: conditional means, shares, means along curves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import harmonium as hm
from harmonium.tables import LinearPrediction, Table, mean_states, spread_draws
from harmonium.tables.correlated import Shape
from harmonium.tables.linear import bend, choose_shares, expected_cells, straighten


def correlated(rows: int = 400, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    root = np.array([[1.0, 0, 0, 0], [0.8, 0.5, 0, 0], [-0.3, 0.4, 1.0, 0], [0.0, 0.0, 0.0, 2.0]])
    return 5 + random.normal(size=(rows, 4)) @ root.T


def lines_of(x: np.ndarray, ridge: float = 0.0) -> LinearPrediction:
    return LinearPrediction.fit(torch.from_numpy(x), None, Shape(ridge))


def test_predictions_are_conditional_means_within_the_range_seen() -> None:
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
    far = torch.tensor([[1e6, torch.nan, torch.nan, torch.nan, torch.nan]], dtype=torch.float64)
    assert float(lines.predict(far)[0, 1]) == x[:, 1].max()


def test_shares_are_those_of_a_regression_with_a_prior() -> None:
    random = np.random.default_rng(0)
    places = [[0], [1, 2], [3]]  # a number, a label of two states, another number
    units, numbers = torch.tensor([0, 1, 1, 2]), torch.tensor([True, False, False, True])
    cells, machine, lines = random.normal(size=(3, 50, 4))
    cells[random.random(cells.shape) < 0.2] = np.nan
    lines[:, 0] = 0.7 * np.nan_to_num(cells[:, 0]) + 0.3 * lines[:, 0]
    weights = random.uniform(0.5, 2.0, (50, 1))
    arrays = [torch.from_numpy(x) for x in (cells, machine, lines, weights)]
    shares = choose_shares(*arrays, units, numbers)

    def whitened(columns: list[int]) -> tuple[np.ndarray, np.ndarray]:
        known = ~np.isnan(cells[:, columns])
        apart, off = ((x - machine)[:, columns][known] for x in (lines, cells))
        row_weights = np.broadcast_to(weights, known.shape)[known]
        noise = np.sum(row_weights * (off - apart / 2) ** 2) / row_weights.sum()
        return apart * np.sqrt(row_weights / noise), off * np.sqrt(row_weights / noise)

    def fitted(parts: list[tuple[np.ndarray, np.ndarray]], prior: float) -> float:
        rows = np.append(
            np.concatenate([part[0] for part in parts]), np.sqrt(12)
        )  # the prior is one more row
        told = np.append(np.concatenate([part[1] for part in parts]), np.sqrt(12) * prior)
        return float(np.clip(np.linalg.lstsq(rows[:, None], told, rcond=None)[0][0], 0, 1))

    common = fitted([whitened(places[0]), whitened(places[2])], 0.5)
    for columns, prior in zip(places, (common, 0.5, common), strict=True):
        expected = fitted([whitened(columns)], prior)
        np.testing.assert_allclose(shares[columns].numpy(), expected, rtol=1e-9)
    none = torch.full((4, 1), torch.nan, dtype=torch.float64)
    asked = (torch.ones(4, 1).double(), torch.tensor([0]), torch.tensor([True]))
    assert choose_shares(none, none, none, *asked).item() == 0.5


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
    assert column.filled is not None
    low, high = column.filled
    p, means = hidden_states.posterior(v[:1]).probabilities[0], hidden_states.parts[0].means[:, 0].detach()
    value = sum(
        float(q) * weights @ column.cells_of(float(m) + nodes).clip(low, high) / weights.sum()
        for q, m in zip(p, means, strict=True)
    )
    drawn = expected_cells(hidden_states, table, v, torch.Generator().manual_seed(0))
    error = float(drawn.std()) / len(v) ** 0.5
    assert abs(float(drawn.mean()) - value) < 4 * error  # fails by chance once in 15,000 seeds
    states = mean_states(machine, table, v, torch.zeros_like(v), torch.Generator().manual_seed(0))
    torch.testing.assert_close(straighten(table, states), drawn)


def test_lines_travel_with_the_machine_and_damage_is_named(tmp_path: object) -> None:
    x = correlated()
    machine = hm.BoltzmannMachine([hm.Gaussian(4), hm.Bernoulli(2)], seed=0)
    assert LinearPrediction.of(machine) is None
    lines = lines_of(x, 0.05)
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


def test_draws_are_spread_about_what_is_filled_in() -> None:
    machine = hm.BoltzmannMachine([hm.Gaussian(4), hm.Bernoulli(1)], seed=0).double()
    mean, states = torch.zeros(5, 4).double(), torch.ones(5, 4).double()
    draws = torch.randn(7, 5, 4, generator=torch.Generator().manual_seed(0)).double()
    assert torch.equal(spread_draws(machine, hm.data.Identity(), mean, states, draws), draws)
    replace(lines_of(correlated()), spread=torch.tensor(1.5)).keep_in(machine)
    spread = spread_draws(machine, hm.data.Identity(), mean, states, draws)
    torch.testing.assert_close(spread, 1 + 1.5 * draws)


@pytest.mark.nightly
def test_cells_are_filled_in_as_well_as_by_lines_and_covered() -> None:
    """Columns of a normal distribution, and a label that shifts one of them, in few rows and in more."""
    covered, errors = [], []
    for seed, rows in enumerate((60, 60, 60, 200)):
        random = np.random.default_rng(seed)
        x = pd.DataFrame(correlated(rows, seed=5 + seed), columns=[*"abcd"])
        x["label"] = np.where(random.random(rows) < 0.5, "yes", "no")
        x["e"] = x["a"] + 2.0 * (x["label"] == "yes") + 0.3 * random.normal(size=rows)
        holes, numbers = x.mask(random.random(x.shape) < 0.15), [*"abcde"]
        rbm = hm.RBM(random_state=0).fit(holes)
        label = (holes["label"] == "yes").astype(float).where(holes["label"].notna())
        shown = torch.from_numpy(holes[numbers].assign(label=label).to_numpy(float))
        lines = LinearPrediction.fit(shown, None, Shape(0.005)).predict(shown)[:, :5].numpy()
        truth, gone = x[numbers].to_numpy(), holes[numbers].isna().to_numpy()
        filled = rbm.impute(holes, value="mean")[numbers].to_numpy()
        off = [((done - truth) / truth.std(0))[gone] for done in (filled, lines)]
        errors.append([float(np.sqrt(np.mean(x**2))) for x in off])
        several = np.stack([done[numbers].to_numpy() for done in rbm.imputations(holes, 39)])
        several.sort(0)
        covered += [*((several[1] <= truth) & (truth <= several[-2]))[gone]]
    ours, theirs = np.mean(errors, 0)
    assert ours < 1.02 * theirs, errors
    assert 0.84 < np.mean(covered) < 0.96  # of 90 %: three standard errors of 290 cells are 0.053


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
