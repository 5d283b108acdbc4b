"""Many updates of a small machine of two layers of two-valued units, in one call. Needs numba.

The law is that of ``rules.cd`` and ``rules.pcd``: Gibbs chains, and the hidden layer summed out of the
statistics. Eager tensor code spends its time on starting operations where a machine has tens of units; here
an update costs what its arithmetic costs. ``training.compiled_updates`` decides when it serves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonium.compiled.noise import fill, inlined, jit, room_for, seed, stream
from harmonium.compiled.per_unit import add_rows, copy, draw, logistic


@jit
def run(
    v: Any, row_weights: Any, rates: Any, keys: Any, W: Any, a: Any, b: Any, lows: Any, chains: Any,
    hidden: Any, sweeps: int, persistent: bool, centred: bool, penalties: Any, momentum: float, buffers: Any,
    gradients: Any, norms: Any,
) -> Any:  # fmt: skip
    """Makes updates in place until one has a gradient that is not finite; returns the number made.

    Args:
        v: batches, (updates, rows, n), of the visible units.
        row_weights: of their rows, (updates, rows), relative to all data; (updates, 0) where all count alike.
        rates: learning rates, (updates,).
        keys: of the noise, (updates,).
        W, a, b: couplings (n, m) and biases (n,), (m,).
        lows: the lower values of visible units, (n,), and of hidden ones, (m,), 0 or -1; the upper one is 1.
        chains, hidden: persistent chains, (chains, n) and (chains, m); with ``persistent`` False room for as
            many as a batch has rows.
        sweeps: of every update.
        persistent: whether chains go on from update to update, or begin at the batch.
        centred: whether the gradient is centred.
        penalties: weight decay, l1 and the largest norm of a gradient (infinity: none).
        momentum: of the gradients, in [0, 1).
        buffers: sums of descents (not ascents) of W, a, b that momentum keeps; not read without it.
        gradients: of W, a, b, filled with those of the last update, also where they are not finite.
        norms: filled with the norms of the gradients.
    """
    updates, rows, n = v.shape
    m, many, scalar = W.shape[1], len(chains), W.dtype.type
    (low0, low1), (gW, ga, gb) = lows, gradients
    W_t = np.empty((m, n), W.dtype)
    states, means = np.empty((rows + many, n), W.dtype), np.empty((rows + many, m), W.dtype)
    weights = np.empty(rows + many, W.dtype)
    s0, h = np.empty(n, W.dtype), np.empty(m, W.dtype)
    state, noise0, noise1 = stream(), room_for(n), room_for(m)
    room = max(n, m, rows + many) + 1
    which, by = np.empty(room, np.int64), np.empty(room, W.dtype)
    for update in range(updates):
        for i in range(n):
            for j in range(m):
                W_t[j, i] = W[i, j]
        mean = _weigh(row_weights[update], rows, many, persistent, weights)
        for r in range(rows):
            copy(v[update, r], states[r])
            _probabilities(states[r], W, b, low1, which, by, means[r])
        for c in range(many):
            seed(state, keys[update], c)
            x, up = states[rows + c], means[rows + c]
            if persistent:
                copy(hidden[c], h)
            else:
                fill(noise1, state)
                draw(means[c], low1, noise1, h)
            for _ in range(sweeps):
                _probabilities(h, W_t, a, low0, which, by, s0)
                fill(noise0, state)
                draw(s0, low0, noise0, x)
                _probabilities(x, W, b, low1, which, by, up)
                fill(noise1, state)
                draw(up, low1, noise1, h)
            if persistent:
                copy(x, chains[c])
                copy(h, hidden[c])
        _differentiate(states, means, weights, low1, which, by, gW, ga, gb)
        if centred:
            _centre(states, means, weights, gW, ga, gb)
        norm = _penalise(W, scalar(mean), penalties, gW, ga, gb)
        norms[update] = norm
        if not norm < np.inf:
            return update
        scale = scalar(penalties[2] / norm if norm > penalties[2] else 1.0)
        rate = scalar(rates[update])
        for i in range(n):
            _ascend(W[i], gW[i], buffers[0][i], scale, rate, momentum)
        _ascend(a, ga, buffers[1], scale, rate, momentum)
        _ascend(b, gb, buffers[2], scale, rate, momentum)
    return updates


@inlined
def _weigh(row_weights: Any, rows: int, many: int, persistent: bool, weights: Any) -> float:
    """Fills the weights of rows (sum 1) and of chains (sum -1); returns the mean weight of the rows."""
    mean = 1.0
    if len(row_weights) > 0:
        mean = 0.0
        for r in range(rows):
            mean += row_weights[r] / rows
    for r in range(rows):
        weights[r] = (row_weights[r] / mean if len(row_weights) > 0 else 1.0) / rows
    for c in range(many):
        weights[rows + c] = -1.0 / many if persistent else -weights[c]
    return mean


@jit
def _probabilities(x: Any, J: Any, bias: Any, low: Any, which: Any, by: Any, up: Any) -> None:
    """Fills the probabilities of the upper values given the field x J."""
    count = 0
    for i in range(len(x)):
        which[count] = i
        by[count] = x[i]
        count += x[i] != 0
    copy(bias, up)
    one = J.dtype.type(1)
    add_rows(up, J, which, by, count, one)
    for j in range(len(up)):
        up[j] = logistic((one - low[j]) * up[j])


@jit
def _clear(x: Any) -> None:
    for i in range(len(x)):
        x[i] = 0


@inlined
def _differentiate(
    states: Any, means: Any, weights: Any, low: Any, which: Any, by: Any, gW: Any, ga: Any, gb: Any
) -> None:
    """Fills the gradient from states, (rows, n), and hidden probabilities, which become means."""
    rows, one = len(weights), means.dtype.type(1)
    _clear(ga)
    _clear(gb)
    for r in range(rows):
        for i in range(len(ga)):
            ga[i] += weights[r] * states[r, i]
        for j in range(len(gb)):
            means[r, j] = low[j] + (one - low[j]) * means[r, j]
            gb[j] += weights[r] * means[r, j]
    for i in range(len(ga)):
        count = 0
        for r in range(rows):
            which[count] = r
            by[count] = weights[r] * states[r, i]
            count += states[r, i] != 0
        _clear(gW[i])
        add_rows(gW[i], means, which, by, count, one)


@inlined
def _centre(states: Any, means: Any, weights: Any, gW: Any, ga: Any, gb: Any) -> None:
    """Centres the gradient (``centred_pullback``) at the midpoint of the means of rows and chains."""
    offset0, offset1 = np.empty(len(ga), ga.dtype), np.empty(len(gb), gb.dtype)
    _clear(offset0)
    _clear(offset1)
    half = ga.dtype.type(0.5)
    for r in range(len(weights)):
        for i in range(len(ga)):
            offset0[i] += half * abs(weights[r]) * states[r, i]
        for j in range(len(gb)):
            offset1[j] += half * abs(weights[r]) * means[r, j]
    for i in range(len(ga)):
        for j in range(len(gb)):
            gW[i, j] -= ga[i] * offset1[j] + offset0[i] * gb[j]
    for i in range(len(ga)):
        for j in range(len(gb)):
            ga[i] -= gW[i, j] * offset1[j]
            gb[j] -= gW[i, j] * offset0[i]


@inlined
def _penalise(W: Any, mean: Any, penalties: Any, gW: Any, ga: Any, gb: Any) -> Any:
    """Brings the gradient to the weight of its batch and adds the penalties; returns its norm."""
    decay, l1 = W.dtype.type(penalties[0]), W.dtype.type(penalties[1])
    square = 0.0
    for i in range(len(ga)):
        ga[i] *= mean
        square += np.float64(ga[i]) ** 2
        own = W.dtype.type(0)
        for j in range(len(gb)):
            gW[i, j] = mean * gW[i, j] - decay * W[i, j] - l1 * np.sign(W[i, j])
            own += gW[i, j] * gW[i, j]
        square += np.float64(own)
    for j in range(len(gb)):
        gb[j] *= mean
        square += np.float64(gb[j]) ** 2
    return np.sqrt(square)


@inlined
def _ascend(x: Any, g: Any, buffer: Any, scale: Any, rate: Any, momentum: float) -> None:
    """Moves parameters along a gradient times ``scale``, or along its running sum."""
    if momentum == 0:
        for i in range(len(x)):
            x[i] += rate * (scale * g[i])
        return
    share = x.dtype.type(momentum)
    for i in range(len(x)):
        buffer[i] = share * buffer[i] - scale * g[i]
        x[i] -= rate * buffer[i]
