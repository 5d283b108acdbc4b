"""NaN in the data of ``train`` is what was not observed, and rows have weights: what is taken and refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

import harmonium as hm
from harmonium.data import Rows
from harmonium.machine import init_visible_biases_

RANDOM = np.random.default_rng(0)
X = RANDOM.integers(0, 2, (12, 5)).astype(np.float64)
GAPS = RANDOM.random(X.shape) < 0.3
GAPS[3] = True  # a row with nothing observed
HOLED = np.where(GAPS, np.nan, X)


def machine(visible: hm.layers.Layer | None = None) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([visible or hm.Bernoulli(5), hm.Bernoulli(3)]).double()


def train(data: Any, made: hm.BoltzmannMachine | None = None, **settings: Any) -> hm.BoltzmannMachine:
    made = made or machine()
    settings = {"rule": hm.rules.exact(), "updates": 3, "batch_size": 4, "progress": False, **settings}
    hm.train(made, data, **settings)
    return made


def held(source: str, tmp_path: Path, data: np.ndarray = HOLED) -> Any:
    if source == "tensor":
        return torch.from_numpy(data)
    if source == "sparse":
        return sparse.csr_matrix(data)  # stores NaN
    if source == "memory map":
        np.save(tmp_path / "X.npy", data)
        return np.load(tmp_path / "X.npy", mmap_mode="r")
    return data


SOURCES = pytest.mark.parametrize("source", ["array", "tensor", "sparse", "memory map"])


# What was not observed -------------------------------------------------------------------------------------


@SOURCES
def test_data_with_gaps_train_alike_wherever_they_are(source: str, tmp_path: Path) -> None:
    found, expected = train(held(source, tmp_path)), train(HOLED)
    for left, right in zip(found.parameters(), expected.parameters(), strict=True):
        assert torch.equal(left, right) and bool(left.isfinite().all())


def test_infinity_and_values_outside_the_support_are_refused_beside_gaps() -> None:
    for wrong, text in ((math.inf, "expected finite values"), (2.0, r"X\[7\]: expected values in")):
        bad = HOLED.copy()
        bad[7, 1] = wrong
        with pytest.raises(ValueError, match=text):
            train(bad, batch_size=12)


def test_a_unit_of_several_columns_is_missing_as_a_whole() -> None:
    made = machine(hm.Categorical(2, 3))
    v = np.eye(3)[RANDOM.integers(0, 3, (6, 2))].reshape(6, 6)
    v[2, :3] = np.nan
    train(v, made)
    v[4, 4] = np.nan
    with pytest.raises(
        ValueError, match=r"X\[4\]: expected every unit .* given or missing \(NaN\) as a whole"
    ):
        train(v, made)


@pytest.mark.parametrize("rule", sorted({*hm.rules.RECIPES} - {"quadrature"}))
def test_every_rule_takes_gaps_and_weights_together(rule: str) -> None:
    made = train(HOLED, machine().float(), rule=rule, weights=np.arange(12.0))
    assert all(bool(parameter.isfinite().all()) for parameter in made.parameters())


def test_what_draws_states_of_intensities_still_refuses_gaps() -> None:
    with pytest.raises(ValueError, match="intensities"):
        train(HOLED, transform=hm.data.bernoulli_binarise)


# Moments and initialisation --------------------------------------------------------------------------------


def test_moments_are_of_observed_entries() -> None:
    data = RANDOM.normal(size=(501, 4)) + 1e6
    gaps = RANDOM.random(data.shape) < 0.4
    data[:, 1], gaps[:, 2], gaps[:, 3] = 0.1, True, False
    holed, weights = np.where(gaps, np.nan, data), RANDOM.random(501)
    mean, variance = Rows.of(holed, missing=True).mean_variance()
    np.testing.assert_allclose(mean[[0, 1, 3]], np.nanmean(holed[:, [0, 1, 3]], 0), rtol=1e-7)
    rows = Rows.of(holed, torch.float64, missing=True)
    mean, variance = rows.mean_variance(torch.from_numpy(weights))
    for column in (0, 1, 3):
        seen = ~gaps[:, column]
        expected = np.average(data[seen, column], weights=weights[seen])
        assert float(mean[column]) == pytest.approx(expected, rel=1e-12)
        spread = np.average((data[seen, column] - expected) ** 2, weights=weights[seen])
        assert float(variance[column]) == pytest.approx(spread, rel=1e-6, abs=1e-30)
    assert variance[1] == 0 and bool(mean[2].isnan()) and bool(variance[2].isnan())
    with pytest.raises(ValueError, match="expected finite values"):
        Rows.of(holed).mean_variance()


@pytest.mark.parametrize("kind", [hm.Bernoulli, hm.Spin, hm.Gaussian, hm.Binomial, hm.ReLU, hm.DoubleReLU])
def test_columns_start_from_what_was_observed_of_them(kind: Any) -> None:
    """As alone, without the rows that do not have them; a column that nobody saw starts as pure noise."""
    units = 3
    made, data = machine(kind(units) if kind is not hm.Binomial else kind(units, 4)), X[:, :units].copy()
    if kind is hm.Spin:
        data = 2 * data - 1
    holed = np.where(GAPS[:, :units], np.nan, data)
    holed[:, 2] = np.nan
    init_visible_biases_(made, Rows.of(holed, torch.float64, missing=True))
    theta = [t.detach() for t in made.layers[0].natural()]
    for column in range(2):
        alone = machine(kind(1) if kind is not hm.Binomial else kind(1, 4))
        seen = holed[~np.isnan(holed[:, column]), column]
        init_visible_biases_(alone, Rows.of(seen[:, None], torch.float64))
        for whole, part in zip(theta, alone.layers[0].natural(), strict=True):
            assert float(whole[column]) == pytest.approx(float(part.detach()[0]), abs=1e-9)
    assert all(bool(t.isfinite().all()) for t in theta)
    if kind in (hm.Bernoulli, hm.Spin, hm.Gaussian):
        noise = [float(t[0]) for t in made.layers[0].reference()]
        assert [float(t[2]) for t in theta] == pytest.approx(noise, abs=1e-9)


# Weights ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "error", "text"),
    [
        (np.ones(11), ValueError, r"weights: expected one for each of 12 rows, received shape \(11,\)"),
        (np.zeros(12), ValueError, "expected a weight above zero, of a finite sum, received 0"),
        (-np.arange(12.0), ValueError, "of at least 0, received -1 for row 1"),
        ([1.0] * 11 + [math.nan], ValueError, "received nan for row 11"),
        (["a"] * 12, TypeError, "weights: expected a number for each row or None"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        train(X, weights=weights)


def test_a_run_resumes_with_its_own_weights_only(tmp_path: Path) -> None:
    weights = np.arange(12.0)
    settings: dict[str, Any] = {"rule": hm.rules.pcd(), "weights": weights}
    whole = train(HOLED, updates=8, **settings)
    train(HOLED, updates=4, run_dir=tmp_path / "run", **settings)
    for other in (weights + 1, None):
        with pytest.raises(ValueError, match="weights: the run to resume has"):
            train(HOLED, updates=8, run_dir=tmp_path / "run", resume=True, **settings | {"weights": other})
    resumed = train(HOLED, updates=8, run_dir=tmp_path / "run", resume=True, **settings)
    for left, right in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(left, right)
    train(X, updates=2, run_dir=tmp_path / "plain")
    with pytest.raises(ValueError, match="weights: the run to resume has None"):
        train(X, updates=4, run_dir=tmp_path / "plain", resume=True, weights=weights)


# Validation ------------------------------------------------------------------------------------------------


def validated(**settings: Any) -> dict[str, float]:
    metrics = {"pseudo": hm.likelihood.pseudo_log_likelihood, "free": hm.BoltzmannMachine.free_energy}
    settings = {"rule": hm.rules.exact(), "updates": 2, "progress": False, "metrics": metrics, **settings}
    return hm.train(machine(), X, **settings).metrics


def test_whole_weights_of_validation_count_as_repeated_rows() -> None:
    weights = np.arange(12) % 4
    weighted = validated(validation=X, validation_weights=weights)
    assert weighted == pytest.approx(validated(validation=np.repeat(X, weights, 0)), abs=1e-10)
    assert weighted == pytest.approx(validated(validation=X, validation_weights=0.3 * weights), abs=1e-10)
    assert weighted != pytest.approx(validated(validation=X), abs=1e-3)
    # Rows of weight 0 are as if they were not there.
    kept = weights > 0
    assert weighted == validated(validation=X[kept], validation_weights=weights[kept])


def test_a_metric_is_a_number_or_a_value_for_every_row() -> None:
    def mean(made: hm.BoltzmannMachine, rows: torch.Tensor) -> float:
        return float(hm.likelihood.pseudo_log_likelihood(made, rows).mean())

    by_row = validated(validation=X)["pseudo"]
    assert validated(validation=X, metrics={"pseudo": mean})["pseudo"] == pytest.approx(by_row, abs=1e-12)


def test_validation_that_cannot_be_weighed_is_refused() -> None:
    with pytest.raises(ValueError, match="validation_weights: expected None"):
        validated(validation=None, metrics=None, validation_weights=[1.0])
    with pytest.raises(
        ValueError, match=r"metrics\['two'\]: expected one for each of 12 rows, received the n"
    ):
        validated(validation=X, validation_weights=np.ones(12), metrics={"two": lambda made, rows: 2.0})
    with pytest.raises(ValueError, match=r"metrics\['columns'\]: .* 12 rows, received shape \(5,\)"):
        validated(validation=X, metrics={"columns": lambda made, rows: rows.mean(0)})
