"""The pseudo-likelihood at a bounded cost."""

from __future__ import annotations

import torch

from harmonium._random import as_generator
from harmonium.likelihood import pseudo_log_likelihood
from harmonium.machine import BoltzmannMachine


def missing_pseudo_likelihood(machine: BoltzmannMachine) -> str | None:
    """Why a machine has no pseudo-likelihood; None where it has one."""
    if len(machine.layers) != 2:
        return f"it needs one hidden layer, the machine has {len(machine.layers) - 1}"
    if not machine.layers[0].discrete:
        return f"it needs discrete visible units, the machine has {machine.layers[0]}"
    return None


def bounded_pseudo_likelihood(
    machine: BoltzmannMachine, X: torch.Tensor, units: int, seed: int
) -> torch.Tensor:
    """Pseudo-log-likelihood of every row, from ``units`` drawn visible units a row or exactly from all."""
    if units >= machine.layers[0].n_units:
        return pseudo_log_likelihood(machine, X)
    generator = as_generator(seed, machine.device)
    return pseudo_log_likelihood(machine, X, sampled=units, generator=generator)
