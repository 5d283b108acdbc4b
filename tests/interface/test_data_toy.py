"""The built-in sets against independent descriptions of what they hold."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from harmonium import data

WEIGHTS = (0.33, 0.33, 0.34)
MEANS = ((-5, -5), (5, -5), (0, 5))
DEVIATIONS = {"isotropic": ((1, 1),) * 3, "anisotropic": ((1.25, 0.5), (1.25, 0.5), (0.5, 1.25))}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_bars_and_stripes_hold_every_bar_and_stripe_once(size):
    pictures = data.bars_and_stripes(size)
    assert pictures.shape == (2 * 2**size, size * size)
    assert pictures.dtype == np.float32
    expected = []
    for pattern in itertools.product((0, 1), repeat=size):
        expected.append(tuple(np.array([pattern] * size).reshape(-1)))
        expected.append(tuple(np.array([pattern] * size).T.reshape(-1)))
    assert sorted(map(tuple, pictures.tolist())) == sorted(expected)


@pytest.mark.parametrize("size", [0, -1, 17])
def test_bars_and_stripes_refuse_a_size_out_of_range(size):
    with pytest.raises(ValueError, match=f"size: expected 1 to 16, received {size}"):
        data.bars_and_stripes(size)


@pytest.mark.parametrize("kind", DEVIATIONS)
def test_mixture_density_is_the_weighted_sum_of_normals(kind):
    points = np.random.Generator(np.random.PCG64(1)).uniform(-8, 8, (50, 2))
    expected = sum(
        weight * stats.multivariate_normal(mean, np.diag(np.square(deviation))).pdf(points)
        for weight, mean, deviation in zip(WEIGHTS, MEANS, DEVIATIONS[kind], strict=True)
    )
    np.testing.assert_allclose(data.gaussian_mixture_log_density(points, kind), np.log(expected), rtol=1e-10)
    assert np.isfinite(data.gaussian_mixture_log_density(np.array([[1e3, -1e3]]), kind)).all()


@pytest.mark.parametrize("kind", DEVIATIONS)
def test_mixture_draws_have_the_moments_of_the_mixture(kind):
    n = 20_000
    draws = data.gaussian_mixture(n, kind, seed=3).astype(np.float64)
    assert draws.shape == (n, 2)
    # Components are ten units apart: the nearest mean names the component of all but a vanishing part.
    nearest = np.linalg.norm(draws[:, None] - np.array(MEANS), axis=-1).argmin(axis=1)
    # Failure rate below 1e-3: fifteen comparisons at 4.2 standard errors.
    for i, (weight, mean, deviation) in enumerate(zip(WEIGHTS, MEANS, DEVIATIONS[kind], strict=True)):
        mine = draws[nearest == i]
        assert abs(len(mine) / n - weight) < 4.2 * math.sqrt(weight * (1 - weight) / n)
        error = np.array(deviation) / math.sqrt(len(mine))
        assert (np.abs(mine.mean(axis=0) - mean) < 4.2 * error).all()
        assert (np.abs(mine.std(axis=0) - deviation) < 4.2 * error / math.sqrt(2)).all()


def test_mixture_errors_name_the_argument():
    with pytest.raises(ValueError, match="kind: expected one of anisotropic, isotropic; received 'round'"):
        data.gaussian_mixture(10, "round")
    with pytest.raises(ValueError, match="rows: expected an int of at least 1, received 0"):
        data.gaussian_mixture(0)
    with pytest.raises(ValueError, match=r"X: expected shape \(rows, 2\), received \(3,\)"):
        data.gaussian_mixture_log_density(np.zeros(3))
