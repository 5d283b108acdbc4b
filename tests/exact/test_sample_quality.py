"""Distances of sample sets against their definitions in numpy, on features that are the rows themselves."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torch import nn

from harmonium.report import (
    frechet_distance,
    kernel_distance,
    nearest_neighbours,
)

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(300, 5)) @ RNG.normal(size=(5, 5)) + 1.0
GENERATED = RNG.normal(size=(200, 5)) * [0.5, 1, 2, 1, 0.1]


def test_frechet_distance_is_that_of_two_gaussians():
    pytest.importorskip("torchmetrics")
    a, b = np.cov(REAL.T), np.cov(GENERATED.T)
    means = REAL.mean(0) - GENERATED.mean(0)
    expected = means @ means + np.trace(a + b - 2 * np.real(sqrtm(a @ b)))
    assert frechet_distance(REAL, GENERATED, nn.Identity()) == pytest.approx(expected, rel=1e-8)
    assert frechet_distance(REAL, REAL, nn.Identity()) == pytest.approx(0, abs=1e-6)


def test_kernel_distance_is_the_unbiased_discrepancy():
    pytest.importorskip("torchmetrics")
    x, y = REAL[:200], GENERATED

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a @ b.T / 5 + 1) ** 3

    def off_diagonal_mean(k: np.ndarray) -> float:
        return float((k.sum() - np.trace(k)) / (len(k) * (len(k) - 1)))

    expected = off_diagonal_mean(kernel(x, x)) + off_diagonal_mean(kernel(y, y)) - 2 * kernel(x, y).mean()
    # A subset of all rows is the whole set, in another order.
    result = kernel_distance(x, y, nn.Identity(), subsets=2, subset_size=200)
    assert result.value == pytest.approx(expected, rel=1e-8)
    first = kernel_distance(x, y, nn.Identity(), subsets=20, subset_size=50, seed=3)
    assert first == kernel_distance(x, y, nn.Identity(), subsets=20, subset_size=50, seed=3)
    assert first.standard_error > 0
    with pytest.raises(ValueError, match=r"subset_size: expected at most 200 rows, received 201"):
        kernel_distance(x, y, nn.Identity(), subset_size=201)


def test_nearest_neighbours_are_those_of_all_pairs():
    distances = np.linalg.norm(GENERATED[:, None] - REAL, axis=-1)
    found = nearest_neighbours(GENERATED, REAL)
    np.testing.assert_array_equal(found.indices, distances.argmin(1))
    np.testing.assert_allclose(found.distances, distances.min(1), rtol=1e-12)
    # Copies are at distance zero exactly, also far from the origin in float32.
    rows = torch.from_numpy(REAL + 1000).float()
    copies = nearest_neighbours(rows[5:9], rows)
    assert copies.indices.tolist() == [5, 6, 7, 8] and bool((copies.distances == 0).all())


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("samples: expected 5 values", lambda: nearest_neighbours(np.zeros((2, 4)), REAL)),
        ("data: expected at least two", lambda: frechet_distance(REAL[:1], REAL, nn.Identity())),
        ("features of samples", lambda: frechet_distance(REAL, np.full((3, 5), np.nan), nn.Identity())),
        ("features: expected a matrix", lambda: frechet_distance(REAL, REAL, nn.Flatten(0))),
    ],
)
def test_wrong_arguments_are_named(message, call):
    if "frechet_distance" in call.__code__.co_names:
        pytest.importorskip("torchmetrics")
    with pytest.raises(ValueError, match=message):
        call()


def test_tables_are_to_be_encoded():
    with pytest.raises(TypeError, match=r"data: expected numbers, received object; encode .*encode\(frame\)"):
        nearest_neighbours(REAL, np.array([["a", 1.0]], dtype=object))


def test_a_missing_torchmetrics_is_named(monkeypatch):
    for name in ("torchmetrics.image.fid", "torchmetrics.image.kid"):
        monkeypatch.setitem(sys.modules, name, None)
    for distance in (frechet_distance, kernel_distance):
        with pytest.raises(ImportError, match=r"needs torchmetrics; pip install 'harmonium\[metrics\]'"):
            distance(REAL, REAL, nn.Identity())
