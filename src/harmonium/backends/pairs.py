"""Pairs of Gibbs chains of a small two-layer machine, compiled: every pair runs on its own until it is done.

The distribution is that of ``coupled.Gibbs()``, both half-steps maximal with common noise, or of Alg. 3 of
Qiu et al. (2020), where hidden units have common noise alone. Eager tensor code spends its time on starting
operations where a machine has tens of units and the last of the pairs take hundreds of sweeps; here a pair
costs what its arithmetic costs. Needs numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium.backends.calls import SHARES, over, units_of
from harmonium.backends.choice import Machine
from harmonium.backends.noise import fill, jit, room_for, seed, stream
from harmonium.backends.per_unit import copy, couple_row, draw, log_odds, probabilities, row_of


def run(
    hamiltonian: Machine, start: Sequence[Tensor], key: np.uint64, *, k: int, m: int, lag: int,
    max_sweeps: int | None, into: Any, weight: float, hidden_by_noise: bool,
) -> dict[str, Any]:  # fmt: skip
    """Runs ``coupled.run_pairs`` from the visible states of ``start``, where ``choice.small_pairs`` serves.

    Returns the fields of ``coupled.Meetings`` but ``lag``; of its states the visible ones alone are new.
    """
    pairs, n0 = start[0].shape
    J = _array(hamiltonian.J[0] * hamiltonian.beta)
    n1 = J.shape[1]
    layers = zip(hamiltonian.thetas, hamiltonian.layers, strict=True)
    visible, hidden = (units_of(theta, [layer.two_values]) for theta, layer in layers)
    states = _array(start[0])
    horizon = states.copy()
    times, tries, cost = (np.zeros(pairs, np.int64) for _ in range(3))
    capped = np.zeros(pairs, np.bool_)
    shares = min(SHARES, pairs)
    flips = np.zeros((shares, 2), np.int64)
    sums = np.zeros((shares, n0)), np.zeros((shares, n1)), np.zeros((shares, n0, n1))
    arguments = (
        *(J, np.ascontiguousarray(J.T), visible, hidden, states, key),
        *(k, m, lag, max_sweeps or 0, weight, hidden_by_noise),
        *(horizon, times, capped, tries, cost),
    )
    over(_run, shares, shares, flips, sums, arguments)
    if into is not None:
        v_sum, h_sum, pair_sum = (torch.from_numpy(total.sum(0)).to(hamiltonian.J[0].dtype) for total in sums)
        into.add_sums([[v_sum], [h_sum]], [pair_sum])
    changed, seen = flips.sum(0)
    arrays = {"times": times, "capped": capped, "tries": tries, "cost": cost}
    filled = {name: torch.from_numpy(values) for name, values in arrays.items()}
    return {
        **filled,
        "flip_rate": float(changed / max(seen, 1)),
        "states": [torch.from_numpy(horizon), *start[1:]],
    }


def _array(x: Tensor) -> Any:
    return np.ascontiguousarray(x.detach().numpy())


@jit
def _add(v: Any, up: Any, low: Any, weight: float, mean: Any, visible: Any, hidden: Any, pairs: Any) -> None:
    """Adds weight · E[S | v]."""
    for j in range(len(up)):
        mean[j] = weight * np.float64(low[j] + (np.float32(1) - low[j]) * up[j])
        hidden[j] += mean[j]
    for i in range(len(v)):
        value = v[i]
        visible[i] += value * weight
        if value != 0:
            for j in range(len(up)):
                pairs[i, j] += value * mean[j]


@jit
def _run(first: int, last: int, shares: int, flips_of: Any, sums: Any, arguments: Any) -> None:
    """Runs ``meeting.run_pairs`` for some of the shares, each into sums of its own: every ``shares``-th pair.

    ``visible`` and ``hidden`` are bias, gain and lower value of their units. States are (pairs, n);
    max_sweeps 0 is no cap. The arrays from ``horizon`` on are filled, one row a pair. ``flips`` counts
    [changed, seen] units, and ``sums`` are the signed ones of v, E[h | v] and v ⊗ E[h | v].
    """
    J, JT, visible, hidden, start, key = arguments[:6]
    k, m, lag, max_sweeps, weight, hidden_by_noise = arguments[6:12]
    horizon, times, capped, tries, cost = arguments[12:]
    (bias0, gain0, low0), (bias1, gain1, low1) = visible, hidden
    n0, n1 = J.shape
    state_weight = weight / (m - k + 1)
    state, noise0, noise1 = stream(), room_for(n0 + 4), room_for(n1 + 4)
    step0, factors0, step1, factors1 = row_of(n0), np.empty(n0), row_of(n1), np.empty(n1)
    x, y, before = row_of(n0), row_of(n0), row_of(n0)
    hx, hy, mean = row_of(n1), row_of(n1), np.empty(n1)
    s_x, s_y, up_x, rare_x = row_of(n0), row_of(n0), row_of(n0), row_of(n0)
    # What h is drawn from is kept from the end of a sweep for the next one.
    s_hx, s_hy, up_hx, rare_hx = row_of(n1), row_of(n1), row_of(n1), row_of(n1)
    up_hy, rare_hy = row_of(n1), row_of(n1)
    for share in range(first, last):
        flips, pair_sum = flips_of[share], sums[2][share]
        visible_sum, hidden_sum = sums[0][share], sums[1][share]
        for pair in range(share, len(start), shares):
            seed(state, key, pair)
            copy(start[pair], x)
            copy(x, y)
            log_odds(x, J, bias1, gain1, s_hx)
            probabilities(s_hx, up_hx, rare_hx)
            if k == 0:
                _add(x, up_hx, low1, state_weight, mean, visible_sum, hidden_sum, pair_sum)
            copy(s_hx, s_hy)
            met, t = False, 0
            while not met or t < m:
                t += 1
                copy(x, before)
                if t <= lag or met:
                    fill(noise1, state)
                    draw(up_hx, low1, noise1, hx)
                    log_odds(hx, JT, bias0, gain0, s_x)
                    probabilities(s_x, up_x, rare_x)
                    fill(noise0, state)
                    draw(up_x, low0, noise0, x)
                    cost[pair] += 1
                else:
                    if hidden_by_noise:
                        fill(noise1, state)
                        probabilities(s_hy, up_hy, rare_hy)
                        draw(up_hx, low1, noise1, hx)
                        draw(up_hy, low1, noise1, hy)
                    else:
                        tries[pair] += couple_row(
                            s_hx, s_hy, up_hx, rare_hx, low1, hx, hy, step1, factors1, noise1, state
                        )
                    log_odds(hx, JT, bias0, gain0, s_x)
                    log_odds(hy, JT, bias0, gain0, s_y)
                    probabilities(s_x, up_x, rare_x)
                    tries[pair] += couple_row(
                        s_x, s_y, up_x, rare_x, low0, x, y, step0, factors0, noise0, state
                    )
                    cost[pair] += 2
                if not met or t <= m:
                    log_odds(x, J, bias1, gain1, s_hx)
                    probabilities(s_hx, up_hx, rare_hx)
                average = state_weight if k <= t <= m else 0.0
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
                            log_odds(y, J, bias1, gain1, s_hy)
                        if t >= k + lag:
                            late = max(lag, t - m)
                            correction = ((t - k) // lag - (late + lag - 1) // lag + 1) * state_weight
                            average += correction
                            probabilities(s_hy, up_hy, rare_hy)
                            _add(y, up_hy, low1, -correction, mean, visible_sum, hidden_sum, pair_sum)
                        if t == max_sweeps:
                            times[pair] = t
                            capped[pair] = True
                            met = True
                if average != 0:
                    _add(x, up_hx, low1, average, mean, visible_sum, hidden_sum, pair_sum)
                if t == m:
                    copy(x, horizon[pair])
