"""Compiled steps of batches of pairs whose units have two values: any width, any depth.

Batched products give the fields; what is left of a half-step (sigmoids, noise, the maximal coupling with its
rejection loop) costs as much again in eager tensor code, and a fraction of it in one pass over each row.
Units are described by the log-odds s = gain · (field + bias) of their upper value 1 against ``low``.
Needs numba (the extra ``fast``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonium._compiled_noise import jit, seed

_LANES = 8  # generators that run side by side, so that noise comes in vector registers
_CACHE = 200_000  # couplings that stay in the second-level cache
_LOT = 128  # rows that pass a tile of couplings together
_STEP = np.float32(2.0**-23)


@jit
def _fill(noise: Any, state: Any) -> None:
    """Uniform variates inside (0, 1) from xoshiro256+ (Blackman & Vigna 2021), 16 at a time."""
    for first in range(0, len(noise), 2 * _LANES):
        for lane in range(_LANES):
            s0, s1, s2, s3 = state[0, lane], state[1, lane], state[2, lane], state[3, lane]
            word = s0 + s3
            high = np.int32(word >> np.uint64(41))
            low = np.int32((word >> np.uint64(18)) & np.uint64(0x7FFFFF))
            noise[first + lane] = (np.float32(high) + np.float32(0.5)) * _STEP
            noise[first + _LANES + lane] = (np.float32(low) + np.float32(0.5)) * _STEP
            shifted = s1 << np.uint64(17)
            s2 ^= s0
            s3 ^= s1
            state[1, lane] = s1 ^ s2
            state[0, lane] = s0 ^ s3
            state[2, lane] = s2 ^ shifted
            state[3, lane] = (s3 << np.uint64(45)) | (s3 >> np.uint64(19))


@jit
def _exp(x: Any, bits: Any, scale: Any, tail: Any) -> None:
    """e^x = scale · (1 + tail) for every entry, |x| ≤ 87; ``scale`` views ``bits`` as floats.

    This runs in vector registers, the library's exponential does not.
    """
    for i in range(len(x)):
        whole = np.floor(x[i] * np.float32(1.4426950408889634) + np.float32(0.5))
        bits[i] = (np.int32(127) + np.int32(whole)) << np.int32(23)
        r = x[i] - whole * np.float32(0.693359375) + whole * np.float32(2.12194440e-4)
        p = np.float32(1.0 / 5040)
        p = p * r + np.float32(1.0 / 720)
        p = p * r + np.float32(1.0 / 120)
        p = p * r + np.float32(1.0 / 24)
        p = p * r + np.float32(1.0 / 6)
        p = p * r + np.float32(0.5)
        p = p * r + np.float32(1)
        tail[i] = p * r


@jit
def _probabilities(s: Any, work: Any, bits: Any, scale: Any, up: Any, rare: Any) -> None:
    """P(upper) and P(the rarer value) of every unit."""
    for i in range(len(s)):
        work[i] = -min(abs(s[i]), np.float32(87.0))
    _exp(work, bits, scale, up)
    for i in range(len(s)):
        e = scale[i] * (np.float32(1) + up[i])
        large = np.float32(1) / (np.float32(1) + e)
        rare[i] = e * large
        up[i] = large if s[i] >= 0 else rare[i]


@jit
def _change(s: Any, step: Any, rare: Any, work: Any, bits: Any, scale: Any, tail: Any) -> float:
    """Σ ψ(s + step) - ψ(s) = Σ ln(1 + P(upper) (e^step - 1)), to all digits of the steps.

    A difference of two log-partitions would have so many digits of these: laws that are nearly equal would
    seem to have more or less weight than the other throughout, and what is left of them would be empty.
    """
    large, huge, total = False, False, 0.0
    for i in range(len(step)):
        large |= not (abs(s[i]) < 20 and abs(step[i]) < 20)
        huge |= not (abs(s[i]) < 40 and abs(step[i]) < 40)
    if huge:
        for i in range(len(step)):
            before, after = np.float64(s[i]), np.float64(s[i]) + np.float64(step[i])
            total += max(after, 0.0) - max(before, 0.0)
            total += np.log1p(np.exp(-abs(after))) - np.log1p(np.exp(-abs(before)))
        return total
    # With the rarer value in the place of the upper one nothing cancels: ψ(s) = s + ψ(-s).
    for i in range(len(step)):
        work[i] = step[i] if s[i] < 0 else -step[i]
    for i in range(len(step)):
        total += 0.0 if s[i] < 0 else np.float64(step[i])
    _exp(work, bits, scale, tail)
    lot = 8 if large else 32  # so many factors stay in the range of doubles
    for first in range(0, len(step), lot):
        part = 1.0
        for i in range(first, min(first + lot, len(step))):
            difference = scale[i] * tail[i] + (scale[i] - np.float32(1))
            part *= 1.0 + np.float64(rare[i] * difference)
        total += np.log(part)
    return total


@jit
def _draw(up: Any, low: Any, noise: Any, x: Any) -> None:
    for i in range(len(up)):
        x[i] = np.float32(1) if noise[i] < up[i] else low[i]


@jit
def _upper_sum(x: Any, s: Any) -> float:
    """Σ s over the units at their upper value."""
    total = 0.0
    for i in range(len(x)):
        total += np.float64(s[i]) if x[i] > 0 else 0.0
    return total


@jit
def _log_uniform(noise: Any, i: int) -> Any:
    """The log of a uniform variate with the digits of two: laws may differ by very little."""
    return np.log(np.float64(noise[i]) - (np.float64(noise[i + 1]) - 0.5) * np.float64(_STEP))


@jit
def couple(
    first: int,
    last: int,
    fields_x: Any,
    fields_y: Any,
    bias: Any,
    gain: Any,
    low: Any,
    key: Any,
    x: Any,
    y: Any,
    tries: Any,
) -> None:
    """The maximal coupling with common noise in the rejection loop, for the rows from first to last.

    Fields and draws are (rows, width); bias, gain and low are (width,); x, y and tries are filled.
    """
    width = len(bias)
    whole = -(-width // (2 * _LANES)) * 2 * _LANES
    state = np.empty((4, _LANES), np.uint64)
    noise, decide = np.empty(whole, np.float32), np.empty(2 * _LANES, np.float32)
    s_x, s_y, step = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    up_x, up_y = np.empty(width, np.float32), np.empty(width, np.float32)
    work, tail = np.empty(width, np.float32), np.empty(width, np.float32)
    rare = np.empty(width, np.float32)
    bits = np.empty(width, np.int32)
    scale = bits.view(np.float32)
    for row in range(first, last):
        seed(state.reshape(-1), key, row)
        different = False
        for i in range(width):
            s_x[i] = gain[i] * (fields_x[row, i] + bias[i])
            s_y[i] = gain[i] * (fields_y[row, i] + bias[i])
            step[i] = s_y[i] - s_x[i]
            different |= step[i] != 0
        _probabilities(s_x, work, bits, scale, up_x, rare)
        _fill(noise, state)
        _draw(up_x, low, noise, x[row])
        if not different:
            y[row] = x[row]
            continue
        # ln q(x) - ln p(x) = Σ_{x up} (s_y - s_x) - (ψ_y - ψ_x)
        change = _change(s_x, step, rare, work, bits, scale, tail)
        _fill(decide, state)
        if _log_uniform(decide, 0) <= _upper_sum(x[row], step) - change:
            y[row] = x[row]
            continue
        _probabilities(s_y, work, bits, scale, up_y, rare)
        open_x, open_y = True, True
        while open_x or open_y:
            tries[row] += 1
            _fill(noise, state)
            _fill(decide, state)
            if open_x:
                _draw(up_x, low, noise, x[row])
                open_x = _log_uniform(decide, 0) <= _upper_sum(x[row], step) - change
            if open_y:
                _draw(up_y, low, noise, y[row])
                open_y = _log_uniform(decide, 2) <= change - _upper_sum(y[row], step)


@jit
def count_differences(first: int, last: int, x: Any, y: Any, counts: Any) -> None:
    """In how many entries x and y differ, for the rows from first to last."""
    for row in range(first, last):
        count = 0
        for i in range(x.shape[1]):
            count += x[row, i] != y[row, i]
        counts[row] = count


@jit
def add_products_of_differences(first: int, last: int, x: Any, y: Any, J: Any, total: Any) -> None:
    """Adds (y - x) @ J to the rows of ``total`` from first to last, by the rows of J where x and y differ."""
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


@jit
def round_means(
    first: int, last: int, fields: Any, bias: Any, gain: Any, low: Any, key: Any, unit: float, out: Any
) -> None:
    """Means of units as whole numbers of 1/unit, up or down at random so that no mean is off: int8."""
    width = len(bias)
    whole = -(-width // (2 * _LANES)) * 2 * _LANES
    state = np.empty((4, _LANES), np.uint64)
    noise = np.empty(whole, np.float32)
    s, up, work = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    bits = np.empty(width, np.int32)
    scale = bits.view(np.float32)
    span = np.empty(width, np.float32)
    for i in range(width):
        span[i] = np.float32(unit) * (np.float32(1) - low[i])
    for row in range(first, last):
        seed(state.reshape(-1), key, row)
        for i in range(width):
            s[i] = gain[i] * (fields[row, i] + bias[i])
        _probabilities(s, work, bits, scale, up, work)
        _fill(noise, state)
        for i in range(width):
            value = np.float32(unit) * low[i] + span[i] * up[i]
            out[row, i] = np.int8(min(np.floor(value + noise[i]), np.float32(unit)))
