"""Data from a machine that is known."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium.chains.gibbs import Gibbs
from harmonium.chains.run import run
from harmonium.machine import BoltzmannMachine


def planted(
    machine: BoltzmannMachine, rows: int, *, sweeps: int = 1000, seed: int | torch.Generator = 0
) -> Tensor:
    """Visible states of independent chains of a machine: data whose law is known, to learn a machine from.

    The chains start from noise. Whether ``sweeps`` are enough for the machine is for the caller to judge, by
    ``couplings.meet`` for instance; a strongly coupled machine may need tempering instead.

    Args:
        machine: the planted machine.
        rows: how many, at least 1.
        sweeps: Gibbs sweeps of every chain, at least 1.
        seed: an int or a generator.

    Returns:
        (rows, visible_width), in the machine's dtype.
    """
    _checks.positive_int(rows, "rows")
    _checks.positive_int(sweeps, "sweeps")
    generator = _random.as_generator(seed, machine.device)
    noise = machine.random_states(rows, seed=generator)
    states = run(machine, Gibbs(), noise, sweeps, seed=generator)
    return machine.hamiltonian().seen(states)
