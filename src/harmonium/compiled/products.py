"""Products of states: matrices in whole digits and back, and sums of the rows that a state picks."""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonium.compiled.noise import jit

_LOT = 64  # rows whose places are listed before any of them is summed
_AT_ONCE = 8  # rows of y that one pass over the sums takes in


@jit
def whole(x: Any, out: Any) -> bool:
    """Fills ``out`` with x as int8 as far as that is exact; whether all of it is."""
    for row in range(x.shape[0]):
        a, o, wrong = x[row], out[row], 0
        for i in range(len(a)):
            o[i] = np.int8(np.int32(a[i]))
            wrong += np.float32(o[i]) != a[i]
        if wrong:
            return False
    return True


@jit
def split(y: Any, per_unit: Any, by_row: bool, digits: Any) -> None:
    """Fills ``digits`` (2 or 3, k, n) with y · per_unit, rounded, the lowest digit first.

    ``per_unit`` has an entry for each column of y, or each row; float64, so that nothing else is rounded.
    """
    more, scale = len(digits) == 3, per_unit
    if by_row:
        scale = np.empty(y.shape[1])
    for row in range(y.shape[0]):
        a, low, middle, high = y[row], digits[0, row], digits[1, row], digits[len(digits) - 1, row]
        if by_row:
            scale[:] = per_unit[row]
        for i in range(len(a)):
            q = np.int32(np.rint(np.float64(a[i]) * scale[i]))
            d = ((q + np.int32(128)) & np.int32(255)) - np.int32(128)
            low[i] = np.int8(d)
            q = (q - d) >> np.int32(8)
            d = ((q + np.int32(128)) & np.int32(255)) - np.int32(128) if more else q
            middle[i] = np.int8(d)
            high[i] = np.int8((q - d) >> np.int32(8)) if more else np.int8(q)


@jit
def join(out: Any, units: Any, by_row: bool, low: Any, middle: Any, high: Any = None) -> None:
    """Fills ``out`` with unit · (low + 256 middle + 256² high), a unit for each column of it, or each row."""
    scale = units
    if by_row:
        scale = np.empty(out.shape[1])
    for row in range(out.shape[0]):
        o, a, b = out[row], low[row], middle[row]
        if by_row:
            scale[:] = units[row]
        if high is None:
            for i in range(len(o)):
                o[i] = np.float32((np.float64(b[i]) * 256.0 + np.float64(a[i])) * scale[i])
        else:
            c = high[row]
            for i in range(len(o)):
                rest = np.float64(b[i]) * 256.0 + np.float64(a[i])
                o[i] = np.float32((np.float64(c[i]) * 65536.0 + rest) * scale[i])


@jit
def count_nonzero(x: Any) -> int:
    """Entries of x that are not 0."""
    total = 0
    for row in range(x.shape[0]):
        a, count = x[row], 0
        for i in range(len(a)):
            count += a[i] != 0
        total += count
    return total


@jit
def add_rows(first: int, last: int, x: Any, y: Any, total: Any) -> None:
    """Adds x @ y to the rows of ``total`` from first to last, by the rows of y where x is not 0."""
    n = x.shape[1]
    where, by = np.empty((_LOT, n + _AT_ONCE), np.int32), np.empty((_LOT, n + _AT_ONCE), np.float32)
    counts = np.empty(_LOT, np.int64)
    for lot in range(first, last, _LOT):
        rows = min(_LOT, last - lot)
        for row in range(rows):
            count = 0
            for i in range(n):
                where[row, count] = i
                by[row, count] = x[lot + row, i]
                count += by[row, count] != 0
            counts[row] = count
            by[row, count : count + _AT_ONCE] = 0
            where[row, count : count + _AT_ONCE] = 0
        for row in range(rows):
            sums, w, f = total[lot + row], where[row], by[row]
            for e in range(0, counts[row], _AT_ONCE):
                y0, y1, y2, y3 = y[w[e]], y[w[e + 1]], y[w[e + 2]], y[w[e + 3]]
                y4, y5, y6, y7 = y[w[e + 4]], y[w[e + 5]], y[w[e + 6]], y[w[e + 7]]
                for c in range(len(sums)):
                    sums[c] += ((f[e] * y0[c] + f[e + 1] * y1[c]) + (f[e + 2] * y2[c] + f[e + 3] * y3[c])) + (
                        (f[e + 4] * y4[c] + f[e + 5] * y5[c]) + (f[e + 6] * y6[c] + f[e + 7] * y7[c])
                    )
