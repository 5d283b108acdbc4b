"""One row of units with two values, in float32: probabilities, draws and their maximal coupling. Needs numba.

Units are described by the log-odds s = gain · (field + bias) of their upper value 1 against ``low``, and by
ψ(s) = ln(1 + e^s). Arrays are (width,), and noise (width + 4,) or a little longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from harmonium.backends.noise import fill, inlined, jit, uniform

_ONE = np.float32(1)


@jit
def row_of(width: int) -> Any:
    """An empty row."""
    return np.empty(width, np.float32)


@jit
def copy(x: Any, y: Any) -> None:
    """y = x; for short rows a slice takes longer."""
    for i in range(len(x)):
        y[i] = x[i]


@jit
def log_odds(x: Any, J: Any, bias: Any, gain: Any, s: Any) -> None:
    """s given the field x J."""
    n, j = len(x), 0
    copy(bias, s)
    while j + 4 <= n:  # four at a time: fewer passes over the sums
        x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
        for i in range(len(s)):
            s[i] += (x0 * J[j, i] + x1 * J[j + 1, i]) + (x2 * J[j + 2, i] + x3 * J[j + 3, i])
        j += 4
    while j < n:
        for i in range(len(s)):
            s[i] += x[j] * J[j, i]
        j += 1
    for i in range(len(s)):
        s[i] *= gain[i]


@jit
def add_rows(total: Any, J: Any, which: Any, by: Any, count: int, beta: Any) -> None:
    """Adds the first ``count`` of some rows of J, times β and what each is multiplied by."""
    c = 0
    while c + 4 <= count:  # four at a time, as above
        r0, r1, r2, r3 = J[which[c]], J[which[c + 1]], J[which[c + 2]], J[which[c + 3]]
        b0, b1, b2, b3 = beta * by[c], beta * by[c + 1], beta * by[c + 2], beta * by[c + 3]
        for k in range(len(total)):
            total[k] += (b0 * r0[k] + b1 * r1[k]) + (b2 * r2[k] + b3 * r3[k])
        c += 4
    while c < count:
        r0, b0 = J[which[c]], beta * by[c]
        for k in range(len(total)):
            total[k] += b0 * r0[k]
        c += 1


@jit
def _exp(x: Any) -> Any:
    """e^x = scale · (1 + tail) for |x| ≤ 87; loops over it run in vector registers, unlike the library's."""
    whole = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    r = x - whole * np.float32(0.693359375) + whole * np.float32(2.12194440e-4)
    p = np.float32(1.0 / 5040)
    p = p * r + np.float32(1.0 / 720)
    p = p * r + np.float32(1.0 / 120)
    p = p * r + np.float32(1.0 / 24)
    p = p * r + np.float32(1.0 / 6)
    p = p * r + np.float32(0.5)
    p = p * r + _ONE
    return np.int32((np.int32(127) + np.int32(whole)) << np.int32(23)).view(np.float32), p * r


@jit
def decay(s: Any) -> Any:
    """e^-|s|."""
    scale, tail = _exp(-min(abs(s), np.float32(87)))
    return scale * (_ONE + tail)


@jit
def exponential_within(x: Any) -> Any:
    """e^x, of the nearest x within ±87."""
    scale, tail = _exp(max(min(x, np.float32(87)), np.float32(-87)))
    return scale * (_ONE + tail)


@jit
def sigmoid(s: Any) -> Any:
    """P(upper) and P(the rarer value) of a unit."""
    e = decay(s)
    large = _ONE / (_ONE + e)
    small = e * large
    return (large if s >= 0 else small), small


def logistic(s: Any) -> Any:
    """Returns P(upper) of a unit in the type of its log-odds, float32 or float64."""


@overload(logistic, strict=False)
def _logistic_of(s: Any) -> Any:
    if s == types.float32:
        return lambda s: sigmoid(s)[0]
    return lambda s: 1.0 / (1.0 + np.exp(-s))


def exponential(x: Any) -> Any:
    """Returns e^x for x ≤ 0 in the type of x, float32 or float64."""


@overload(exponential, strict=False)
def _exponential_of(x: Any) -> Any:
    if x == types.float32:
        return lambda x: decay(x)
    return lambda x: np.exp(x)


@jit
def probabilities(s: Any, up: Any, rare: Any) -> None:
    """``sigmoid`` of every unit."""
    for i in range(len(s)):
        up[i], rare[i] = sigmoid(s[i])


@jit
def draw(up: Any, low: Any, noise: Any, x: Any) -> None:
    """A state by P(upper)."""
    for i in range(len(x)):
        x[i] = _ONE if noise[i] < up[i] else low[i]


@inlined
def draw_one_hot(s: Any, q: int, noise: Any, x: Any) -> None:
    """A state of every unit by its q logits, side by side, which are room then; noise is one variate a unit.

    As the variates are at most 1 - 2^-24, a share of the total is less than it, and a state whose probability
    is rounded away is never drawn.
    """
    for o in range(0, len(s), q):
        top = s[o]
        for a in range(o + 1, o + q):
            top = max(top, s[a])
        for a in range(o, o + q):
            s[a] -= top
    for k in range(len(s)):  # apart, so that it runs in vector registers
        s[k] = exponential(s[k])
    for unit in range(len(s) // q):
        total, o = s.dtype.type(0), unit * q
        for a in range(o, o + q):
            total += s[a]
            s[a] = total
        share, digit = total * s.dtype.type(noise[unit]), 0
        for a in range(o, o + q - 1):
            digit += s[a] <= share
        for a in range(q):
            x[o + a] = a == digit


@jit
def change(s: Any, step: Any, rare: Any, terms: Any, factors: Any) -> Any:
    """Σ ψ(s + step) - ψ(s) = Σ ln(1 + P(upper) (e^step - 1)), to all digits of the steps.

    A difference of two log-partitions would have so many digits of these: distributions that are nearly equal
    would seem to have more or less weight than the other throughout, and what is left of them would be empty.
    ``terms`` and ``factors`` (float64) are room.
    """
    total, most = 0.0, np.int32(0)
    for i in range(len(step)):  # bits of what is not negative rise with it, to infinity and NaN
        most = max(most, np.float32(abs(s[i])).view(np.int32), np.float32(abs(step[i])).view(np.int32))
    largest = np.int32(most).view(np.float32)
    if not largest < 40:
        for i in range(len(step)):
            before, after = np.float64(s[i]), np.float64(s[i]) + np.float64(step[i])
            total += max(after, 0.0) - max(before, 0.0)
            total += np.log1p(np.exp(-abs(after))) - np.log1p(np.exp(-abs(before)))
        return total
    # With the rarer value in the place of the upper one nothing cancels: ψ(s) = s + ψ(-s).
    for i in range(len(step)):
        scale, tail = _exp(step[i] if s[i] < 0 else -step[i])
        terms[i] = rare[i] * (scale * tail + (scale - _ONE))
    for i in range(len(step)):
        factors[i] = 1.0 + np.float64(terms[i])
        total += 0.0 if s[i] < 0 else np.float64(step[i])
    # So many stay in the range of doubles.
    return total + log_product(factors, 128 if largest < 5 else (32 if largest < 20 else 8))


@jit
def log_product(factors: Any, lot: int) -> Any:
    """Σ ln of the factors, of which up to ``lot`` are multiplied first; they are room."""
    total, n = 0.0, len(factors)
    while n > 1 and lot > 1:
        half = (n + 1) // 2
        for i in range(n - half):
            factors[i] *= factors[half + i]
        n, lot = half, lot // 2
    for i in range(n):
        total += np.log(np.float64(factors[i]))
    return total


@jit
def _draw_sum(up: Any, low: Any, noise: Any, x: Any, s: Any) -> float:
    """``draw``, and Σ s over the units at their upper value."""
    total = 0.0
    for i in range(len(x)):
        x[i] = _ONE if noise[i] < up[i] else low[i]
        total += np.float64(s[i]) if noise[i] < up[i] else 0.0
    return total


@jit
def couple_row(
    s_x: Any, s_y: Any, up: Any, rare: Any, low: Any, x: Any, y: Any, step: Any, factors: Any,
    noise: Any, state: Any,
) -> int:  # fmt: skip
    """Fills x and y from the maximal coupling with common noise in the rejection loop; the proposals made.

    ``up`` and ``rare`` are the ``probabilities`` of s_x; ``step``, ``factors`` (float64) and
    ``noise`` are room, and so are ``rare``, and y until it is drawn.
    """
    n, different = len(x), False
    for i in range(n):
        step[i] = s_y[i] - s_x[i]
        different |= step[i] != 0
    fill(noise, state)
    more = _draw_sum(up, low, noise, x, step)
    if not different:
        copy(x, y)
        return 0
    # ln q(x) - ln p(x) = Σ_{x up} (s_y - s_x) - (ψ_y - ψ_x)
    gap = change(s_x, step, rare, y, factors)  # y is not drawn yet
    if np.log(uniform(noise, n)) <= more - gap:
        copy(x, y)
        return 0
    for i in range(n):
        rare[i] = sigmoid(s_y[i])[0]
    open_x, open_y, tries = True, True, 0
    while open_x or open_y:
        tries += 1
        fill(noise, state)
        if open_x:
            open_x = np.log(uniform(noise, n)) <= _draw_sum(up, low, noise, x, step) - gap
        if open_y:
            open_y = np.log(uniform(noise, n + 2)) <= gap - _draw_sum(rare, low, noise, y, step)
    return tries
