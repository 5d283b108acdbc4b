"""Sums of the rows that two-valued states pick, from tables of all sums of six rows. Needs numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonium.compiled import LOT, PER_WORD, STEP, TABLES, UNITS, WIDTH
from harmonium.compiled.noise import jit
from harmonium.compiled.simd import (
    HALF,
    TABLE,
    add_entries,
    add_half,
    add_magnitudes,
    differing,
    fill_table,
    put,
    put_whole,
    room,
)

assert STEP <= 24


@jit
def bits_of_rows(first: int, last: int, x: Any, low: float, words: Any, wrong: Any) -> None:
    """Fills words, (k / PER_WORD, m), from x (m, k); ``wrong``, (1,), if one is not ``low`` or 1."""
    k, lower, one = x.shape[1], np.float32(low), np.float32(1)
    rest = np.empty(WIDTH, np.float32)
    for row in range(first, last):
        values, off = x[row], np.uint64(0)
        for w in range(len(words)):
            word = np.uint64(0)
            for part in range(PER_WORD // WIDTH):
                start = PER_WORD * w + WIDTH * part
                if start + WIDTH <= k:
                    up = differing(values, start, lower)
                    off |= up & differing(values, start, one)
                elif start >= k:
                    break
                else:
                    rest[:] = lower
                    for i in range(k - start):
                        rest[i] = values[start + i]
                    up = differing(rest, 0, lower)
                    off |= up & differing(rest, 0, one)
                word |= up << np.uint64(WIDTH * part)
            words[w, row] = word
        if off != 0:
            wrong[0] = 1
            return


@jit
def bits_of_columns(first: int, last: int, x: Any, low: float, words: Any, wrong: Any) -> None:
    """As ``bits_of_rows``, of xᵀ: x is (k, m), and shares are words, of as many of its rows."""
    k, lower, one = x.shape[0], np.float32(low), np.float32(1)
    bits, off = np.empty(x.shape[1], np.float32), np.zeros(x.shape[1], np.float32)
    for w in range(first, last):
        own, end = words[w], min(PER_WORD * (w + 1), k)
        own[:] = 0
        for start in range(PER_WORD * w, end, STEP):  # so many bits a real number has
            bits[:] = 0
            bit = one / (one - lower)
            for row in range(start, min(start + STEP, end)):
                values = x[row]
                for c in range(len(bits)):
                    above = values[c] - lower
                    bits[c] += above * bit
                    off[c] += abs(above * (values[c] - one))
                bit *= np.float32(2)
            up = np.uint64(start - PER_WORD * w)
            for c in range(len(bits)):
                own[c] |= np.uint64(bits[c]) << up
        if off.sum() != 0:
            wrong[0] = 1
            return


@jit
def fix(
    first: int, last: int, y: Any, across: bool, begin: int, weights: Any, numbers: Any, units: Any
) -> None:
    """Writes weights · y, (k, n), as whole numbers of a unit for each column, whose sum 32 bits hold.

    The k rows, at most ``LOT``, are those of y from ``begin`` on; if ``across``, yᵀ is given. Shares are of
    ``WIDTH`` columns; numbers is (n / WIDTH, k, WIDTH), n rounded up to whole shares and k to a multiple of
    ``STEP``, and units (n,), up to whole shares; what stands beyond n is anything. The unit of a column that
    is not finite is NaN.
    """
    k, n = len(weights), y.shape[0] if across else y.shape[1]
    block, per_unit = np.zeros((k, WIDTH), np.float32), np.empty(WIDTH, np.float32)
    rows, given = numbers.reshape(numbers.size), y.reshape(y.size)
    for share in range(first, last):
        column, sums = share * WIDTH, units[share * WIDTH : (share + 1) * WIDTH]
        values, start, step = given, begin * n + column, n
        if across or column + WIDTH > n:
            values, start, step = block.reshape(block.size), 0, WIDTH
            for c in range(min(WIDTH, n - column)):
                # By an index that might be negative the loop would take 1.6 times as long.
                own = y[column + c, begin : begin + k] if across else y[begin : begin + k, column + c]
                for i in range(k):
                    block[i, c] = own[i]
        sums[:] = 0
        for i in range(k):
            add_magnitudes(sums, 0, values, start + i * step, weights[i])
        # Less than 2^31 by more than LOT roundings of a sum, and of as many entries.
        sums /= np.float32(2.0**31 * (1 - 2.0**-11))
        for c in range(WIDTH):
            if sums[c] < 2.0**-126:
                sums[c] = 2.0**-126
            elif not sums[c] < np.inf:
                sums[c] = np.nan
            per_unit[c] = np.float32(1) / sums[c]
        numbers[share, k:] = 0
        for i in range(k):
            to = (share * numbers.shape[1] + i) * WIDTH
            put_whole(values, start + i * step, weights[i], per_unit, 0, rows, to)


@jit
def multiply(
    first: int, last: int, words: Any, low: int, y: Any, across: bool, begin: int, weights: Any, known: bool,
    numbers: Any, units: Any, grow: bool, out: Any,
) -> None:  # fmt: skip
    """Fills, or grows, out (m, n) by x @ (weights · y), for states x (m, k) of units that are ``low`` or 1.

    Shares are of ``WIDTH`` columns. From ``y`` to ``units`` the arguments are those of ``fix``; if ``known``
    it has written them before.
    """
    if not known:
        fix(first, last, y, across, begin, weights, numbers, units)
    (m, n), k = out.shape, numbers.shape[1]
    lots = -(-m // LOT)
    lot = -(-m // lots)
    tables, sums, nothing = room(TABLES * TABLE), room(lot * WIDTH), np.zeros(WIDTH, np.float32)
    rows, totals = numbers.reshape(numbers.size), out.reshape(m * n)
    for share in range(first, last):
        column = share * WIDTH
        for start in range(0, m, lot):
            sums[:] = 0
            count = min(lot, m - start)
            for w in range(len(words)):
                several, unit = w * PER_WORD + STEP < k, share * k + w * PER_WORD
                for table in range(TABLES if several else HALF):
                    fill_table(rows, (unit + table * UNITS) * WIDTH, np.int32(low), tables, table * TABLE)
                own = words[w, start : start + count]
                if several:
                    for row in range(count):
                        add_entries(sums, row * WIDTH, tables, own[row])
                else:
                    for row in range(count):
                        add_half(sums, row * WIDTH, tables, own[row])
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
