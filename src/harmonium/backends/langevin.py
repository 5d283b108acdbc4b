"""Chains of a small machine of Gaussian visible and two-valued hidden units, compiled: each runs on its own.

The distribution is that of ``chains.langevin``. Eager tensor code spends its time on starting operations
where a machine has tens of units; here a sweep costs what its arithmetic costs, the field of a state is never
computed twice, and statistics are summed on the way. Needs numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium.backends.calls import SHARES, over, units_of
from harmonium.backends.choice import Machine
from harmonium.backends.noise import fill, fill_normal, jit, room_for, seed, stream, uniform
from harmonium.backends.per_unit import change, copy, draw, log_odds, probabilities, row_of


def run(
    hamiltonian: Machine, states: Sequence[Tensor], key: np.uint64, *,
    find_moves: Callable[[], Sequence[Any]], into: Any, weight: float, burn_in: int,
) -> tuple[list[Tensor], float, float] | None:  # fmt: skip
    """Runs free chains under a distribution that ``choice.small_chains`` serves, and adds their statistics.

    Args:
        hamiltonian: the machine in natural parameters.
        states: States of the chains, for each layer (chains, width_l).
        key: Key of the noise.
        find_moves: makes the ``chains.langevin.Relaxation`` of every sweep.
        into, weight, burn_in: as for ``chains.relax_alone``.

    Returns:
        The states of the chains, the acceptance, and the mean squared jump in units of the variance. None:
        the sums are to read what is not there.
    """
    moves, drawn = find_moves(), into.readings is not None
    if drawn and (any(into.readings) or moves[0].collapsed):
        return None
    adjusted = np.array([move.adjusted for move in moves])
    cold = np.array([1 / move.temperature for move in moves])
    J = np.ascontiguousarray((hamiltonian.J[0].detach() * hamiltonian.beta).numpy())
    n0, n1 = J.shape
    hidden = units_of(hamiltonian.thetas[1], [hamiltonian.layers[1].two_values])
    linear, precision = (theta.detach().double() for theta in hamiltonian.thetas[0])
    factors = torch.tensor([move[:2] for move in moves], dtype=torch.float64).T.unsqueeze(2)
    steps = [move.common or () for move in moves]  # in units of the mean variance
    common = moves[0].common and torch.tensor(steps, dtype=torch.float64).T.unsqueeze(2)
    units = moves[0]._replace(keep=factors[0], spread=factors[1], common=common).of_units(precision)
    keep, spread = (part.expand(len(moves), n0).contiguous().numpy() for part in units)
    v, h = (x.detach().numpy().copy() for x in states)
    chains = len(v)
    shares = min(SHARES, chains)
    sums = np.zeros((shares, n0)), np.zeros((shares, n0)), np.zeros((shares, n1)), np.zeros((shares, n0, n1))
    diagnostics = np.zeros((shares, 2))
    sweeps = keep, spread, adjusted, cold, moves[0].collapsed, burn_in, weight, drawn
    theta = linear.numpy(), precision.numpy()
    over(_run, shares, shares, sums, diagnostics, (J, hidden, *theta, v, h, key, *sweeps))
    first, second, third, pairs = (
        torch.from_numpy(total.sum(0)).to(hamiltonian.J[0].dtype) for total in sums
    )
    into.add_sums([[first, second], [third]], [pairs])
    acceptance, jump = diagnostics.sum(0) / (chains * len(moves))
    return [torch.from_numpy(v), torch.from_numpy(h)], float(acceptance), float(jump / n0)


@jit
def _run(first: int, last: int, shares: int, sums: Any, diagnostics_of: Any, arguments: Any) -> None:
    """Runs some of the shares in place: every ``shares``-th chain, with sums of its own.

    They are weight · E[S | v] of sweeps after burn-in. ``hidden`` is bias, gain and lower value of the
    hidden units. ``adjusted`` and ``cold``, the inverse temperature, have an entry for each sweep, ``keep``
    and ``spread`` one for each sweep and visible unit. ``diagnostics`` sums acceptances and squared jumps.
    ``drawn``: the sums read hidden units as they were drawn, not their means.
    """
    J, hidden, linear, precision, v_all, h_all, key, keep, spread, adjusted = arguments[:10]
    cold, collapsed, burn_in, weight, drawn = arguments[10:]
    bias, gain, low = hidden
    lean = low / gain
    n0, n1 = J.shape
    state, noise, normal, decide = stream(), room_for(n1), room_for(2 * n0 + 2), room_for(2)
    deviation = 1.0 / np.sqrt(precision)
    v, proposal = row_of(n0), row_of(n0)
    centre, there, xi = np.empty(n0), np.empty(n0), np.empty(n0)
    s, s_new, step, terms, factors = row_of(n1), row_of(n1), row_of(n1), row_of(n1), np.empty(n1)
    up, up_new, rare, rare_new = row_of(n1), row_of(n1), row_of(n1), row_of(n1)
    h, h_new, mean, mean_new = row_of(n1), row_of(n1), row_of(n1), row_of(n1)
    h_part, pair_part = row_of(n1), np.empty((n0, n1), np.float32)
    for share in range(first, last):
        v_sum, square_sum, diagnostics = sums[0][share], sums[1][share], diagnostics_of[share]
        h_sum, pair_sum = sums[2][share], sums[3][share]
        for chain in range(share, len(v_all), shares):
            seed(state, key, chain)
            copy(v_all[chain], v)
            copy(h_all[chain], h)
            h_part[:] = 0
            pair_part[:] = 0
            _hidden(v, J, bias, gain, low, s, up, rare, mean)
            for sweep in range(len(keep)):
                _centre(mean if collapsed else h, J, linear, precision, centre)
                fill_normal(xi, normal, state)
                forward = 0.0
                for i in range(n0):
                    target = centre[i] + keep[sweep, i] * (v[i] - centre[i])
                    proposal[i] = target + spread[sweep, i] * deviation[i] * xi[i]
                    forward += xi[i] * xi[i]
                _hidden(proposal, J, bias, gain, low, s_new, up_new, rare_new, mean_new)
                if not collapsed:
                    fill(noise, state)
                    draw(up_new, low, noise, h_new)
                taken = True
                if adjusted[sweep]:
                    for j in range(n1):
                        step[j] = s_new[j] - s[j]
                    log_ratio, backward = change(s, step, rare, terms, factors), 0.0
                    for j in range(n1):
                        log_ratio += np.float64(lean[j] * step[j])
                    _centre(mean_new if collapsed else h_new, J, linear, precision, there)
                    for i in range(n0):
                        old, new = np.float64(v[i]), np.float64(proposal[i])
                        back = old - there[i] - keep[sweep, i] * (new - there[i])
                        back /= spread[sweep, i] * deviation[i]
                        backward += back * back
                        log_ratio += (new - old) * (linear[i] - 0.5 * precision[i] * (new + old))
                    log_ratio = log_ratio * cold[sweep] + 0.5 * (forward - backward)
                    fill(decide, state)
                    taken = np.log(uniform(decide, 0)) < log_ratio
                if taken:
                    diagnostics[0] += 1
                    for i in range(n0):
                        jump = (proposal[i] - v[i]) / deviation[i]
                        diagnostics[1] += jump * jump
                    v, proposal, s, s_new, h, h_new = proposal, v, s_new, s, h_new, h
                    up, up_new, rare, rare_new, mean, mean_new = up_new, up, rare_new, rare, mean_new, mean
                if collapsed and sweep == len(keep) - 1:  # statistics read means
                    fill(noise, state)
                    draw(up, low, noise, h)
                if sweep >= burn_in:
                    read = h if drawn else mean
                    for j in range(n1):
                        h_part[j] += read[j]
                    for i in range(n0):
                        value = v[i]
                        v_sum[i] += weight * value
                        square_sum[i] -= 0.5 * weight * value * value
                        for j in range(n1):
                            pair_part[i, j] += value * read[j]
            for j in range(n1):
                h_sum[j] += weight * h_part[j]
            for i in range(n0):
                for j in range(n1):
                    pair_sum[i, j] += weight * pair_part[i, j]
            copy(v, v_all[chain])
            copy(h, h_all[chain])


@jit
def _hidden(v: Any, J: Any, bias: Any, gain: Any, low: Any, s: Any, up: Any, rare: Any, mean: Any) -> None:
    """Finds log-odds, probabilities and means of the hidden units given v."""
    log_odds(v, J, bias, gain, s)
    probabilities(s, up, rare)
    for j in range(len(s)):
        mean[j] = low[j] + (np.float32(1) - low[j]) * up[j]


@jit
def _centre(h: Any, J: Any, linear: Any, precision: Any, centre: Any) -> None:
    """Finds means of the visible units given the hidden ones, or their means."""
    for i in range(len(centre)):
        field = np.float32(0)
        for j in range(len(h)):
            field += h[j] * J[i, j]
        centre[i] = (linear[i] + field) / precision[i]
