"""Hidden units: their receptive fields in the data, and their means given rows."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium.chains import Gibbs, run
from harmonium.machine import BoltzmannMachine
from harmonium.sums import couplings_of_columns

SETTLING = 50  # sweeps of hidden layers that are joined to each other, given the data


def receptive_fields(machine: BoltzmannMachine) -> dict[int, Tensor]:
    """Returns the receptive fields: couplings, or their products on the shortest paths through layers.

    Returns:
        For each hidden layer (units, visible_width); of a machine without hidden layers the couplings of its
        visible ones.
    """
    hamiltonian = machine.hamiltonian()
    if not machine.hidden:
        return {l: x.T for l, x in machine.split(couplings_of_columns(hamiltonian)[0]).items()}
    eye = torch.eye(machine.visible_width, dtype=machine.dtype, device=machine.device)
    reached = {l: x.T for l, x in machine.split(eye).items()}  # (units, visible_width)
    frontier = set(reached)
    while frontier:
        following: dict[int, Tensor] = {}
        for l, m, J in hamiltonian.edges:
            for near, far, W in ((l, m, J.T), (m, l, J)):
                if near in frontier and far not in reached:
                    following[far] = following.get(far, 0) + W @ reached[near]
        reached |= following
        frontier = set(following)
    return {l: reached[l] for l in machine.hidden}


def hidden_means(machine: BoltzmannMachine, rows: Tensor, generator: torch.Generator) -> dict[int, Tensor]:
    """Returns the mean of every hidden unit given each row, by layer (rows, width_l).

    Exact where no hidden layers are joined. Elsewhere the means are given a draw of the other hidden layers,
    after 50 sweeps with the row clamped.

    Args:
        machine: the machine.
        rows: complete rows, (rows, visible_width).
        generator: source of noise.
    """
    start = machine.random_states(len(rows), seed=generator)
    states = run(machine, Gibbs(), start, 1 if machine.graph.independent else SETTLING, rows, seed=generator)
    hamiltonian = machine.hamiltonian()
    return {l: hamiltonian.mean(l, hamiltonian.field(l, states)) for l in machine.hidden}
