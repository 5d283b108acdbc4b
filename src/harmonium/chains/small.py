"""When the compiled chains serve, and the way to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from harmonium import _random
from harmonium._parallel import COMPILED, COMPILED_VALUES, share_out
from harmonium.chains.gibbs import Gibbs
from harmonium.chains.gibbs_langevin import GibbsLangevin
from harmonium.chains.kernel import Kernel
from harmonium.chains.langevin import Langevin
from harmonium.chains.relaxation import Relaxation
from harmonium.machine import Hamiltonian, States, Statistics

MAX_COUPLINGS = 1 << 12
"""Couplings up to which a chain alone is faster than a batch of chains (docs/design_notes.md)."""
_SHARES = 32  # chains are dealt into so many sums whatever the number of threads: so the bits stay the same


def suits(kernel: Kernel, hamiltonian: Hamiltonian) -> bool:
    """Whether the compiled chains have the law that is asked for and are the faster way to it."""
    layers = hamiltonian.layers
    return (
        COMPILED
        and isinstance(kernel, (Gibbs, Langevin, GibbsLangevin))
        and len(layers) == 2
        and layers[0].gaussian
        and layers[1].two_values in COMPILED_VALUES
        and hamiltonian.device.type == "cpu"
        and hamiltonian.dtype is torch.float32
        and isinstance(hamiltonian.beta, float)
        and hamiltonian.couplings[0].numel() <= MAX_COUPLINGS
    )


def advance_small(
    hamiltonian: Hamiltonian,
    kernel: Kernel,
    states: States,
    sweeps: int,
    generator: torch.Generator,
    *,
    into: Statistics,
    weight: float,
    burn_in: int,
    marginal: bool,
) -> tuple[States, dict[str, float]]:
    """``advance`` of free chains by compiled code, which also adds their statistics.

    Args:
        hamiltonian, kernel, states, sweeps, generator: as in ``advance``.
        into: where to add.
        weight: of every state of every chain after burn-in.
        burn_in: sweeps left out of the statistics.
        marginal: whether the hidden layer is summed out of them.

    Returns:
        The states, and the diagnostics of ``relaxation`` as means over chains and sweeps.
    """
    from harmonium.chains import compiled  # compiles at its first call, so not before it is wanted

    run: Any = compiled.run

    moves = [_move(kernel.at(sweep, sweeps)) for sweep in range(sweeps)]
    keep, spread = np.array([move.keep for move in moves]), np.array([move.spread for move in moves])
    adjusted = np.array([move.adjusted for move in moves])
    J = (hamiltonian.couplings[0].detach() * hamiltonian.beta).numpy()
    n0, n1 = J.shape
    linear, precision = (theta.detach().double().numpy() for theta in hamiltonian.thetas[0])
    low, high = hamiltonian.layers[1].two_values or COMPILED_VALUES[0]
    v, h = (x.detach().numpy().copy() for x in states)
    key = np.uint64(int(_random.integers(1 << 62, (), generator)))
    chains = len(v)
    shares = min(_SHARES, chains)
    sums = np.zeros((shares, n0)), np.zeros((shares, n0)), np.zeros((shares, n1)), np.zeros((shares, n0, n1))
    diagnostics = np.zeros((shares, 2))

    def work(share: int) -> None:
        run(
            np.ascontiguousarray(J), hamiltonian.thetas[1][0].detach().numpy(),
            np.float32(high - low), np.float32(low), linear, precision, v, h, share,
            shares, key, keep, spread, adjusted, moves[0].collapsed, marginal, burn_in, weight,
            *(total[share] for total in sums), diagnostics[share],
        )  # fmt: skip

    share_out(work, shares)
    first, second, hidden, pairs = (torch.from_numpy(total.sum(0)).to(hamiltonian.dtype) for total in sums)
    into.add_sums([[first, second], [hidden]], [pairs])
    acceptance, jump = diagnostics.sum(0) / (chains * sweeps)
    known = {} if isinstance(kernel, Gibbs) else {"acceptance": acceptance, "squared_jump": jump / n0}
    return [torch.from_numpy(v), torch.from_numpy(h)], {name: float(x) for name, x in known.items()}


def _move(kernel: Kernel) -> Relaxation:
    if isinstance(kernel, (Langevin, GibbsLangevin)):
        return kernel.relaxation
    return Relaxation(0.0, 1.0, collapsed=False, adjusted=False)
