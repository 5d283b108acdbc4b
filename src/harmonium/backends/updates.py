"""Many updates of a small machine in one call: visible units beside two-valued hidden ones. Needs numba.

The distribution is that of ``rules.cd`` and ``rules.pcd``: Gibbs chains, and the hidden layer summed out of
the statistics. Eager tensor code spends its time on starting operations where a machine has tens of units;
here an update costs what its arithmetic costs. ``training.compiled_updates`` decides when it serves.

Visible units stand block by block, two-valued, one-hot or Gaussian. Those of ``layers.Gaussian`` have x ~
N(a + W h, 1/s) with precision s, and J = s W. In the scaled state z = s x fields are z W and the gradients of
W and a are differences of means of z h and z, as those of discrete units are, whose s is 1.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from harmonium.backends.noise import fill, fill_normal, inlined, jit, seed
from harmonium.backends.per_unit import add_rows, copy, draw, draw_one_hot, logistic


def work_space(like: Any, n: int, m: int, rows: int) -> tuple[Any, ...]:
    """Returns arrays for ``run`` to work in: numba would take half a second to compile the making of them."""
    empty, ones, most = partial(np.empty, dtype=like.dtype), np.ones(n, like.dtype), max(n, m, rows) + 1
    tables = empty((m, n)), empty((rows, n)), empty((rows, m))
    vectors = empty(rows), ones, ones.copy(), empty(n), empty(n), empty(m), empty(n), empty(m)
    noise = (np.empty(k // 2 * 2, np.float32) for k in (2 * n + 3, m + 1))
    return *tables, *vectors, np.empty(most, np.int64), empty(most), np.empty(1, np.uint64), *noise


@jit
def run(
    v: Any, row_weights: Any, rates: Any, keys: Any, parameters: Any, blocks: Any, floors: Any, lows: Any,
    chains: Any, hidden: Any, sweeps: int, persistent: bool, centred: bool, decay: float, lasso: float,
    clip_norm: float, momentum: float, velocity: Any, gradients: Any, norms: Any, space: Any,
) -> Any:  # fmt: skip
    """Makes updates in place until one has a gradient that is not finite; returns the number made.

    Batches v are (updates, rows, n), of the visible units, and the weights of their rows (updates, rows),
    relative to all data, or (updates, 0); rates, keys of the noise, and the norms that are filled (updates,).
    ``parameters`` and ``gradients`` are all of them, (n m + n + m + n,), and their parts: couplings W,
    (n, m), locations a, (n,), and b, (m,), and log-variances, (n,), read of Gaussian columns alone, whose
    variances have ``floors``, or None where the visible units are one block of two values: what serves the
    others, a fourth of all, is not compiled then. A row of ``blocks`` is the first column of some visible
    units, the end, how many, and the states of a one-hot unit, 1 of units with two values, 0 of Gaussian
    ones. ``lows`` are the lower values of visible and of hidden units; the upper one is 1. Chains are
    (chains, n) and (chains, m): they go on if ``persistent``, else begin at the batch and are room. ``decay``
    and ``lasso`` times W and its signs are taken off the gradient. ``clip_norm`` may be infinite.
    ``velocity`` is of all parameters and points downhill, as torch's optimisers keep it.
    """
    updates, rows, n = v.shape
    (all_, W, a, b, log_variance), (low0, low1) = parameters, lows
    g_all, gW, ga, gb, g_variance = gradients
    m, many, scalar = W.shape[1], len(chains), W.dtype.type
    W_t, states, means, weights, scale, deviation, field, x, h, offset0, offset1 = space[:11]
    which, by, state, noise0, noise1 = space[11:]
    uniform0 = noise0[: (n + 1) // 2 * 2]
    for update in range(updates):
        for i in range(n):
            for j in range(m):
                W_t[j, i] = W[i, j]
        if floors is not None:
            _find_scales(log_variance, blocks, floors, scale, deviation)
        mean = _weigh(row_weights[update], rows, many, persistent, weights)
        for r in range(rows + many):
            z, up, c = states[r], means[r], r - rows
            if c < 0:
                copy(v[update, r], z)
            else:
                seed(state, keys[update], c)
                if persistent:
                    copy(hidden[c], h)
                else:
                    fill(noise1, state)
                    draw(means[c], low1, noise1, h)
            for _ in range(1 if c < 0 else sweeps):
                if c >= 0:
                    _fields(h, W_t, a, which, by, field)
                    if floors is None:
                        fill(uniform0, state)
                        _decide(low0, field)
                        draw(field, low0, uniform0, x)
                    else:
                        _draw_blocks(field, blocks, low0, deviation, noise0, state, x)
                    copy(x, z)
                if floors is not None:
                    _rescale(scale, z)
                _fields(z, W, b, which, by, up)
                _decide(low1, up)
                if c >= 0:
                    fill(noise1, state)
                    draw(up, low1, noise1, h)
            if c >= 0 and persistent:
                copy(x, chains[c])
                copy(h, hidden[c])
        _differentiate(states, means, weights, low1, which, by, gW, ga, gb)
        if floors is not None:
            _differentiate_variances(states, weights, W, a, blocks, floors, scale, gW, ga, g_variance)
        if centred:
            _centre(states, means, weights, offset0, offset1, gW, ga, gb)
        norm = _decay(W, scalar(mean), scalar(decay), scalar(lasso), g_all, gW)
        norms[update] = norm
        if not norm < np.inf:
            return update
        clip, rate = scalar(clip_norm / norm if norm > clip_norm else 1.0), scalar(rates[update])
        for k in range(len(all_)):
            velocity[k] = scalar(momentum) * velocity[k] - clip * g_all[k]
            all_[k] -= rate * velocity[k]
    return updates


@inlined
def _find_scales(log_variance: Any, blocks: Any, floors: Any, scale: Any, deviation: Any) -> None:
    """Fills the precisions and deviations of Gaussian units."""
    for block in range(len(blocks)):
        if blocks[block, 3] == 0:
            for i in range(blocks[block, 0], blocks[block, 1]):
                variance = floors[i] + np.exp(log_variance[i])
                scale[i] = log_variance.dtype.type(1) / variance
                deviation[i] = np.sqrt(variance)


@inlined
def _rescale(scale: Any, z: Any) -> None:
    for i in range(len(z)):
        z[i] *= scale[i]


@jit
def _fields(x: Any, J: Any, bias: Any, which: Any, by: Any, field: Any) -> None:
    """Fills the fields x J, with the bias."""
    count = np.int64(0)  # of 0 alone numba would compile ``add_rows`` once more
    for i in range(len(x)):
        which[count] = i
        by[count] = x[i]
        count += x[i] != 0
    copy(bias, field)
    add_rows(field, J, which, by, count, J.dtype.type(1))


@jit
def _decide(low: Any, up: Any) -> None:
    """Turns fields into the probabilities of the upper values."""
    one = up.dtype.type(1)
    for j in range(len(up)):
        up[j] = logistic((one - low[j]) * up[j])


@inlined
def _draw_blocks(field: Any, blocks: Any, low: Any, deviation: Any, noise: Any, state: Any, x: Any) -> None:
    """Draws visible units, block by block, given their fields with the bias, which are room then."""
    for block in range(len(blocks)):
        first, end, units, q = blocks[block, 0], blocks[block, 1], blocks[block, 2], blocks[block, 3]
        unit_fields, drawn = field[first:end], x[first:end]
        if q == 0:
            normal = noise[: 2 * units + 2]
            fill_normal(normal[:units], normal, state)
            for i in range(units):
                drawn[i] = unit_fields[i] + deviation[first + i] * normal[i]
        else:
            uniform = noise[: (units + 1) // 2 * 2]
            fill(uniform, state)
            if q == 1:
                _decide(low[first:end], unit_fields)
                draw(unit_fields, low[first:end], uniform, drawn)
            else:
                draw_one_hot(unit_fields, q, uniform, drawn)


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
        count = np.int64(0)
        for r in range(rows):
            which[count] = r
            by[count] = weights[r] * states[r, i]
            count += states[r, i] != 0
        _clear(gW[i])
        add_rows(gW[i], means, which, by, count, one)


@inlined
def _differentiate_variances(
    states: Any, weights: Any, W: Any, a: Any, blocks: Any, floors: Any, scale: Any, gW: Any, ga: Any,
    g_variance: Any,
) -> None:  # fmt: skip
    """Fills the gradient by the log-variances of Gaussian units: θ = s (a, 1) and J = s W depend on them."""
    # ``states`` are s v, so that ga and gW are gradients by a and W. By ln s the gradient is
    # Δ⟨s v⟩ a - ½ s Δ⟨v²⟩ + Σ_j Δ⟨s v h_j⟩ W_j, the third of FORMULAS §2 with another sign; and
    # d ln s / d log-variance = floor s - 1, as 1/s = floor + exp(log-variance).
    one, half = W.dtype.type(1), W.dtype.type(0.5)
    for block in range(len(blocks)):
        if blocks[block, 3] == 0:
            first, end = blocks[block, 0], blocks[block, 1]
            for i in range(first, end):
                g_variance[i] = 0
            for r in range(len(weights)):
                for i in range(first, end):
                    g_variance[i] += weights[r] * states[r, i] * states[r, i]
            for i in range(first, end):
                gradient = ga[i] * a[i] - half * g_variance[i] / scale[i]
                for j in range(W.shape[1]):
                    gradient += gW[i, j] * W[i, j]
                g_variance[i] = (floors[i] * scale[i] - one) * gradient


@inlined
def _centre(
    states: Any, means: Any, weights: Any, offset0: Any, offset1: Any, gW: Any, ga: Any, gb: Any
) -> None:
    """Centres the gradient (``centred_pullback``) at the midpoint of the means of rows and chains."""
    # Weights add up to 1 over rows and to -1 over chains: half of their absolute values make the midpoint.
    # Then dW = ∇W - ∇a ⊗ μ₁ - μ₀ ⊗ ∇b and db = ∇b - dW μ (FORMULAS §2, centring).
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
def _decay(W: Any, mean: Any, decay: Any, lasso: Any, g_all: Any, gW: Any) -> Any:
    """Brings the gradient to the weight of its batch and takes off what penalties pull; returns its norm."""
    square = 0.0
    for i in range(len(W)):
        row_square = W.dtype.type(0)
        for j in range(W.shape[1]):
            gW[i, j] = mean * gW[i, j] - decay * W[i, j] - lasso * np.sign(W[i, j])
            row_square += gW[i, j] * gW[i, j]
        square += np.float64(row_square)
    for k in range(W.size, len(g_all)):
        g_all[k] *= mean
        square += np.float64(g_all[k]) ** 2
    return np.sqrt(square)
