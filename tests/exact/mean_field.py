"""Random machines for the mean-field solvers, with couplings of a given scale."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

import harmonium as hm

B, S, G, C = hm.Bernoulli, hm.Spin, hm.Gaussian, hm.Categorical
TIGHT = {"tolerance": 1e-12, "max_sweeps": 20_000, "damping": 0.3}
SEEDS = range(3)

# Large enough for mean field to mean something, small enough to be enumerated.
MACHINES: dict[str, Callable[[], list[hm.layers.Layer]]] = {
    "bernoulli": lambda: [B(12), B(12)],
    "spin": lambda: [S(14), S(12)],
    "gaussian-bernoulli": lambda: [G(12), B(12)],
    "categorical-bernoulli": lambda: [C(6, 3), B(10)],
    "categorical-categorical": lambda: [C(6, 3), C(6, 3)],
    "truncated-bernoulli": lambda: [hm.TruncatedGaussian(12, -1.0, 1.5), B(12)],
    "spin-truncated-gauss-bernoulli": lambda: [S(12), hm.TruncatedGaussBernoulli(12, -0.5, 1.0)],
    "truncated deep": lambda: [
        hm.TruncatedGaussBernoulli(8, 0.0, 1.0),
        B(10),
        hm.TruncatedGaussian(8, 0.0, 2.0),
    ],
    "bernoulli deep": lambda: [B(9), B(11), B(9)],
    "spin-bernoulli-spin": lambda: [S(8), B(12), S(8)],
    "bernoulli-categorical-spin": lambda: [B(10), C(5, 3), S(6)],
}


def random_machine(name: str, seed: int, scale: float) -> hm.BoltzmannMachine:
    """Biases of order one half and couplings N(0, scale²/N) with N units, the same noise at every scale."""
    generator = torch.Generator().manual_seed(seed)
    machine = hm.BoltzmannMachine(MACHINES[name]()).double()
    units = sum(layer.n_units for layer in machine.layers)
    with torch.no_grad():
        for layer in machine.layers:
            for label, parameter in layer.named_parameters():
                spread = 0.0 if label == "log_variance" else 0.5
                parameter.copy_(spread * torch.randn(parameter.shape, generator=generator))
        for W in (coupling.weight for coupling in machine.couplings):
            W.copy_(scale / units**0.5 * torch.randn(W.shape, generator=generator, dtype=torch.float64))
    return machine


@cache
def exact_log_partition(name: str, seed: int, scale: float) -> float:
    """That of ``random_machine``, which several solvers are compared with."""
    return hm.likelihood.exact_log_partition(random_machine(name, seed, scale))


def tight(scale: float) -> dict[str, Any]:
    """Settings for couplings of a scale: weak ones need little damping."""
    return TIGHT | {"damping": 0.05 if scale < 0.5 else 0.3}


def noise(machine: hm.BoltzmannMachine, rows: int = 1) -> torch.Tensor:
    return machine.random_states(rows, seed=torch.Generator().manual_seed(1))[0]
