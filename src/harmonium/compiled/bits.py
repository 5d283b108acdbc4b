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
    first: int, last: int, words: Any, low: float, y: Any, stride: int, weights: Any, grow: bool, out: Any
) -> None:  # fmt: skip
    """Fills, or grows, out (m, n) by x @ (weights · y), for states x (m, k) of units that are ``low`` or 1.

    Shares are of ``WIDTH`` columns. y is (k, n), its entries in one row of numbers: those of a row one after
    the other and rows ``stride`` apart, or, if that is 0, those of a column, k apart. weights is (k,).
    """
    m, n = out.shape
    lots = -(-m // _LOT)
    lot = -(-m // lots)
    tables, rows, sums = room(TABLES * _TABLE), room(UNITS * WIDTH), room(lot * WIDTH)
    flat, step = out.reshape(m * n), np.float32(1 - low)
    below = np.float32(low) / step
    for share in range(first, last):
        column, width = share * WIDTH, min(WIDTH, n - share * WIDTH)
        for start in range(0, m, lot):
            count = min(lot, m - start)
            place = start * n + column
            if grow:
                _move(flat, place, n, sums, 0, WIDTH, count, width)
            else:
                sums[:] = 0
            for w in range(len(words)):
                _fetch_rows(y, stride, (w + 1) * PER_WORD, len(weights), column, width)
                for table in range(TABLES):
                    _read_rows(y, stride, weights, step, w * PER_WORD + table * UNITS, column, width, rows)
                    fill_table(rows, 0, below, tables, table * _TABLE)
                own = words[w, start : start + count]
                for row in range(count):
                    add_entries(sums, row * WIDTH, tables, _TABLE, own[row])
            _move(sums, 0, WIDTH, flat, place, n, count, width)


@jit_in_order
def _fetch_rows(y: Any, stride: int, unit: int, k: int, column: int, width: int) -> None:
    if stride:
        for i in range(unit, min(unit + PER_WORD, k)):
            fetch(y, i * stride + column)
            fetch(y, i * stride + column + width - 1)
            fetch(y, i * stride + column + width // 2)
    elif unit < k:
        for c in range(column, column + width):
            fetch(y, c * k + unit)
            fetch(y, c * k + min(unit + PER_WORD, k) - 1)


@jit_in_order
def _read_rows(
    y: Any, stride: int, weights: Any, step: Any, unit: int, column: int, width: int, rows: Any
) -> None:  # fmt: skip
    """Columns of UNITS rows of y times their weights, zeros beyond the last one."""
    k = len(weights)
    for i in range(UNITS):
        if unit + i >= k:
            rows[i * WIDTH : (i + 1) * WIDTH] = 0
        elif stride and width == WIDTH:
            scale(y, (unit + i) * stride + column, step * weights[unit + i], rows, i * WIDTH)
        else:
            by = step * weights[unit + i]
            for c in range(width):
                place = (unit + i) * stride + column + c if stride else (column + c) * k + unit + i
                rows[i * WIDTH + c] = by * y[place]


@jit_in_order
def _move(
    x: Any, start: int, stride: int, out: Any, to: int, out_stride: int, count: int, width: int
) -> None:
    """Copies rows of x, each ``stride`` after the other."""
    for row in range(count):
        i, o = start + row * stride, to + row * out_stride
        if width == WIDTH:
            scale(x, i, np.float32(1), out, o)
        else:
            for c in range(width):
                out[o + c] = x[i + c]
