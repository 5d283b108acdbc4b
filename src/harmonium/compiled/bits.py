"""Sums of the rows that two-valued states pick, from tables of all sums of six rows. Needs numba.

A word has four times 16 bits, each the place in a table of the sum that six units pick: where it starts, in
entries of ``WIDTH`` columns.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from harmonium.compiled.noise import jit, jit_in_order
from harmonium.compiled.vectors import (
    TABLES,
    UNITS,
    WIDTH,
    add_entries,
    differing,
    fetch,
    fill_table,
    room,
    scale,
)

PER_WORD: Final = UNITS * TABLES
_TABLE = WIDTH << UNITS
_LOT = 1024  # rows whose sums the second level of cache holds beside all else


@jit
def bits_of_rows(first: int, last: int, x: Any, low: float, words: Any, wrong: Any) -> None:
    """Fills words, (k / PER_WORD, m), from x (m, k); ``wrong``, (1,), if one is not ``low`` or 1."""
    k, lower, one = x.shape[1], np.float32(low), np.float32(1)
    rest = np.empty(WIDTH, np.float32)
    for row in range(first, last):
        values, off = x[row], np.uint32(0)
        for w in range(len(words)):
            start = PER_WORD * w
            if start + WIDTH <= k:
                up = differing(values, start, lower)
                off |= up & differing(values, start, one)
            else:
                rest[:] = lower
                for i in range(k - start):
                    rest[i] = values[start + i]
                up = differing(rest, 0, lower)
                off |= up & differing(rest, 0, one)
            words[w, row] = _places(np.uint64(up))
        if off != 0:
            wrong[0] = 1
            return


@jit
def bits_of_columns(first: int, last: int, x: Any, low: float, words: Any, wrong: Any) -> None:
    """As ``bits_of_rows``, of xᵀ: x is (k, m), and shares are of ``WIDTH`` of its columns."""
    k, lower, one = x.shape[0], np.float32(low), np.float32(1)
    begin, end = first * WIDTH, min(last * WIDTH, x.shape[1])
    bits, off = np.empty(end - begin, np.float32), np.zeros(end - begin, np.float32)
    for w in range(len(words)):
        bits[:] = 0
        bit = one / (one - lower)
        for row in range(PER_WORD * w, min(PER_WORD * (w + 1), k)):
            values = x[row, begin:end]
            for c in range(len(bits)):
                above = values[c] - lower
                bits[c] += above * bit
                off[c] += abs(above * (values[c] - one))
            bit *= np.float32(2)
        if off.sum() != 0:
            wrong[0] = 1
            return
        for c in range(len(bits)):
            words[w, begin + c] = _places(np.uint64(bits[c]))


@jit
def _places(bits: Any) -> Any:
    """Six bits to the places of each of four tables."""
    word = np.uint64(0)
    for table in range(TABLES):
        place = (bits >> np.uint64(UNITS * table)) & np.uint64((1 << UNITS) - 1)
        word |= (place * np.uint64(WIDTH)) << np.uint64(16 * table)
    return word


@jit_in_order
def sum_picked(
    first: int, last: int, words: Any, low: float, y: Any, weights: Any, grow: bool, out: Any
) -> None:  # fmt: skip
    """Fills, or grows, out (m, n) by x @ (weights · y), for states x (m, k) of units that are ``low`` or 1.

    y is (k, n) and weights (k,); shares are of ``WIDTH`` columns.
    """
    (k, n), m = y.shape, len(out)
    lots = -(-m // _LOT)
    lot = -(-m // lots)
    tables, rows, sums = room(TABLES * _TABLE), room(PER_WORD * WIDTH), room(lot * WIDTH)
    rows[:] = 0
    ones, by, below = np.ones(lot, np.float32), weights * np.float32(1 - low), np.float32(low / (1 - low))
    numbers, totals = y.reshape(k * n), out.reshape(m * n)
    for share in range(first, last):
        column, width = share * WIDTH, min(WIDTH, n - share * WIDTH)
        for start in range(0, m, lot):
            each, place = ones[: min(lot, m - start)], start * n + column
            if grow:
                _move(each, totals, place, n, sums, 0, WIDTH, width)
            else:
                sums[:] = 0
            for w in range(len(words)):
                unit, after = w * PER_WORD, (w + 1) * PER_WORD
                _move(by[unit:after], numbers, unit * n + column, n, rows, 0, WIDTH, width)
                if after > k:
                    rows[(k - unit) * WIDTH :] = 0
                for i in range(after, min(after + PER_WORD, k)):
                    for c in (0, width // 2, width - 1):
                        fetch(numbers, i * n + column + c)
                for table in range(TABLES):
                    fill_table(rows, table * UNITS * WIDTH, below, tables, table * _TABLE)
                own = words[w, start : start + lot]
                for row in range(len(own)):
                    add_entries(sums, row * WIDTH, tables, _TABLE, own[row])
            _move(each, sums, 0, WIDTH, totals, place, n, width)


@jit_in_order
def _move(
    weights: Any, x: Any, start: int, stride: int, out: Any, to: int, out_stride: int, width: int
) -> None:  # fmt: skip
    """out = weights · x, in rows of ``width`` numbers, each ``stride`` after the other."""
    for row in range(len(weights)):
        i, o = start + row * stride, to + row * out_stride
        if width == WIDTH:
            scale(x, i, weights[row], out, o)
        else:
            for c in range(width):
                out[o + c] = weights[row] * x[i + c]
