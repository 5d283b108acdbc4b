"""Means of hidden units given rows."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium.chains import Gibbs, run
from harmonium.machine import BoltzmannMachine

SETTLING = 50  # sweeps of hidden layers that are joined to each other, given the data


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
