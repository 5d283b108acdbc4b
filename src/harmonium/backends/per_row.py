"""Loops over batches of rows: half-steps, couplings and searches of units with two values.

Batched products give the fields; what is left of a half-step (sigmoids, noise, the maximal coupling with its
rejection loop) costs as much again in eager tensor code, and a fraction of it in one pass over each row.
Every function serves the rows from ``first`` to ``last``: arrays are (rows, width), of units (width,), and
row r draws from stream r of the key, so that rows do not depend on the cut. Needs numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonium.backends.noise import fill, jit, room_for, seed, stream
from harmonium.backends.per_unit import (
    add_rows,
    copy,
    couple_row,
    decay,
    log_product,
    probabilities,
    row_of,
    sigmoid,
)


@jit
def uniform(first: int, last: int, width: int, key: Any, out: Any) -> None:
    """Uniform variates; a row is the next ``width`` numbers of ``out``, (numbers,); both are even."""
    state = stream()
    for row in range(first, last):
        seed(state, key, row)
        fill(out[row * width : (row + 1) * width], state)


@jit
def draw(first: int, last: int, fields: Any, bias: Any, gain: Any, low: Any, key: Any, x: Any) -> None:
    """Draws x given fields."""
    n = len(bias)
    state, noise = stream(), room_for(n)
    for row in range(first, last):
        seed(state, key, row)
        fill(noise, state)
        field, drawn = fields[row], x[row]
        for i in range(n):
            up = sigmoid(gain[i] * (field[i] + bias[i]))[0]
            drawn[i] = np.float32(1) if noise[i] < up else low[i]


@jit
def rise(
    first: int, last: int, fields: Any, betas: Any, biases: Any, gain: Any, low: Any, total: Any
) -> None:
    """Adds Σ ψ after less ψ before to a row's total: two β of the fields, and two biases.

    ψ = max(s, 0) + ln(1 + e^-|s|) + low · (field + bias). The factors 1 + e^-|s| before and after have each
    their own product: one of ratios, all near 1, rounds in one direction, and annealing adds up thousands.
    """
    old, step = np.float32(betas[0]), np.float32(betas[1] - betas[0])
    n, zero, one = len(gain), np.float32(0), np.float32(1)
    rises, factors, others = row_of(n), row_of(n), row_of(n)
    for row in range(first, last):
        field, sum_ = fields[row], 0.0
        for i in range(n):
            more = step * field[i] + (biases[1][i] - biases[0][i])
            s = gain[i] * (old * field[i] + biases[0][i])
            t = s + gain[i] * more
            upper = gain[i] * more if s > 0 and t > 0 else max(t, zero) - max(s, zero)
            rises[i] = low[i] * more + upper
            factors[i], others[i] = one + decay(t), one + decay(s)
        for i in range(n):
            sum_ += np.float64(rises[i])
        total[row] += sum_ + (log_product(factors, 32) - log_product(others, 32))


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
def climb(
    first: int, last: int, half: int, patience: int, parts: Any, ways: Any, J: Any, beta: Any, bias: Any,
    low: Any, x: Any, fields: Any, halves: Any,
) -> None:  # fmt: skip
    """Sets parts of one colour to their mode, then those of the other, until a row finds nothing to change.

    A part is (first unit, end, colour, first way, end), a way (first unit, end) of what it leads to, and J
    has a matrix for each way, of β's type. ``half`` half-steps were made; ``halves`` says how many in the
    end. From ``patience`` on a row ends also where it comes back to a state.
    """
    room = x.shape[1] + 1
    changed, by, landmark = np.empty(room, np.int64), np.empty(room, x.dtype), np.empty(x.shape[1], x.dtype)
    for row in range(first, last):
        state, field, step, moved = x[row], fields[row], half, True
        landmark[:] = np.nan
        while moved:
            moved = False
            for p in range(len(parts)):
                start, end, colour, way, last_way = parts[p]
                if colour == step % 2:
                    part_state = state[start:end]
                    count = _flip(field[start:end], bias[start:end], low[start:end], part_state, changed, by)
                    moved |= count > 0
                    for w in range(way, last_way):
                        to, to_end = ways[w]
                        add_rows(field[to:to_end], J[w], changed, by, count, beta)
            if moved and step >= patience and step % 2:
                moved = (state != landmark).any()
                if (step - 1) & (step - 2) == 0:
                    copy(state, landmark)
            step += 1
        halves[row] = step


@jit
def _flip(field: Any, bias: Any, low: Any, state: Any, changed: Any, by: Any) -> int:
    """Sets units to their mode: how many change, which, and by how much."""
    count = 0
    for i in range(len(state)):
        changed[count] = i
        count += (field[i] + bias[i] >= 0) != (state[i] > 0)
    for c in range(count):
        i = changed[c]
        other = low[i] + np.float32(1) - state[i]
        by[c] = other - state[i]
        state[i] = other
    return count
