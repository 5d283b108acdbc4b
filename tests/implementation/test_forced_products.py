"""What a factor of products has to do where bits multiply whatever they can."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad

from harmonium import backends
from harmonium.backends import PreparedMatrix

pytest.importorskip("numba")


@pytest.fixture(autouse=True)
def always(bits_always) -> None:
    pass


def states(low: float, rows: int, width: int, generator: torch.Generator) -> torch.Tensor:
    return torch.where(torch.rand(rows, width, generator=generator) < 0.3, 1.0, low)


def test_a_factor_follows_its_matrix_and_takes_anything() -> None:
    generator = torch.Generator().manual_seed(4)
    y = torch.randn(50, 30, generator=generator)
    factor, x = PreparedMatrix(y), states(0.0, 8, 50, generator)
    for _ in range(3):
        torch.testing.assert_close(factor.times(x), x @ y)
        torch.testing.assert_close(factor.times(x[:, :30], transposed=True), x[:, :30] @ y.t())
        y.mul_(2)
    real = torch.randn(8, 50, generator=generator)
    assert torch.equal(factor.times(real), real @ y)
    y[0, 0] = float("nan")
    assert bool(factor.times(x)[:, 0].isnan().all())


@pytest.mark.parametrize("low", [0.0, -1.0])
def test_bits_depend_neither_on_rows_beside_nor_on_threads(low: float) -> None:
    generator, before = torch.Generator().manual_seed(5), torch.get_num_threads()
    y = torch.randn(300, 400, generator=generator)
    x = states(low, 1400, 300, generator)
    try:
        torch.set_num_threads(2)
        whole = PreparedMatrix(y).times(x)
        torch.set_num_threads(1)
        for rows in (slice(100, 150), slice(1000, 1150)):
            assert torch.equal(PreparedMatrix(y).times(x[rows]), whole[rows])
    finally:
        torch.set_num_threads(before)


def test_tangents_are_kept() -> None:
    """Where products are rounded too."""
    generator = torch.Generator().manual_seed(11)
    y, x = torch.randn(50, 40, generator=generator), states(0.0, 60, 50, generator)
    with forward_ad.dual_level():
        factor = PreparedMatrix(forward_ad.make_dual(y, 2 * y))
        torch.testing.assert_close(forward_ad.unpack_dual(factor.times(x)).tangent, 2 * x @ y)
        with backends.precision("bf16"):
            torch.testing.assert_close(forward_ad.unpack_dual(factor.times(x)).tangent, 2 * x @ y)
