"""Products with whole numbers, by whole digits.

A matrix y is written in fixed point, y = u (256² d₂ + 256 d₁ + d₀) with digits in [-128, 127] and a unit u
for every column. Then x @ y is a sum of products of int8 matrices, exact and several times as fast as
products of real numbers; what is rounded is y, once, to 2⁻²³ of the largest entry of the column. float32
keeps 24 bits of every entry, and loses some again whenever it adds.
"""

from __future__ import annotations

from functools import cache
from typing import Final, final

import torch
from torch import Tensor

from harmonium.compiled import serving
from harmonium.compiled.serving import COMPILED

EXACT: Final = 3
"""Digits that keep as much as float32 does: off by at most 6.1e-8 of the largest entry beside."""
MEANS: Final = 2
"""Digits for statistics: off by at most 1.6e-5 of the largest entry beside."""
_TERMS = 1 << 17  # of a sum of states times digits, up to 127 · 128 each, that 32 bits hold with 1,000 more


@final
class Digits:
    """A matrix in digits, for products with whole numbers.

    Args:
        y: (k, n), float32 on a CPU.
        digits: how many, 2 or 3.
        transposed: whether yᵀ is to be multiplied: then each row of y has a unit, not each column.
    """

    def __init__(self, y: Tensor, digits: int, transposed: bool = False) -> None:
        top = 127 * 256 ** (digits - 1)  # not 127 in every digit, which rounding could exceed
        largest = y.detach().abs().amax(1 if transposed else 0).double()
        self._transposed = transposed
        self._units = largest / top
        self._digits = torch.empty((digits, *y.shape), dtype=torch.int8)
        per_unit = torch.where(largest > 0, top / largest, 0.0)
        serving.over_rows("split", len(y), y, per_unit, transposed, self._digits)

    def times(self, x: Tensor) -> Tensor:
        """x @ y (x @ yᵀ), in float32, with an x (m, k) of int8 in [-127, 127]."""
        return self._joined([torch._int_mm(x, d.t() if self._transposed else d) for d in self._digits])

    def under(self, x: Tensor) -> Tensor:
        """yᵀ @ x, in float32, with an x (k, m) like that and a y that is not transposed."""
        return self._joined([torch._int_mm(d.t(), x) for d in self._digits], rows=True)

    def _joined(self, parts: list[Tensor], rows: bool = False) -> Tensor:
        out = torch.empty(parts[0].shape)
        serving.over_rows("join", len(out), out, self._units, rows, *parts)
        return out


def whole_numbers(x: Tensor) -> Tensor | None:
    """x, (m, k), as int8 where that and its products with digits from either side are exact, else None."""
    if max(x.shape) > _TERMS:
        return None
    if not torch.equal(x[:1].to(torch.int8).to(x.dtype), x[:1]):  # real numbers show at once
        return None
    out, wrong = torch.empty(x.shape, dtype=torch.int8), torch.empty(len(x), dtype=torch.int64)
    serving.over_rows("whole", len(x), x, out, wrong)
    return None if bool(wrong.any()) else out


def int8_product(x: Tensor, y: Tensor) -> Tensor:
    """The exact product of whole numbers, int8 (m, k) and (k, n), in float32.

    Sums of up to 2^24 are exact.
    """
    return torch._int_mm(x, y).float()


@cache
def work() -> bool:
    """Whether int8 products are there and right, and compiled code is."""
    if not COMPILED:
        return False
    x = torch.tensor([[127, -127, 1, 0], [-127, -127, 127, 127]], dtype=torch.int8).repeat(9, 20)
    y = torch.tensor([[127, 1, -128], [-128, 0, 127]], dtype=torch.int8).repeat(40, 6)
    try:
        return bool(torch.equal(int8_product(x, y), x.float() @ y.float()))
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
