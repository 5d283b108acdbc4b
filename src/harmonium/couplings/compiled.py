"""Pairs of Gibbs chains of a small two-layer machine, compiled: every pair runs on its own until it is done.

The law is that of ``couplings.Gibbs()``: both half-steps maximal with common noise. Eager tensor code spends
its time on starting operations where a machine has tens of units and the last of the pairs take hundreds of
sweeps; here a pair costs what its arithmetic costs. Needs numba (the extra ``fast``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonium._compiled_noise import fill_uniform, jit, seed


@jit
def _probabilities(
    x: Any, weights: Any, bias: Any, gain: float, z: Any, bits: Any, powers: Any, up: Any, down: Any
) -> None:
    """P(upper) and P(lower) of every unit given the other layer; ``powers`` views ``bits`` as floats."""
    n = len(bias)
    for i in range(n):
        z[i] = bias[i]
    for j in range(len(x)):
        value = x[j]
        for i in range(n):
            z[i] += value * weights[j, i]
    # exp(-|z|) as 2^-whole · e^rest: this runs in vector registers, the library's exp does not.
    for i in range(n):
        scaled = min(abs(gain * z[i]), 700.0)
        whole = np.floor(scaled * 1.4426950408889634 + 0.5)
        bits[i] = (1023 - np.int64(whole)) << 52
        r = whole * 0.6931471803691238 - scaled + whole * 1.9082149292705877e-10
        tail = 1 + r / 5 * (1 + r / 6 * (1 + r / 7 * (1 + r / 8 * (1 + r / 9))))
        up[i] = 1 + r * (1 + r / 2 * (1 + r / 3 * (1 + r / 4 * tail)))
    for i in range(n):
        e = up[i] * powers[i]
        large = 1.0 / (1.0 + e)
        small = e * large
        up[i] = large if z[i] >= 0 else small
        down[i] = small if z[i] >= 0 else large


@jit
def _mirror(noise: Any) -> None:
    for i in range(len(noise)):
        noise[i] = 1.0 - noise[i]


@jit
def _draw(up: Any, low: float, noise: Any, x: Any) -> None:
    for i in range(len(up)):
        x[i] = 1.0 if noise[i] < up[i] else low


@jit
def _log_ratio(x: Any, up_q: Any, down_q: Any, up_p: Any, down_p: Any) -> float:
    """ln q(x) - ln p(x)."""
    n, total = len(x), 0.0
    for first in range(0, n, 16):  # so few factors stay in the range of doubles
        part = 1.0
        for i in range(first, min(first + 16, n)):
            part *= (up_q[i] if x[i] > 0 else down_q[i]) / (up_p[i] if x[i] > 0 else down_p[i])
        total += np.log(part)
    return total


@jit
def _couple(
    up_p: Any, down_p: Any, up_q: Any, down_q: Any, low: float, x: Any, y: Any, noise: Any, state: Any
) -> int:
    """A draw from the maximal coupling with common noise in the rejection loop; returns the proposals made.

    The last three variates of ``noise`` decide, the others draw.
    """
    n = len(x)
    fill_uniform(noise, state)
    _draw(up_p, low, noise, x)
    if np.log1p(-noise[n]) <= _log_ratio(x, up_q, down_q, up_p, down_p):
        for i in range(n):
            y[i] = x[i]
        return 0
    open_x, open_y, tries = True, True, 0
    while open_x or open_y:
        tries += 1
        fill_uniform(noise, state)
        if open_x:
            _draw(up_p, low, noise, x)
            open_x = np.log1p(-noise[n + 1]) <= _log_ratio(x, up_q, down_q, up_p, down_p)
        if open_y:
            _draw(up_q, low, noise, y)
            open_y = np.log1p(-noise[n + 2]) <= _log_ratio(y, up_p, down_p, up_q, down_q)
    return tries


@jit
def _add(
    v: Any, up: Any, low: float, weight: float, mean: Any, visible: Any, hidden: Any, pairs: Any
) -> None:
    """Adds weight · E[S | v]."""
    span = 1.0 - low
    for j in range(len(up)):
        mean[j] = weight * (low + span * up[j])
        hidden[j] += mean[j]
    for i in range(len(v)):
        value = v[i]
        visible[i] += value * weight
        if value != 0:
            for j in range(len(up)):
                pairs[i, j] += value * mean[j]


@jit
def _key(x: Any) -> Any:
    """The signs of up to 64 units as the bits of one word."""
    word = np.uint64(0)
    for i in range(len(x)):
        word = (word << np.uint64(1)) | np.uint64(x[i] > 0)
    return word


@jit
def _jump(x: Any, there: int, log_u: float, keys: Any, states: Any, free_energies: Any) -> None:
    here = np.searchsorted(keys, _key(x))
    if here < len(keys) and keys[here] == _key(x) and log_u <= free_energies[here] - free_energies[there]:
        for i in range(len(x)):
            x[i] = states[there, i]


@jit
def run(
    J: Any,
    JT: Any,
    visible_bias: Any,
    hidden_bias: Any,
    visible_low: float,
    hidden_low: float,
    start: Any,
    first: int,
    stride: int,
    jump_keys: Any,
    jump_states: Any,
    jump_free_energies: Any,
    key: Any,
    k: int,
    m: int,
    lag: int,
    max_steps: int,
    mirrored_from: int,
    weight: float,
    horizon: Any,
    times: Any,
    capped: Any,
    tries: Any,
    cost: Any,
    flips: Any,
    visible_sum: Any,
    hidden_sum: Any,
    pair_sum: Any,
) -> None:
    """``meeting.run_pairs`` for the pairs first, first + stride, …; float64 throughout.

    States are (pairs, n) with values 1 and ``low`` (0 or -1); max_steps 0 is no cap; jumps are sorted by key.
    If not 0, pair mirrored_from + i mirrors the noise of pair i until the second chains set out.
    The arrays from ``horizon`` on are filled: one row a pair, then [changed, seen] units, then the signed
    sums of v, E[h | v] and v ⊗ E[h | v].
    """
    n_pairs, n0 = start.shape
    n1 = len(hidden_bias)
    gain0 = 1.0 if visible_low == 0 else 2.0
    gain1 = 1.0 if hidden_low == 0 else 2.0
    each = weight / (m - k + 1)
    state = np.empty(4, np.uint64)
    x, y, before = np.empty(n0), np.empty(n0), np.empty(n0)
    hx, hy, mean = np.empty(n1), np.empty(n1), np.empty(n1)
    noise0, noise1, noise_jump = np.empty(n0 + 3), np.empty(n1 + 3), np.empty(2)
    n_jumps = len(jump_keys)
    z0, z1 = np.empty(n0), np.empty(n1)
    bits0, bits1 = np.empty(n0, np.int64), np.empty(n1, np.int64)
    powers0, powers1 = bits0.view(np.float64), bits1.view(np.float64)
    # Probabilities of h given each chain's v are kept from the end of a sweep for the next one.
    up_hx, down_hx, up_hy, down_hy = np.empty(n1), np.empty(n1), np.empty(n1), np.empty(n1)
    up_x, down_x, up_y, down_y = np.empty(n0), np.empty(n0), np.empty(n0), np.empty(n0)
    for pair in range(first, n_pairs, stride):
        mirrored = 0 < mirrored_from <= pair
        stream = pair - mirrored_from if mirrored else pair
        seed(state, key, stream)
        for i in range(n0):
            x[i] = start[pair, i]
            y[i] = x[i]
        _probabilities(x, J, hidden_bias, gain1, z1, bits1, powers1, up_hx, down_hx)
        if k == 0:
            _add(x, up_hx, hidden_low, each, mean, visible_sum, hidden_sum, pair_sum)
        for j in range(n1):
            up_hy[j], down_hy[j] = up_hx[j], down_hx[j]
        met, t = False, 0
        while not met or t < m:
            t += 1
            for i in range(n0):
                before[i] = x[i]
            if t <= lag or met:
                fill_uniform(noise1, state)
                if mirrored and t <= lag:
                    _mirror(noise1)
                _draw(up_hx, hidden_low, noise1, hx)
                _probabilities(hx, JT, visible_bias, gain0, z0, bits0, powers0, up_x, down_x)
                fill_uniform(noise0, state)
                if mirrored and t <= lag:
                    _mirror(noise0)
                _draw(up_x, visible_low, noise0, x)
                cost[pair] += 1
                if n_jumps > 0:
                    fill_uniform(noise_jump, state)
                    there, log_u = int(noise_jump[0] * n_jumps), np.log1p(-noise_jump[1])
                    _jump(x, there, log_u, jump_keys, jump_states, jump_free_energies)
            else:
                tries[pair] += _couple(up_hx, down_hx, up_hy, down_hy, hidden_low, hx, hy, noise1, state)
                _probabilities(hx, JT, visible_bias, gain0, z0, bits0, powers0, up_x, down_x)
                _probabilities(hy, JT, visible_bias, gain0, z0, bits0, powers0, up_y, down_y)
                tries[pair] += _couple(up_x, down_x, up_y, down_y, visible_low, x, y, noise0, state)
                cost[pair] += 2
                if n_jumps > 0:
                    fill_uniform(noise_jump, state)
                    there, log_u = int(noise_jump[0] * n_jumps), np.log1p(-noise_jump[1])
                    _jump(x, there, log_u, jump_keys, jump_states, jump_free_energies)
                    _jump(y, there, log_u, jump_keys, jump_states, jump_free_energies)
            if mirrored and t == lag:
                seed(state, key, pair)
            if not met or t <= m:
                _probabilities(x, J, hidden_bias, gain1, z1, bits1, powers1, up_hx, down_hx)
            average = each if k <= t <= m else 0.0
            if not met:
                changed, different = 0, 0
                for i in range(n0):
                    changed += before[i] != x[i]
                    different += x[i] != y[i]
                flips[0] += changed
                flips[1] += n0
                if t >= lag and different == 0:
                    met = True
                    times[pair] = t
                else:
                    if t > lag:
                        _probabilities(y, J, hidden_bias, gain1, z1, bits1, powers1, up_hy, down_hy)
                    if t >= k + lag:
                        late = max(lag, t - m)
                        correction = ((t - k) // lag - (late + lag - 1) // lag + 1) * each
                        average += correction
                        _add(y, up_hy, hidden_low, -correction, mean, visible_sum, hidden_sum, pair_sum)
                    if t == max_steps:
                        times[pair] = t
                        capped[pair] = True
                        met = True
            if average != 0:
                _add(x, up_hx, hidden_low, average, mean, visible_sum, hidden_sum, pair_sum)
            if t == m:
                for i in range(n0):
                    horizon[pair, i] = x[i]
