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

from typing import Any, Final, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from harmonium.backends import calls

WIDTH: Final = 16
"""Entries of a vector, of 32 bits each."""
UNITS: Final = 6
"""Rows that a table has all sums of, 2^6."""
TABLES: Final = 8
"""Tables that a sum picks from at a time: they fit into the first level of cache."""
PER_WORD: Final = UNITS * TABLES
"""Units of a word, one bit each, the first the lowest."""
STEP: Final = PER_WORD // 2
"""Rows that half of the tables have, of which y has a multiple; no more than a float32 has bits."""
LOT: Final = 21 * PER_WORD
"""Rows of y, 1008, that have a unit together, and of x, whose sums the second level of cache holds."""

_SEEN = 8  # entries that tell most other states


@final
class Bits(NamedTuple):
    """A matrix (m, k) of units that are ``low`` or 1.

    Attributes:
        words: which of them are 1 (``bit_matmul``), (k / 48, m), rounded up.
        low: 0 or -1.
        shape: (m, k).
    """

    words: Any
    low: float
    shape: tuple[int, int]


def bits(x: Tensor, transposed: bool = False) -> Bits | None:
    """x, or xᵀ, if all its entries, in float32 on a CPU, are 0 or 1, or all are -1 or 1, else None."""
    values = x.numpy(force=True)
    if not {0.0, 1.0, -1.0}.issuperset(values[:1, :_SEEN].ravel().tolist()):
        return None
    values = np.ascontiguousarray(values)
    m, k = values.shape[::-1] if transposed else values.shape
    words = np.empty((-(-k // PER_WORD), m), np.uint64)
    way, shares = ("columns", len(words)) if transposed else ("rows", m)
    for low in (0.0, -1.0):
        wrong = np.zeros(1, np.uint8)
        calls.over(f"bit_matmul.bits_of_{way}", shares, values, low, words, wrong)
        if not wrong[0]:
            return Bits(words, low, (m, k))
    return None


@final
class Fixed:
    """A matrix in fixed point, for products with states.

    Args:
        y: (k, n), float32 on a CPU; read at the first product.
        weights: what its rows are multiplied by, a number or (k,).
    """

    def __init__(self, y: Tensor, weights: float | Tensor = 1.0) -> None:
        k, n = self._shape = y.shape
        if y.dtype is not torch.float32 or (isinstance(weights, Tensor) and weights.shape != (k,)):
            raise ValueError(
                f"y: expected (k, n) in float32 with weights (k,), received {(k, n)} in {y.dtype} "
                f"with {tuple(weights.shape) if isinstance(weights, Tensor) else weights}"
            )
        by, values = np.empty(k, np.float32), y.numpy(force=True)
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
            by[:] = weights.float().numpy(force=True) if isinstance(weights, Tensor) else weights
        across = values.flags.f_contiguous
        values = values.T if across else np.ascontiguousarray(values)
        self._lots = [(values, across, i, by[i : i + LOT]) for i in range(0, max(k, 1), LOT)]
        self._written: list[tuple[Any, Any]] | None = None

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
        if m == 0:
            return made
        shares, first, rooms = -(-n // WIDTH), 0, self._written
        known, rooms = rooms is not None, rooms or [_room(shares, len(by)) for *_, by in self._lots]
        for i, (lot, room) in enumerate(zip(self._lots, rooms, strict=True)):
            last, grow = first - (-room[0].shape[1] // PER_WORD), i > 0 or total is not None
            arguments = x.words[first:last], int(x.low), *lot, known, *room, grow, made
            calls.over("bit_matmul.multiply", shares, *arguments)
            first = last
        self._written = rooms  # threads that come at once have written each their own
        if total is not None and not total.is_inference():
            torch.autograd.graph.increment_version(total)
        return made


def _room(shares: int, rows: int) -> tuple[Any, Any]:
    """Room for the whole numbers of a lot, and their units (``bit_matmul.fix``)."""
    numbers = np.empty((shares, -(-rows // STEP) * STEP, WIDTH), np.int32)
    return numbers, np.empty(shares * WIDTH, np.float32)
