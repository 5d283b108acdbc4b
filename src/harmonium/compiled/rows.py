"""What runs over batches of rows: half-steps and couplings of units with two values, and what is not 0.

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
def count_entries(first: int, last: int, x: Any, counts: Any) -> None:
    """How many entries of each row are not 0."""
    for row in range(first, last):
        values, count = x[row], np.int32(0)
        for i in range(len(values)):
            count += np.int32(values[i] != 0)
        counts[row] = count


@jit
def list_entries(first: int, last: int, x: Any, starts: Any, where: Any, by: Any) -> None:
    """Places and values of entries that are not 0, from the start of each row on."""
    found = np.empty(x.shape[1] + 1, np.int32)
    for row in range(first, last):
        values, count, start = x[row], 0, starts[row]
        if start == starts[row + 1]:
            continue
        for i in range(len(values)):
            found[count] = i
            count += values[i] != 0
        for i in range(count):
            where[start + i], by[start + i] = found[i], values[found[i]]


@jit
def count_entries_of_columns(first: int, last: int, x: Any, counts: Any) -> None:
    """``count_entries`` of columns; shares are columns."""
    counts[first:last] = 0
    for row in range(len(x)):
        values, own = x[row, first:last], counts[first:last]
        for c in range(len(own)):
            own[c] += np.int32(values[c] != 0)


@jit
def list_entries_of_columns(first: int, last: int, x: Any, starts: Any, where: Any, by: Any) -> None:
    """``list_entries`` of columns; shares are columns."""
    at, found = starts[first:last].copy(), np.empty(last - first + 1, np.int32)
    for row in range(len(x)):
        values, count = x[row, first:last], 0
        for c in range(len(at)):
            found[count] = c
            count += values[c] != 0
        for i in range(count):
            place = at[found[i]]
            where[place], by[place] = row, values[found[i]]
            at[found[i]] = place + 1
