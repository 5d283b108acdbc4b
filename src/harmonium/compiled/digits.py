"""Matrices in whole digits, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonium._compiled_noise import jit


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
