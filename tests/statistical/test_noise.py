"""Noise: its distribution, and that its bits depend on the generator alone."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from harmonium import _random
from harmonium.backends import half_steps

from .support import FAILURE_RATE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1000, 10_001, 700_001])
def test_uniform_noise_is_uniform(n, dtype):
    x = _random.uniform((n,), torch.Generator().manual_seed(0), dtype)
    assert x.dtype is dtype
    assert float(x.min()) >= 0 and float(x.max()) < 1
    assert stats.kstest(x.double().numpy(), "uniform").pvalue > FAILURE_RATE


@pytest.mark.parametrize("n", [1000, 700_001])
def test_normal_noise_is_normal(n):
    x = _random.normal((n,), torch.Generator().manual_seed(0))
    assert stats.kstest(x.double().numpy(), "norm").pvalue > FAILURE_RATE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neighbouring_chunks_and_calls_are_not_correlated(dtype):
    """Lagged products in and over chunks and between calls; the normal limit holds to far below the rate."""
    generator = torch.Generator().manual_seed(0)
    first = _random.uniform((1 << 20,), generator, dtype).double() - 0.5
    second = _random.uniform((1 << 20,), generator, dtype).double() - 0.5
    lags = (1, 2, *(half_steps._CHUNK * times // 2 for times in (1, 2, 3, 4, 64)))
    pairs = [(first, second), *((first[:-lag], first[lag:]) for lag in lags)]
    for a, b in pairs:
        z = float((a * b).sum() / (len(a) ** 0.5 / 12))
        assert abs(z) < stats.norm.isf(FAILURE_RATE / (2 * len(pairs)))


def test_bits_do_not_depend_on_the_number_of_threads():
    before = torch.get_num_threads()
    drawn = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        drawn.append(_random.uniform((1_000_003,), torch.Generator().manual_seed(7)))
    torch.set_num_threads(before)
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])


def test_the_generators_state_is_all_the_state_there_is():
    generator = torch.Generator().manual_seed(7)
    state = generator.get_state()
    first = _random.uniform((300_000,), generator)
    assert not torch.equal(first, _random.uniform((300_000,), generator))
    generator.set_state(state)
    assert torch.equal(first, _random.uniform((300_000,), generator))
