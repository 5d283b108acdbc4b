"""Whole numbers as bytes, and matrices as tiles of bytes (``products.tiles``). Needs numba.

Of what is cut into shares, each function serves those from ``first`` to ``last``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonium.compiled.noise import jit

_SIZE = 64  # rows and columns of a tile
_FOURS = _SIZE // 4


@jit
def whole(first: int, last: int, x: Any, zero: int, out: Any, wrong: Any) -> None:
    """Fills rows of ``out`` with x + zero as uint8, until one where that is not exact: ``wrong``, (1,)."""
    shift = np.float32(zero)
    for row in range(first, last):
        values, bytes_, off = x[row], out[row], np.float32(0)
        for i in range(len(values)):
            bytes_[i] = np.uint8(np.int32(values[i] + shift))
            # Whole numbers are subtracted, as floats might be added in another order.
            number = np.float32(np.int32(bytes_[i]) - np.int32(zero))
            off += abs(number - values[i])  # the square of little would be 0
        if off != 0:
            wrong[0] = 1
            return


@jit
def turn(first: int, last: int, x: Any, out: Any) -> None:
    """Transposes bytes: x (rows, n) and out (8 n, rows / 8) in words of eight; shares are of eight rows."""
    n = x.shape[1]
    words = np.empty((8, n), np.uint64)
    for share in range(first, last):
        words[:] = x[8 * share : 8 * share + 8]
        # Three rounds of swaps: of bytes between neighbours, of pairs, of fours.
        for distance, mask in ((1, 0x00FF00FF00FF00FF), (2, 0x0000FFFF0000FFFF), (4, 0x00000000FFFFFFFF)):
            bits = np.uint64(8 * distance)
            for i in range(8):
                if not i & distance:
                    upper, lower = words[i], words[i + distance]
                    for c in range(n):
                        swapped = ((upper[c] >> bits) ^ lower[c]) & np.uint64(mask)
                        lower[c] ^= swapped
                        upper[c] ^= swapped << bits
        for c in range(n):
            for i in range(8):
                out[8 * c + i, share] = words[i, c]


@jit
def largest_of_columns(first: int, last: int, y: Any, out: Any) -> None:
    """The largest |y| of each column, NaN where it has one that is not finite; shares are of 64 columns."""
    for start in range(first * _SIZE, min(last * _SIZE, y.shape[1]), _SIZE):
        most = out[start : start + _SIZE]
        nothing = np.zeros(len(most), np.float32)
        most[:] = 0
        for row in range(y.shape[0]):
            values = y[row, start : start + _SIZE]
            for c in range(len(most)):
                most[c] = max(most[c], abs(values[c]))
                nothing[c] += np.float32(0) * values[c]
        most += nothing


@jit
def largest_of_rows(first: int, last: int, y: Any, out: Any) -> None:
    """The largest |y| of each row, NaN where it has one that is not finite."""
    most, nothing = np.empty(_SIZE, np.float32), np.empty(_SIZE, np.float32)
    for row in range(first, last):
        most[:] = 0
        nothing[:] = 0
        for start in range(0, y.shape[1], _SIZE):
            values = y[row, start : start + _SIZE]
            for c in range(len(values)):
                most[c] = max(most[c], abs(values[c]))
                nothing[c] += np.float32(0) * values[c]
        out[row] = most.max() + nothing.sum()


@jit
def split(first: int, last: int, y: Any, per_unit: Any, low: Any, middle: Any, high: Any) -> None:
    """Fills tiles with the digits of y · per_unit, rounded; shares are of 64 rows.

    Args:
        y: (k, n).
        per_unit: (n,), float64, so that nothing else is rounded.
        low, middle, high: words of the tiles of each digit (``products.tiles``); high may be None.
    """
    k, n = y.shape
    nothing = np.zeros(_SIZE, np.float32)
    for share in range(first, last):
        for tile in range(len(low)):
            start = tile * _SIZE
            scale = per_unit[start : min(start + _SIZE, n)]
            for four in range(_FOURS):
                row = share * _SIZE + four * 4
                if row >= k:
                    break
                y0, end = y[row, start : start + _SIZE], start + _SIZE
                y1 = y[row + 1, start:end] if row + 1 < k else nothing
                y2 = y[row + 2, start:end] if row + 2 < k else nothing
                y3 = y[row + 3, start:end] if row + 3 < k else nothing
                lows, middles = low[tile, share, four], middle[tile, share, four]
                highs = middles if high is None else high[tile, share, four]
                for c in range(len(scale)):
                    a, b = _number(y0[c], scale[c]), _number(y1[c], scale[c])
                    d, e = _number(y2[c], scale[c]), _number(y3[c], scale[c])
                    lows[c] = _word(a, b, d, e)
                    a, b, d, e = _rest(a), _rest(b), _rest(d), _rest(e)
                    middles[c] = _word(a, b, d, e)
                    if high is not None:
                        highs[c] = _word(_rest(a), _rest(b), _rest(d), _rest(e))


@jit
def split_transposed(first: int, last: int, y: Any, per_unit: Any, low: Any, middle: Any, high: Any) -> None:
    """As ``split``, of yᵀ: y is (n, k), and shares are of 64 of its rows."""
    n, k = y.shape
    numbers = np.zeros((3, _SIZE), np.int8)
    words = numbers.view(np.uint32)
    for share in range(first, last):
        for across in range(low.shape[1]):
            start = across * _SIZE
            numbers[:] = 0
            for i in range(min(_SIZE, n - share * _SIZE)):
                row = share * _SIZE + i
                values, scale = y[row, start : min(start + _SIZE, k)], per_unit[row]
                for c in range(len(values)):
                    number = _number(values[c], scale)
                    numbers[0, c] = np.int8(number)
                    number = _rest(number)
                    numbers[1, c] = np.int8(number)
                    numbers[2, c] = np.int8(_rest(number))
                for four in range(_FOURS):
                    low[share, across, four, i] = words[0, four]
                    middle[share, across, four, i] = words[1, four]
                    if high is not None:
                        high[share, across, four, i] = words[2, four]


@jit
def sum_columns(first: int, last: int, numbers: Any, sums: Any) -> None:
    """Fills ``sums`` with minus the sums of the columns of tiles of bytes; shares are of 64 columns."""
    total = np.empty(_SIZE, np.int32)
    for tile in range(first, last):
        total[:] = 0
        for across in range(numbers.shape[1]):
            for four in range(_FOURS):
                rows = numbers[tile, across, four]
                for c in range(_SIZE):
                    total[c] += np.int32(rows[c, 0]) + rows[c, 1] + rows[c, 2] + rows[c, 3]
        sums[tile * _SIZE : (tile + 1) * _SIZE] = -total


# numba counts in 64 bits unless it is told at each step, and half as many fit into a register.


@jit
def _number(value: Any, scale: Any) -> Any:
    return np.int32(np.rint(np.float64(value) * scale))


@jit
def _rest(number: Any) -> Any:
    """What is left above a lowest digit in [-128, 127]."""
    return np.int32(np.int32(number + np.int32(128)) >> np.int32(8))


@jit
def _word(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The lowest bytes of four numbers, a's the lowest."""
    byte = np.int32(255)
    return np.uint32(
        np.int32(a & byte)
        | np.int32(np.int32(b & byte) << np.int32(8))
        | np.int32(np.int32(c & byte) << np.int32(16))
        | np.int32(d << np.int32(24))
    )
