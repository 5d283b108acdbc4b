"""Chains of a small machine of Gaussian visible and binary hidden units, compiled: each runs on its own.

The law is that of ``chains.relaxation``. Eager tensor code spends its time on starting operations where a
machine has tens of units; here a sweep costs what its arithmetic costs, the field of a state is never
computed twice, and statistics are summed on the way. Needs numba (the extra ``fast``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonium._compiled_noise import fill, jit, seed, unit

_BIAS, _EXPONENT = np.float32(127), np.float32(2**23)
_MASK = np.int32(0x7FFFFF80)
_ONE, _HALF, _LARGE = np.float32(1), np.float32(0.5), np.float32(80)
_LOG2E, _LN2 = np.float32(1.4426950408889634), np.float32(0.6931471803691238)
_LN2_REST = np.float32(1.9082149292705877e-10)
_UNIFORM = np.float32(2.0**-31)
_2, _3, _4, _5, _6, _7 = (np.float32(1 / n) for n in range(2, 8))


@jit
def _normal(out: Any, state: Any, words: Any) -> None:
    """Standard normal variates (Box & Muller 1958)."""
    for i in range(0, len(out), 2):
        fill(words[:2], state)
        radius = np.sqrt(-2.0 * np.log1p(-unit(words[0])))
        angle = 2.0 * np.pi * unit(words[1])
        out[i] = radius * np.cos(angle)
        if i + 1 < len(out):
            out[i + 1] = radius * np.sin(angle)


@jit
def _hidden(
    v: Any,
    J: Any,
    bias: Any,
    gain: Any,
    low: Any,
    z: Any,
    bits: Any,
    powers: Any,
    up: Any,
    mean: Any,
    psi: bool,
) -> float:
    """P(upper) and mean of every hidden unit given v; returns Σ ψ if asked. ``powers`` views ``bits``."""
    n = len(bias)
    for j in range(n):
        z[j] = bias[j]
    for i in range(len(v)):
        value = v[i]
        for j in range(n):
            z[j] += value * J[i, j]
    # exp(-|z|) as 2^-whole · e^rest: this runs in vector registers, the library's exp does not.
    for j in range(n):
        scaled = min(abs(gain * z[j]), _LARGE)
        whole = np.floor(scaled * _LOG2E + _HALF)
        bits[j] = np.int32((_BIAS - whole) * _EXPONENT)
        r = whole * _LN2 - scaled + whole * _LN2_REST
        tail = _ONE + r * _4 * (_ONE + r * _5 * (_ONE + r * _6 * (_ONE + r * _7)))
        up[j] = _ONE + r * (_ONE + r * _2 * (_ONE + r * _3 * tail))
    span = _ONE - low
    for j in range(n):
        e = up[j] * powers[j]
        large = _ONE / (_ONE + e)
        small = e * large
        mean[j] = large  # for ψ
        up[j] = large if z[j] >= 0 else small
    total = 0.0
    if psi:  # Σ max(gain z, 0) + low z - ln P(the more probable state)
        for first in range(0, n, 64):  # factors lie in [1/2, 1), so 64 of them stay in range
            part, linear = _ONE, np.float32(0)
            for j in range(first, min(first + 64, n)):
                part *= mean[j]
                linear += max(gain * z[j], np.float32(0)) + low * z[j]
            total += linear - np.log(part)
    for j in range(n):
        mean[j] = low + span * up[j]
    return total


@jit
def _draw(up: Any, low: Any, state: Any, words: Any, h: Any) -> None:
    fill(words, state)
    noise = words.view(np.int32)  # 31 bits each; the lowest of xoshiro256+ are weak, and too small to matter
    for j in range(len(up)):
        h[j] = _ONE if np.float32(noise[j] & _MASK) * _UNIFORM < up[j] else low


@jit
def run(
    J: Any, bias: Any, gain: Any, low: Any, linear: Any, precision: Any, v_all: Any, h_all: Any, share: int,
    shares: int, key: Any, keep: Any, spread: Any, adjusted: Any, collapsed: bool, marginal: bool,
    burn_in: int, weight: float, v_sum: Any, square_sum: Any, h_sum: Any, pair_sum: Any, diagnostics: Any,
) -> None:  # fmt: skip
    """Runs every ``shares``-th chain in place, adding weight · E[S | v] (or S) of its sweeps after burn-in.

    ``keep``, ``spread`` and ``adjusted`` have an entry for each sweep. ``diagnostics`` sums acceptances and
    squared jumps.
    """
    n0, n1 = J.shape
    state, words = np.empty(4, np.uint64), np.empty(n1 // 2 + 2, np.uint64)
    compared = adjusted.any()
    deviation = 1.0 / np.sqrt(precision)
    v, proposal = np.empty(n0, np.float32), np.empty(n0, np.float32)
    centre, xi = np.empty(n0), np.empty(n0)
    z, bits = np.empty(n1, np.float32), np.empty(n1, np.int32)
    powers = bits.view(np.float32)
    up, up_new = np.empty(n1, np.float32), np.empty(n1, np.float32)
    mean, mean_new = np.empty(n1, np.float32), np.empty(n1, np.float32)
    h, h_new = np.empty(n1, np.float32), np.empty(n1, np.float32)
    h_part, pair_part = np.empty(n1, np.float32), np.empty((n0, n1), np.float32)
    for chain in range(share, len(v_all), shares):
        seed(state, key, chain)
        v[:] = v_all[chain]
        h[:] = h_all[chain]
        h_part[:] = 0
        pair_part[:] = 0
        psi = _hidden(v, J, bias, gain, low, z, bits, powers, up, mean, compared)
        for sweep in range(len(keep)):
            given = mean if collapsed else h
            for i in range(n0):
                field = np.float32(0)
                for j in range(n1):
                    field += given[j] * J[i, j]
                centre[i] = (linear[i] + field) / precision[i]
            _normal(xi, state, words)
            forward = 0.0
            for i in range(n0):
                ahead = centre[i] + keep[sweep] * (v[i] - centre[i])
                proposal[i] = ahead + spread[sweep] * deviation[i] * xi[i]
                forward += xi[i] * xi[i]
            psi_new = _hidden(proposal, J, bias, gain, low, z, bits, powers, up_new, mean_new, compared)
            if not collapsed:
                _draw(up_new, low, state, words, h_new)
            taken = True
            if adjusted[sweep]:
                log_ratio, backward = psi_new - psi, 0.0
                given = mean_new if collapsed else h_new
                for i in range(n0):
                    field = np.float32(0)
                    for j in range(n1):
                        field += given[j] * J[i, j]
                    there = (linear[i] + field) / precision[i]
                    old, new = np.float64(v[i]), np.float64(proposal[i])
                    back = (old - there - keep[sweep] * (new - there)) / (spread[sweep] * deviation[i])
                    backward += back * back
                    log_ratio += (new - old) * (linear[i] - 0.5 * precision[i] * (new + old))
                log_ratio += 0.5 * (forward - backward)
                fill(words[:1], state)
                taken = np.log1p(-unit(words[0])) < log_ratio
            if taken:
                diagnostics[0] += 1
                for i in range(n0):
                    jump = (proposal[i] - v[i]) / deviation[i]
                    diagnostics[1] += jump * jump
                v, proposal = proposal, v
                up, up_new = up_new, up
                mean, mean_new = mean_new, mean
                h, h_new = h_new, h
                psi = psi_new
            if collapsed and (not marginal or sweep == len(keep) - 1):
                _draw(up, low, state, words, h)
            if sweep >= burn_in:
                seen = mean if marginal else h
                for j in range(n1):
                    h_part[j] += seen[j]
                for i in range(n0):
                    value = v[i]
                    v_sum[i] += weight * value
                    square_sum[i] -= 0.5 * weight * value * value
                    for j in range(n1):
                        pair_part[i, j] += value * seen[j]
        for j in range(n1):
            h_sum[j] += weight * h_part[j]
        for i in range(n0):
            for j in range(n1):
                pair_sum[i, j] += weight * pair_part[i, j]
        v_all[chain] = v
        h_all[chain] = h
