"""Truncated units fitted to any data in their interval, constant ones too, in any number of rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.machine import fit_

pytestmark = pytest.mark.slow

KINDS = {"gaussian": hm.TruncatedGaussian, "sparse": hm.TruncatedGaussBernoulli}
ENDS = [(0, 1), (-1, 1), (0.25, 2.5), (-3, -0.5), (-1e3, 1e3), (0, 255), (1e-3, 2e-3), (0, 1e-6), (1e3, 1001)]
ROWS = [1, 2, 5, 100, 1000]
REPEATS = [1, 1, 1000, 10**6, 10**8]
# Of a statistic's standard deviation, and of its range: what rounding θ to the type costs.
PRECISION = {torch.float64: (1e-5, 1e-13), torch.float32: (0.1, 3e-5)}
kinds = pytest.mark.parametrize("kind", KINDS)
dtypes = pytest.mark.parametrize("dtype", PRECISION, ids=str)


def columns(rng: np.random.Generator, n: int, low: float, high: float) -> dict[str, np.ndarray]:
    """One of every shape, (n,)."""
    width, place = high - low, rng.uniform(low, high)
    coin = rng.uniform(size=n) < rng.uniform()
    zero = min(max(0.0, low), high)
    drawn = {
        "uniform": rng.uniform(low, high, n),
        "beta": low + width * rng.beta(*np.exp(rng.uniform(-2, 3, 2)), n),
        "normal": rng.normal(place, width * np.exp(rng.uniform(-6, 1)), n),
        "tiny spread": place + 1e-7 * width * rng.normal(size=n),
        "exponential": low + width * rng.exponential(np.exp(rng.uniform(-6, 0)), n),
        "sparse": np.where(rng.uniform(size=n) < 0.9, zero, rng.uniform(low, high, n)),
        "low": np.full(n, low),
        "high": np.full(n, high),
        "zero": np.full(n, zero),
        "constant": np.full(n, place),
        "both ends": np.where(coin, low, high),
        "two values": np.where(coin, place, rng.uniform(low, high)),
    }
    return {shape: np.clip(x, low, high) for shape, x in drawn.items()}


def moments(layer: hm.layers.Layer) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """E[t] and the variances of t, without neighbours, in float64, by automatic differentiation."""
    theta = tuple(p.detach().double().requires_grad_() for p in layer.natural())
    expected = layer.expected_statistics(torch.zeros_like(theta[0]), theta=theta)
    variances = [
        torch.autograd.grad(t.sum(), p, retain_graph=True)[0] for t, p in zip(expected, theta, strict=True)
    ]
    return [t.detach() for t in expected], variances


@pytest.mark.mostly_nightly(10)
@kinds
@dtypes
@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_any_data_are_matched(kind: str, dtype: torch.dtype, ends: tuple[float, float]) -> None:
    """36 data sets of one column for each interval, kind and type: 1224 in all."""
    low, high = map(float, ends)
    if dtype is torch.float32 and low == 1e3:
        pytest.skip("an interval of a thousandth of its distance from 0")
    rng = np.random.default_rng([ENDS.index(ends), len(kind)])
    part, of_range = PRECISION[dtype]
    for _ in range(3):
        n, repeats = int(rng.choice(ROWS)), int(rng.choice(REPEATS))
        shapes = columns(rng, n, low, high)
        x = np.column_stack(list(shapes.values()))
        layer = KINDS[kind](len(shapes), low, high).to(dtype)
        seen = [t.mean(0) for t in layer.statistics(torch.from_numpy(x))]
        fit_(layer, tuple(seen), torch.from_numpy(x.var(0)), n * repeats)
        noise = tuple(p.detach().double() for p in layer.reference())
        nothing = torch.zeros(len(shapes), dtype=torch.float64)
        uniform = layer.expected_statistics(nothing, theta=noise)
        wanted = [(t * n * repeats + u) / (n * repeats + 1) for t, u in zip(seen, uniform, strict=True)]
        size = max(abs(low), abs(high))
        for i, (t, variance, value) in enumerate(zip(*moments(layer), wanted, strict=True)):
            scale = (size, size**2, 1.0)[i] * size / (high - low)
            excess = (t - value).abs() - part * variance.sqrt() - of_range * scale
            assert excess.max() <= 0, (list(shapes)[int(excess.argmax())], n, repeats, i)


@kinds
@dtypes
def test_constants_given_directly(kind: str, dtype: torch.dtype) -> None:
    """Without the row of noise that ``machine.fit_`` adds."""
    constants = torch.tensor([-0.5, 0.0, 0.3, 1.5], dtype=torch.float64)
    layer = KINDS[kind](4, -0.5, 1.5).to(dtype)
    layer.fit_(layer.statistics(constants), torch.zeros(4))
    assert all(bool(torch.isfinite(p).all()) for p in layer.parameters())
    np.testing.assert_allclose(moments(layer)[0][0], constants, rtol=0, atol=1000 * torch.finfo(dtype).eps)


@kinds
def test_statistics_that_are_no_numbers_are_refused(kind: str) -> None:
    layer = KINDS[kind](3, 0.0, 1.0)
    x = torch.tensor([0.5, float("nan"), 0.5], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"expected: expected finite statistics, .* for unit 1"):
        layer.fit_(layer.statistics(x), torch.ones(3))


@pytest.mark.nightly
def test_annealed_importance_sampling_of_truncated_hidden_units() -> None:
    """The base is fitted to a pilot run's states, whatever they are."""
    for seed in range(8):
        machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.TruncatedGaussian(1, 0.0, 1.0)], seed=seed)
        estimate = hm.likelihood.ais(machine, chains=2, temperatures=2, reverse=False, seed=seed)
        assert np.isfinite(estimate.value)
