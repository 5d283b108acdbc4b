"""Batches of rows of units with two values: half-steps and couplings given fields, sums of differences.

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

_CACHE = 200_000  # couplings that stay in the second-level cache
_LOT = 128  # rows that pass a tile of couplings together


@jit
def draw(
    first: int, last: int, fields: Any, bias: Any, gain: Any, low: Any, key: Any, mirrored_from: int, x: Any
) -> None:
    """Draws x given fields; if not 0, row mirrored_from + i mirrors the noise of row i."""
    state, noise = stream(), room_for(len(bias))
    for row in range(first, last):
        mirrored = 0 < mirrored_from <= row
        seed(state, key, row - mirrored_from if mirrored else row)
        fill(noise, state)
        if mirrored:
            mirror(noise)
        for i in range(len(bias)):
            up, _ = sigmoid(gain[i] * (fields[row, i] + bias[i]))
            x[row, i] = np.float32(1) if noise[i] < up else low[i]


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
def add_products_of_differences(first: int, last: int, x: Any, y: Any, J: Any, total: Any) -> None:
    """Adds (y - x) @ J to the rows of ``total``, by the rows of J where x and y differ."""
    n_in, n_out = J.shape
    where, by = np.empty((_LOT, n_in + 4), np.int32), np.empty((_LOT, n_in + 4), np.float32)
    counts = np.empty(_LOT, np.int64)
    # Some columns of J at a time, so that they stay in the cache while a lot of rows passes.
    tile = min(max(_CACHE // n_in // 16 * 16, 64), n_out)
    for lot in range(first, last, _LOT):
        rows = min(_LOT, last - lot)
        for row in range(rows):
            count = 0
            for i in range(n_in):
                where[row, count] = i
                by[row, count] = y[lot + row, i] - x[lot + row, i]
                count += by[row, count] != 0
            counts[row] = count
            by[row, count : count + 4] = 0
            where[row, count : count + 4] = 0
        for start in range(0, n_out, tile):
            stop = min(start + tile, n_out)
            for row in range(rows):
                sums = total[lot + row, start:stop]
                entry = 0
                while entry < counts[row]:  # four at a time: fewer passes over the sums
                    f0, f1, f2, f3 = (
                        by[row, entry],
                        by[row, entry + 1],
                        by[row, entry + 2],
                        by[row, entry + 3],
                    )
                    J0, J1 = J[where[row, entry], start:stop], J[where[row, entry + 1], start:stop]
                    J2, J3 = J[where[row, entry + 2], start:stop], J[where[row, entry + 3], start:stop]
                    for c in range(stop - start):
                        sums[c] += (f0 * J0[c] + f1 * J1[c]) + (f2 * J2[c] + f3 * J3[c])
                    entry += 4
