"""When the compiled kernel serves, and the way to it."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import torch

from harmonium import _random
from harmonium._parallel import COMPILED, COMPILED_VALUES, share_out
from harmonium.couplings.gibbs import Gibbs
from harmonium.couplings.jumps import Jumps
from harmonium.couplings.meetings import Meetings
from harmonium.couplings.pairs import PairKernel
from harmonium.machine import Clamp, Hamiltonian, States, Statistics

MAX_COUPLINGS = 1 << 14
"""Couplings up to which a pair alone is faster than a batch of pairs (docs/design_notes.md)."""
_SHARES = 32  # pairs are dealt into so many sums whatever the number of threads: so the bits stay the same


def suits(coupling: PairKernel, hamiltonian: Hamiltonian, clamp: Clamp) -> TypeGuard[Gibbs]:
    """Whether the compiled kernel has the law that is asked for and is the faster way to it."""
    return (
        COMPILED
        and isinstance(coupling, Gibbs)
        and coupling.even is None
        and coupling.odd is None
        and clamp.empty
        and (coupling.jumps is None or hamiltonian.layers[0].n_units <= 64)
        and hamiltonian.device.type == "cpu"
        and isinstance(hamiltonian.beta, float)
        and all(layer.two_values in COMPILED_VALUES for layer in hamiltonian.layers)
        and len(hamiltonian.layers) == 2
        and hamiltonian.couplings[0].numel() <= MAX_COUPLINGS
    )


def run_small_pairs(
    hamiltonian: Hamiltonian,
    coupling: Gibbs,
    start: States,
    *,
    k: int,
    m: int,
    lag: int,
    max_steps: int | None,
    generator: torch.Generator,
    into: Statistics | None,
    weight: float,
    antithetic: bool = False,
) -> Meetings:
    """``run_pairs`` by the compiled kernel; hidden states of the result are left as they were given."""
    from harmonium.couplings import compiled  # compiles at its first call, so not before it is wanted

    v = start[0]
    pairs, n0 = v.shape
    J = (hamiltonian.couplings[0].detach() * hamiltonian.beta).double().numpy()
    n1 = J.shape[1]
    biases = [theta[0].detach().double().numpy() for theta in hamiltonian.thetas]
    lows = [(layer.two_values or COMPILED_VALUES[0])[0] for layer in hamiltonian.layers]
    key = np.uint64(int(_random.integers(1 << 62, (), generator)))
    JT, states = np.ascontiguousarray(J.T), v.double().numpy()
    horizon = states.copy()
    jumps = _jumps(hamiltonian, coupling.jumps)
    times, tries, cost = (np.zeros(pairs, np.int64) for _ in range(3))
    capped = np.zeros(pairs, np.bool_)
    shares = min(_SHARES, pairs)
    flips = np.zeros((shares, 2), np.int64)
    sums = np.zeros((shares, n0)), np.zeros((shares, n1)), np.zeros((shares, n0, n1))

    mirrored_from = pairs // 2 if antithetic else 0

    def work(share: int) -> None:
        compiled.run(
            J, JT, biases[0], biases[1], lows[0], lows[1], states, share, shares, *jumps, key, k, m, lag,
            max_steps or 0, mirrored_from, weight, horizon, times, capped, tries, cost, flips[share],
            *(total[share] for total in sums),
        )  # fmt: skip

    share_out(work, shares)
    if into is not None:
        v_sum, h_sum, pair_sum = (torch.from_numpy(total.sum(0)).to(hamiltonian.dtype) for total in sums)
        into.add_sums([[v_sum], [h_sum]], [pair_sum])
    changed, seen = flips.sum(0)
    return Meetings(
        times=torch.from_numpy(times),
        capped=torch.from_numpy(capped),
        tries=torch.from_numpy(tries),
        cost=torch.from_numpy(cost),
        flip_rate=float(changed / max(seen, 1)),
        lag=lag,
        states=[torch.from_numpy(horizon).to(hamiltonian.dtype), *start[1:]],
    )


def _jumps(hamiltonian: Hamiltonian, jumps: Jumps | None) -> tuple[Any, Any, Any]:
    """Keys in rising order, states and free energies, as the kernel wants them."""
    if jumps is None:
        return np.zeros(0, np.uint64), np.zeros((0, hamiltonian.layers[0].width)), np.zeros(0)
    states = jumps.states.to(hamiltonian.dtype)
    free_energy = hamiltonian.free_energy([states, states], (1,)).numpy()
    bits = (states.numpy() > 0).astype(np.uint64)
    keys = np.zeros(len(bits), np.uint64)
    for column in bits.T:
        keys = (keys << np.uint64(1)) | column
    order = np.argsort(keys)
    return keys[order], np.ascontiguousarray(states.double().numpy()[order]), free_energy[order]
