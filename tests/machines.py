"""Machines for tests of every folder."""

from __future__ import annotations

import torch

import harmonium as hm


@torch.no_grad()
def with_normal_parameters(
    machine: hm.BoltzmannMachine, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float32
) -> hm.BoltzmannMachine:
    """Fills all parameters with draws of N(0, scale²) in some precision; returns the machine."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in machine.parameters():
        parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=dtype))
    return machine
