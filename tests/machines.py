"""Machines for tests of every folder."""

from __future__ import annotations

import torch

import harmonium as hm
from harmonium._random import as_generator


@torch.no_grad()
def with_normal_parameters(
    machine: hm.BoltzmannMachine, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float32
) -> hm.BoltzmannMachine:
    """Fills all parameters with draws of N(0, scale²) in some precision; returns the machine."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in machine.parameters():
        parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=dtype))
    return machine


def request_of(
    machine: hm.BoltzmannMachine,
    v: torch.Tensor,
    seed: int | torch.Generator,
    weights: torch.Tensor | None = None,
) -> hm.learning.ExpectationRequest:
    """The request of both phases of ``Rule.gradient`` for these arguments, with an empty sum."""
    rows, row_weights, complete = hm.rules.exact().checked(machine, v, weights)
    generator, hamiltonian = as_generator(seed, machine.device), machine.hamiltonian()
    sums = hm.machine.Statistics(hamiltonian)
    return hm.learning.ExpectationRequest(
        hamiltonian, rows, generator, sums, complete, row_weights=row_weights
    )
