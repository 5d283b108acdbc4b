"""Products with states of two values, by their bits (Arlazarov, Dinic, Kronrod & Faradžev 1970).

Of six rows of a matrix y there are 64 sums, and six units of two values pick one of them. So all 64 are made,
once for all states, and a state's product with y is a sum of one for every six units: a sixth of the
additions, none of them after a multiplication.

A thousand rows of y at a time are written in fixed point, as whole numbers of a unit for every column that
lets 32 bits hold the sum of all. So their sums are exact, in any order; what is rounded is y, to the
digits of float32 and to 2⁻³¹ of the sum of its column's magnitudes, and the result. float32 loses some again
whenever it adds.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from harmonium.compiled import serving

_SEEN = 8  # entries that tell most other states


@final
class Bits(NamedTuple):
    """A matrix (m, k) of units that are ``low`` or 1.

    Attributes:
        words: which of them are 1 (``compiled.bits``), (k / 48, m), rounded up.
        low: 0 or -1.
        shape: (m, k).
    """

    words: Any
    low: float
    shape: tuple[int, int]


def bits(x: Tensor, transposed: bool = False) -> Bits | None:
    """x, or xᵀ, if all its entries, in float32 on a CPU, are 0 or 1, or all are -1 or 1, else None."""
    from harmonium.compiled.bits import PER_WORD
    from harmonium.compiled.vectors import WIDTH

    if not {0.0, 1.0, -1.0}.issuperset(x.detach()[:1, :_SEEN].flatten().tolist()):
        return None
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
            return Bits(words, low, (m, k))
    return None


@final
class Fixed:
    """A matrix in fixed point, for products with states.

    Args:
        y: (k, n), float32 on a CPU.
        weights: what its rows are multiplied by, (k,); all 1 by default.
    """

    def __init__(self, y: Tensor, weights: Tensor | None = None) -> None:
        from harmonium.compiled.bits import LOT

        y = y.detach()
        by = y.new_ones(len(y)) if weights is None else weights.detach().to(y.dtype).contiguous()
        if y.dtype is not torch.float32 or by.shape != y.shape[:1]:
            raise ValueError(
                f"y: expected (k, n) in float32 with weights (k,), received {tuple(y.shape)} in {y.dtype} "
                f"with {tuple(by.shape)}"
            )
        self._shape = y.shape
        self._lots = [_fixed(*each) for each in zip(torch.split(y, LOT), torch.split(by, LOT), strict=True)]

    def times(self, x: Bits, total: Tensor | None = None) -> Tensor:
        """x @ (weights · y), (m, n), with an x (m, k): added to ``total``, in place, if there is one."""
        k, n = self._shape
        m, units = x.shape
        made = torch.empty(m, n, dtype=torch.float32, device="cpu") if total is None else total
        if units != k or made.shape != (m, n) or made.dtype is not torch.float32:
            raise ValueError(
                f"x: expected (m, {k}) for a total (m, {n}) in float32, received {x.shape} for "
                f"{tuple(made.shape)} in {made.dtype}"
            )
        from harmonium.compiled.bits import PER_WORD

        first = 0
        for i, (numbers, per_unit) in enumerate(self._lots if m else ()):
            last, grow = first - (-numbers.shape[1] // PER_WORD), i > 0 or total is not None
            given = (x.words[first:last], int(x.low), numbers, per_unit, grow, made)
            serving.over_bits("sum_picked", len(numbers), *given)
            first = last
        if total is not None and not total.is_inference():
            torch.autograd.graph.increment_version(total)
        return made


def _fixed(y: Tensor, weights: Tensor) -> tuple[Any, Any]:
    """A lot of rows times their weights, in whole numbers, and their units (``compiled.bits.fix``)."""
    from harmonium.compiled.bits import STEP
    from harmonium.compiled.vectors import WIDTH

    shares = -(-y.shape[1] // WIDTH)
    numbers = np.empty((shares, -(-len(y) // STEP) * STEP, WIDTH), np.int32)
    units = np.empty(shares * WIDTH, np.float32)
    across = y.t().is_contiguous()
    given = y.t() if across else y.contiguous()
    serving.over_bits("fix", shares, given, across, weights, numbers, units)
    return numbers, units


@cache
def work() -> bool:
    """Whether such products are there and right."""
    if not serving.COMPILED:
        return False
    from numba.core.errors import NumbaError

    state = torch.arange(3 * 70, device="cpu").remainder(7).view(3, 70).lt(3).float()
    y = torch.arange(70 * 40, device="cpu").view(70, 40).float()
    try:
        for x in (state, 2 * state - 1):
            for across in (False, True):
                known = bits(x.t() if across else x, across)
                if known is None or not torch.allclose(Fixed(y).times(known), x @ y, rtol=1e-5, atol=0):
                    return False
    except (NumbaError, NotImplementedError, RuntimeError, TypeError, AttributeError):
        return False  # instructions that this version or this processor does not have
    return True
