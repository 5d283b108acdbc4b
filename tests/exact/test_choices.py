"""``_host.where`` takes entries as ``torch.where`` does, to the bit."""

from __future__ import annotations

import pytest
import torch

from harmonium import _host

ODD = [0.0, -0.0, 1.0, -1.0, 1e-45, float("inf"), -float("inf"), float("nan")]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("condition", [(8, 8), (8, 1), (1, 8), (3, 8, 8)], ids=str)
def test_every_entry_is_one_of_the_two_to_the_bit(dtype: torch.dtype, condition: tuple[int, ...]) -> None:
    x = torch.tensor(ODD, dtype=dtype).repeat(8, 1)
    y, pick = x.t(), torch.rand(condition, generator=torch.Generator().manual_seed(1)) < 0.5
    assert 0 < int(pick.sum()) < pick.numel()
    words = torch.int16 if dtype is torch.float16 else _host._WORDS[dtype]
    for one, other in ((x, y), (y, x), (x[0], y), (x, y[:1])):
        made, expected = _host.where(pick, one, other), torch.where(pick, one, other)
        assert made.dtype is dtype
        assert torch.equal(made.contiguous().view(words), expected.contiguous().view(words))


def test_two_types_and_derivatives_are_those_of_torch() -> None:
    pick, x, y = torch.tensor([True, False]), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    assert _host.where(pick, x, y.double()).dtype is torch.float64
    assert torch.equal(_host.where(pick, x.double(), y), torch.tensor([1.0, 4.0], dtype=torch.float64))
    x.requires_grad_()
    _host.where(pick, x, y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 0.0]
    with torch.no_grad():
        assert _host.where(pick, x, y).tolist() == [1.0, 4.0]
