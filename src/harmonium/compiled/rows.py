"""What runs over batches of rows: half-steps and couplings of units with two values, and sums of few rows.

Batched products give the fields; what is left of a half-step (sigmoids, noise, the maximal coupling with its
rejection loop) costs as much again in eager tensor code, and a fraction of it in one pass over each row.
Every function serves the rows from ``first`` to ``last``: arrays are (rows, width), of units (width,), and
row r draws from stream r of the key, so that rows do not depend on the cut. Needs numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonium.compiled.noise import fill, jit, mirror, room_for, seed, stream
from harmonium.compiled.units import couple_row, probabilities, row_of, sigmoid

_LOT = 64  # rows whose nonzero entries are listed before any of them is summed
_AT_ONCE = 8  # rows of y that one pass over the sums takes in


@jit
def uniform(first: int, last: int, width: int, key: Any, out: Any) -> None:
    """Uniform variates; a row is the next ``width`` numbers of ``out``, (numbers,); both are even."""
    state = stream()
    for row in range(first, last):
        seed(state, key, row)
        fill(out[row * width : (row + 1) * width], state)


@jit
def draw(
    first: int, last: int, fields: Any, bias: Any, gain: Any, low: Any, key: Any, mirrored_from: int, x: Any
) -> None:
    """Draws x given fields; if not 0, row mirrored_from + i mirrors the noise of row i."""
    n = len(bias)
    state, noise, s = stream(), room_for(n), row_of(n)
    for row in range(first, last):
        mirrored = 0 < mirrored_from <= row
        seed(state, key, row - mirrored_from if mirrored else row)
        fill(noise, state)
        if mirrored:
            mirror(noise)
        field, drawn = fields[row], x[row]
        for i in range(n):
            s[i] = gain[i] * (field[i] + bias[i])
        for i in range(n):
            drawn[i] = np.float32(1) if noise[i] < sigmoid(s[i])[0] else low[i]


@jit
def couple(
    first: int, last: int, fields_x: Any, fields_y: Any, bias: Any, gain: Any, low: Any, key: Any, x: Any,
    y: Any, tries: Any,
) -> None:  # fmt: skip
    """The maximal coupling with common noise in the rejection loop: fills x, y and tries."""
    n = len(bias)
    state, noise, step, factors = stream(), room_for(n + 4), row_of(n), np.empty(n)
    s_x, s_y, up, rare = row_of(n), row_of(n), row_of(n), row_of(n)
    for row in range(first, last):
        seed(state, key, row)
        for i in range(n):
            s_x[i] = gain[i] * (fields_x[row, i] + bias[i])
            s_y[i] = gain[i] * (fields_y[row, i] + bias[i])
        probabilities(s_x, up, rare)
        tries[row] = couple_row(s_x, s_y, up, rare, low, x[row], y[row], step, factors, noise, state)


@jit
def round_means(
    first: int, last: int, fields: Any, bias: Any, gain: Any, low: Any, key: Any, unit: float, out: Any
) -> None:
    """Means of units as whole numbers of 1/unit, up or down at random so that no mean is off: int8."""
    state, noise, most = stream(), room_for(len(bias)), np.float32(unit)
    for row in range(first, last):
        seed(state, key, row)
        fill(noise, state)
        for i in range(len(bias)):
            up, _ = sigmoid(gain[i] * (fields[row, i] + bias[i]))
            value = most * low[i] + most * (np.float32(1) - low[i]) * up
            out[row, i] = np.int8(min(np.floor(value + noise[i]), most))


@jit
def count_differences(first: int, last: int, x: Any, y: Any, counts: Any) -> None:
    """In how many entries x and y differ."""
    for row in range(first, last):
        count = 0
        for i in range(x.shape[1]):
            count += x[row, i] != y[row, i]
        counts[row] = count


@jit
def add_rows(first: int, last: int, x: Any, y: Any, total: Any) -> None:
    """Adds x @ y to the rows of ``total``, by the rows of y where x is not 0."""
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
