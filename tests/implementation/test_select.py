"""``_device.where`` takes entries as ``torch.where`` does, to the bit, and their derivatives."""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium import _device

ODD = [0.0, -0.0, 1.0, -1.0, 1e-45, float("inf"), -float("inf"), float("nan")]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("condition", [(8, 8), (8, 1), (1, 8), (3, 8, 8)], ids=str)
def test_every_entry_is_one_of_the_two_to_the_bit(dtype: torch.dtype, condition: tuple[int, ...]) -> None:
    x = torch.tensor(ODD, dtype=dtype).repeat(8, 1)
    y, pick = x.t(), torch.rand(condition, generator=torch.Generator().manual_seed(1)) < 0.5
    assert 0 < int(pick.sum()) < pick.numel()
    words = torch.int16 if dtype is torch.float16 else _device._WORDS[dtype]
    for one, other in ((x, y), (y, x), (x[0], y), (x, y[:1])):
        made, expected = _device.where(pick, one, other), torch.where(pick, one, other)
        assert made.dtype is dtype
        assert torch.equal(made.contiguous().view(words), expected.contiguous().view(words))


def test_two_types_and_derivatives_are_those_of_torch() -> None:
    pick, x, y = torch.tensor([True, False]), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    assert _device.where(pick, x, y.double()).dtype is torch.float64
    assert torch.equal(_device.where(pick, x.double(), y), torch.tensor([1.0, 4.0], dtype=torch.float64))
    x.requires_grad_()
    _device.where(pick, x, y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 0.0]
    with torch.no_grad():
        assert _device.where(pick, x, y).tolist() == [1.0, 4.0]


def test_tangents_pass() -> None:
    pick, x, y = torch.tensor([True, False]), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    _, tangent = torch.func.jvp(lambda x: _device.where(pick, x.square(), y), (x,), (torch.ones(2),))
    assert tangent.tolist() == [2.0, 0.0]
    with torch.no_grad():
        _, tangent = torch.func.jvp(lambda x: _device.where(pick, x.square(), y), (x,), (torch.ones(2),))
    assert tangent.tolist() == [2.0, 0.0]


def test_moments_have_their_tangents() -> None:
    for layer in (hm.ReLU(2).double(), hm.DoubleReLU(2).double()):
        layer.requires_grad_(False)
        B, one = torch.tensor([[-4.0, 0.7], [1.0, -0.2]]).double(), torch.ones(2, 2).double()
        _, slope = torch.func.jvp(layer.log_partition, (B,), (one,))
        torch.testing.assert_close(slope, layer.moments(B).mean)
        _, slope = torch.func.jvp(lambda B, layer=layer: layer.moments(B).mean, (B,), (one,))
        torch.testing.assert_close(slope, layer.moments(B).variance)
