"""Products with states of two values, by their bits (Arlazarov, Dinic, Kronrod & Faradžev 1970).

Of six rows of a matrix y there are 64 sums, and six units of two values pick one of them. So all 64 are made,
once for all states, and a state's product with y is a sum of one for every six units, in float32: a sixth of
the additions, none of them after a multiplication.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from harmonium.compiled import serving


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


def product(x: Bits, y: Tensor, weights: Tensor | None = None, total: Tensor | None = None) -> Tensor:
    """x @ (weights · y), outside autograd.

    Args:
        x: (m, k).
        y: (k, n), float32 on a CPU.
        weights: of its rows, (k,); all 1 by default.
        total: what the product is added to, in place, with contiguous rows.

    Returns:
        (m, n): the total if there is one.
    """
    from harmonium.compiled.vectors import WIDTH

    y, n = y.contiguous(), y.shape[1]
    by = y.new_ones(len(y)) if weights is None else weights.to(y.dtype).contiguous()
    grown = y.new_empty(x.words.shape[1], n) if total is None else total
    serving.over_bits("sum_picked", -(-n // WIDTH), x.words, x.low, y, by, total is not None, grown)
    return grown


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
            if known is None or not torch.equal(product(known, y), x @ y):
                return False
    return True
