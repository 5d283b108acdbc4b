"""Sums of the rows that two-valued states pick, from tables of all sums of six rows. Needs numba.

A word has four times 16 bits, each the place in a table of the sum that six units pick: where it starts, in
entries of ``WIDTH`` columns.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from harmonium.compiled.noise import jit
from harmonium.compiled.vectors import TABLES, UNITS, WIDTH, add_entries, differing, fill_table, put, room

PER_WORD: Final = UNITS * TABLES
_TABLE = WIDTH << UNITS
LOT: Final = 42 * PER_WORD
"""Rows of y, 1008, that have a unit together, and of x, whose sums the second level of cache holds."""


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


@jit
def fix(first: int, last: int, y: Any, weights: Any, numbers: Any, units: Any) -> None:
    """Writes weights · y, (k, n), as whole numbers of a unit for each column, whose sum 32 bits hold.

    k is at most ``LOT``. Shares are of ``WIDTH`` columns; numbers is (n / WIDTH, k, WIDTH), rounded up, and
    units (n,), up to whole shares. The unit of a column that is not finite is NaN.
    """
    k, begin, end = len(y), first * WIDTH, min(last * WIDTH, y.shape[1])
    sums, per_unit = units[begin : last * WIDTH], np.zeros((last - first) * WIDTH, np.float32)
    sums[:] = 0
    for i in range(k):
        values, by = y[i, begin:end], weights[i]
        for c in range(len(values)):
            sums[c] += abs(values[c] * by)
    sums /= np.float32(2.0**31 * (1 - 2.0**-11))  # more than LOT roundings of a sum, and of as many entries
    for c in range(end - begin):
        if sums[c] < 2.0**-126:
            sums[c] = 2.0**-126
        elif not sums[c] < np.inf:
            sums[c] = np.nan
        per_unit[c] = np.float32(1) / sums[c]
    for share in range(first, last):
        column = share * WIDTH
        scale, width = per_unit[column - begin : column - begin + WIDTH], min(WIDTH, y.shape[1] - column)
        for i in range(k):
            row, values, by = numbers[share, i], y[i, column : column + width], weights[i]
            for c in range(len(values)):
                row[c] = np.int32(np.rint(values[c] * by * scale[c]))
            for c in range(width, WIDTH):
                row[c] = 0
        numbers[share, k:] = 0


@jit
def sum_picked(
    first: int, last: int, words: Any, low: int, numbers: Any, units: Any, grow: bool, out: Any
) -> None:  # fmt: skip
    """Fills, or grows, out (m, n) by x @ y, for states x (m, k) of units that are ``low`` or 1.

    Shares are of ``WIDTH`` columns; y is as ``fix`` wrote it, with zeros up to whole words of rows.
    """
    (m, n), k = out.shape, numbers.shape[1]
    lots = -(-m // LOT)
    lot = -(-m // lots)
    tables, sums, nothing = room(TABLES * _TABLE), room(lot * WIDTH), np.zeros(WIDTH, np.float32)
    rows, totals = numbers.reshape(numbers.size), out.reshape(m * n)
    for share in range(first, last):
        column = share * WIDTH
        for start in range(0, m, lot):
            sums[:] = 0
            count = min(lot, m - start)
            for w in range(len(words)):
                for table in range(TABLES):
                    row = share * k + w * PER_WORD + table * UNITS
                    fill_table(rows, row * WIDTH, np.int32(low), tables, table * _TABLE)
                own = words[w, start : start + count]
                for row in range(count):
                    add_entries(sums, row * WIDTH, tables, _TABLE, own[row])
            for row in range(count):
                place = (start + row) * n + column
                if column + WIDTH > n:
                    for c in range(n - column):
                        before = totals[place + c] if grow else np.float32(0)
                        totals[place + c] = before + np.float32(sums[row * WIDTH + c]) * units[column + c]
                elif grow:
                    put(sums, row * WIDTH, units, column, totals, place, totals, place)
                else:
                    put(sums, row * WIDTH, units, column, nothing, 0, totals, place)
