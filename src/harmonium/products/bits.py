"""Products with states of two values, by their bits (Arlazarov, Dinic, Kronrod & Faradžev 1970).

Of six rows of a matrix y there are 64 sums, and six units of two values pick one of them. So all 64 are made,
once for all states, and a state's product with y is a sum of one for every six units: a sixth of the
additions, none of them after a multiplication.

y is written in fixed point, as whole numbers of a unit for every column that lets 32 bits hold the sum of
all. So sums are exact, in any order; what is rounded is y, once, to 2⁻³¹ of the sum of its column's
magnitudes, and the result. float32 keeps 24 bits of every entry, and loses some again whenever it adds.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from harmonium.compiled import serving

ROWS: Final = 1 << 20
"""Rows of a matrix that its units allow for."""


@final
class Bits(NamedTuple):
    """A matrix (m, k) of units that are ``low`` or 1.

    Attributes:
        words: which of them are 1 (``compiled.bits``), (k / 24, m), rounded up.
        low: 0 or -1.
    """

    words: Any
    low: float


def bits(x: Tensor, transposed: bool = False) -> Bits | None:
    """x, or xᵀ, if all its entries, in float32 on a CPU, are 0 or 1, or all are -1 or 1, else None."""
    from harmonium.compiled.bits import PER_WORD
    from harmonium.compiled.vectors import WIDTH

    x = x.detach().contiguous()
    m, k = x.shape[::-1] if transposed else x.shape
    words = np.empty((-(-k // PER_WORD), m), np.uint64)
    for low in (0.0, -1.0):
        wrong = np.zeros(1, np.uint8)
        if transposed:
            serving.over_bits("bits_of_columns", -(-m // WIDTH), x, low, words, wrong)
        else:
            serving.over_bits("bits_of_rows", m, x, low, words, wrong)
        if not wrong[0]:
            return Bits(words, low)
    return None


@final
class Fixed:
    """A matrix in fixed point, for products with states.

    Args:
        y: (k, n), float32 on a CPU, with at most ``ROWS`` rows.
        weights: what its rows are multiplied by, (k,); all 1 by default.
    """

    def __init__(self, y: Tensor, weights: Tensor | None = None) -> None:
        from harmonium.compiled.bits import PER_WORD
        from harmonium.compiled.vectors import WIDTH

        (k, n), y = y.shape, y.detach().contiguous()
        by = y.new_ones(k) if weights is None else weights.to(y.dtype).contiguous()
        self._shares, self._columns = -(-n // WIDTH), n
        self._numbers = np.empty((self._shares, -(-k // PER_WORD) * PER_WORD, WIDTH), np.int32)
        self._units = np.empty(self._shares * WIDTH, np.float32)
        serving.over_bits("fix", self._shares, y, by, self._numbers, self._units)

    def times(self, x: Bits, total: Tensor | None = None) -> Tensor:
        """x @ (weights · y), (m, n), with an x (m, k): added to ``total``, in place, if there is one."""
        shape, grow = (x.words.shape[1], self._columns), total is not None
        made = torch.empty(shape, dtype=torch.float32, device="cpu") if total is None else total
        given = (x.words, int(x.low), self._numbers, self._units, grow, made)
        serving.over_bits("sum_picked", self._shares, *given)
        return made


@cache
def work() -> bool:
    """Whether such products are there and right."""
    if not serving.COMPILED:
        return False
    state = torch.arange(3 * 70, device="cpu").remainder(7).view(3, 70).lt(3).float()
    y = torch.arange(70 * 40, device="cpu").view(70, 40).float()
    for x in (state, 2 * state - 1):
        for across in (False, True):
            known = bits(x.t() if across else x, across)
            if known is None or not torch.allclose(Fixed(y).times(known), x @ y, rtol=1e-5, atol=0):
                return False
    return True
