"""Products with whole numbers, by whole digits.

A matrix y is written in fixed point, y = u (256² d₂ + 256 d₁ + d₀) with digits in [-128, 127] and a unit u
for every column. Then x @ y is a sum of products of int8 matrices, exact and several times as fast as
products of real numbers; what is rounded is y, once, to 2⁻²³ of the largest entry of the column. float32
keeps 24 bits of every entry, and loses some again whenever it adds.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple, cast, final

import numpy as np
import torch
from torch import Tensor

from harmonium.compiled import serving
from harmonium.compiled.serving import COMPILED
from harmonium.products.tiles import SIZE, Tiles, serves

EXACT: Final = 3
"""Digits that keep as much as float32 does: off by at most 6.1e-8 of the largest entry beside."""
MEANS: Final = 2
"""Digits for statistics: off by at most 1.6e-5 of the largest entry beside."""
_BELOW = (1 << 17) - 1  # bits of a float32 that a unit leaves 0: its products with sums of digits are exact
_LOT = 1024  # rows that are summed at once
_TERMS = 1 << 16  # of a sum of bytes times digits, up to 255 · 128 each, that 32 bits hold


class Whole(NamedTuple):
    """A matrix of whole numbers in [0, 255] or [-128, 127], as bytes.

    Attributes:
        entries: (m, k), uint8, contiguous: the numbers and ``zero``; in the last rows may be anything.
        zero: the byte that stands for 0: 0 or 128.
        rows: how many of the rows count.
    """

    entries: Tensor
    zero: int
    rows: int


@final
class Digits:
    """A matrix in digits, for products with whole numbers.

    Args:
        y: (k, n), float32 on a CPU, of a shape that ``serve``.
        digits: how many, 2 or 3.
        transposed: whether yᵀ is to be multiplied: then each row of y has a unit, not each column.
        zeros: how many rows of zeros follow those of y (yᵀ).
    """

    def __init__(self, y: Tensor, digits: int, transposed: bool = False, zeros: int = 0) -> None:
        y = y.detach().contiguous()
        k, n = y.shape[::-1] if transposed else y.shape
        tiles = [Tiles(k + zeros, n) for _ in range(digits)]
        words = [each.words for each in tiles] + [None] * (EXACT - digits)
        columns, rows = words[0].shape[:2]
        unit = y.new_empty(n)
        if transposed:
            serving.over_tiles("largest_of_rows", n, y, unit)
        else:
            serving.over_tiles("largest_of_columns", columns, y, unit)
        unit /= 127 * 256 ** (digits - 1)  # not 127 in every digit, which rounding could exceed
        unit.view(torch.int32).add_(_BELOW).bitwise_and_(~_BELOW)
        per_unit = torch.where(unit > 0, 1 / unit.double(), 0.0)
        if transposed:
            serving.over_tiles("split_transposed", columns, y, per_unit, *words)
        else:
            serving.over_tiles("split", rows, y, per_unit, *words)
        self._digits = [(each, unit * 256**digit) for digit, each in enumerate(tiles)]
        self._summed = False

    def times(self, x: Whole) -> Tensor:
        """x @ y (x @ yᵀ), (m, n) in float32, with an x (m, k)."""
        if x.zero and not self._summed:
            self._summed = True
            for tiles, _ in self._digits:
                tiles.sum_columns()
        total = None
        for tiles, unit in self._digits:
            total = tiles.add_product(x.entries, x.zero, unit, total)
        return cast("Tensor", total)[: x.rows]


def rounded_up(rows: int) -> int:
    """A number of rows of which there are sixteen from each power of two to the next."""
    step = 1 << max(rows.bit_length() - 5, 0)
    return -(-rows // step) * step


def whole_numbers(x: Tensor) -> Whole | None:
    """x, (m, k) in float32, in bytes where these and their products with digits are exact, else None."""
    if x.shape[1] > _TERMS:
        return None
    # A shape that was not met before costs as much as a few hundred rows: room for one of few shapes.
    out = np.empty((rounded_up(len(x)), x.shape[1]), np.uint8)
    for zero in (0, 128):
        wrong = np.zeros(1, np.uint8)
        serving.over_tiles("whole", len(x), x, zero, out, wrong)
        if not wrong[0]:
            return Whole(torch.from_numpy(out), zero, len(x))
    return None


def sum_over_rows(x: Whole, y: Tensor) -> Tensor:
    """Σ_rows x ⊗ y, (k, n) in float32, with x (rows, k) and y (rows, n) in ``MEANS`` digits."""
    total = None
    for start in range(0, len(y), _LOT):
        others = y[start : start + _LOT]
        entries = x.entries[start : start + len(others)]
        rows = -(-len(others) // SIZE) * SIZE  # so that there are few shapes
        across = torch.full((entries.shape[1], rows), x.zero, dtype=torch.uint8, device="cpu")
        if entries.shape[1] % 8 == len(others) % 8 == 0:
            words = [bytes_.view(torch.int64).numpy().view(np.uint64) for bytes_ in (entries, across)]
            serving.over_tiles("turn", len(others) // 8, *words)
        else:
            across[:, : len(others)] = entries.t()
        if serves(rows, y.shape[1]):
            term = Digits(others, MEANS, zeros=rows - len(others)).times(Whole(across, x.zero, len(across)))
        else:
            term = (across[:, : len(others)].float() - x.zero) @ others
        total = term if total is None else total.add_(term)
    return cast("Tensor", total)


def int8_product(x: Tensor, y: Tensor) -> Tensor:
    """The exact product of whole numbers, int8 (m, k) and (k, n), in float32.

    Sums of up to 2^24 are exact.
    """
    return torch._int_mm(x, y).float()


@cache
def work() -> bool:
    """Whether products of bytes are there and right, and compiled code is."""
    if not (COMPILED and serves(256, 70)):
        return False
    x = torch.tensor([[127.0, 127, 1, 0], [-128, -128, 127, 127]], device="cpu").float().repeat(9, 64)
    y = torch.tensor([[127.0, 1, -127], [127, 0, 127]], device="cpu").float().repeat(128, 24)[:, :70]
    whole, truth = whole_numbers(x), x @ y
    try:
        # Older processors add up in 16 bits, which these do not fit.
        return whole is not None and torch.allclose(
            Digits(y, MEANS).times(whole), truth, rtol=0, atol=1e-4 * float(truth.abs().max())
        )
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False
