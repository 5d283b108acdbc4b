"""The pseudo-likelihood at a bounded cost."""

from __future__ import annotations

import torch

from harmonium.likelihood import pseudo_log_likelihood
from harmonium.machine import BoltzmannMachine


def bounded_pseudo_likelihood(
    machine: BoltzmannMachine, X: torch.Tensor, units: int, seed: int
) -> torch.Tensor:
    """Pseudo-log-likelihood of every row, from ``units`` drawn visible units a row or exactly from all."""
    if units >= visible_units(machine):
        return pseudo_log_likelihood(machine, X)
    return pseudo_log_likelihood(machine, X, sampled=units, seed=seed)


def visible_units(machine: BoltzmannMachine) -> int:
    """Returns the number of units of all visible layers."""
    return sum(machine.layers[l].n_units for l in machine.visible)
