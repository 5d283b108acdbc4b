"""Kernels on graphs with Gaussian layers do not drift. Failure rate of every test: at most 1e-3."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from exact.graphs import oracle_of
from machines import with_normal_parameters

import harmonium as hm
from harmonium.chains import Gibbs, GibbsLangevin, Kernel, Langevin, Metropolis

from .support import largest_z

ROWS = 10_000
SWEEPS = 3
Bernoulli, Spin, Categorical, Gaussian = hm.Bernoulli, hm.Spin, hm.Categorical, hm.Gaussian

GRAPHS: dict[str, Callable[[], hm.BoltzmannMachine]] = {
    "three visible layers in another order": lambda: hm.BoltzmannMachine(
        [Categorical(1, 3), Spin(2), Gaussian(2), Bernoulli(3)],
        edges=[(0, 3), (1, 3), (2, 3)],
        visible=[2, 0, 1],
    ),
    "a Gaussian layer joined to two": lambda: hm.BoltzmannMachine(
        [Gaussian(3), Bernoulli(3), Spin(2)], edges=[(0, 1), (0, 2)]
    ),
    "hidden Gaussian units": lambda: hm.BoltzmannMachine(
        [Bernoulli(3), Gaussian(2), Spin(3)], visible=[0, 2]
    ),
    "Gaussian layers in a chain": lambda: hm.BoltzmannMachine(
        [Gaussian(2), Bernoulli(3), Gaussian(2), Bernoulli(2)], edges=[(0, 1), (0, 3), (1, 2)], visible=[0, 1]
    ),
    "a Gaussian layer without edges": lambda: hm.BoltzmannMachine(
        [Bernoulli(3), Gaussian(2), Bernoulli(2)], edges=[(0, 2)], visible=[1, 0]
    ),
}
CORRECT = [
    Gibbs(),
    Metropolis(),
    Langevin(0.3),
    GibbsLangevin(0.2, 3, "metropolis"),
    GibbsLangevin(0.3, 3, "exact"),
]


def make(name: str) -> hm.BoltzmannMachine:
    return with_normal_parameters(GRAPHS[name]().double(), 0.5, 5, torch.float64)


@torch.no_grad()
def exact_draws(machine: hm.BoltzmannMachine, generator: torch.Generator) -> list[torch.Tensor]:
    """The discrete layers by their weights with the Gaussian ones summed out, then these given those."""
    hamiltonian, layers = machine.hamiltonian(), machine.layers
    discrete = [l for l, layer in enumerate(layers) if layer.discrete]
    real = [l for l, layer in enumerate(layers) if not layer.discrete]
    units = [range(layers[l].n_states) for l in discrete for _ in range(layers[l].n_units)]
    parts = torch.tensor(list(product(*units))).split([layers[l].n_units for l in discrete], 1)
    states = [torch.empty(len(parts[0]), 0, dtype=torch.float64) for _ in layers]
    for l, digits in zip(discrete, parts, strict=True):
        states[l] = layers[l].from_digits(digits).double()
    weights = (-hamiltonian.free_energy(states, real)).softmax(0)
    rows = torch.multinomial(weights, ROWS, replacement=True, generator=generator)
    states = [x[rows] for x in states]
    for l in real:
        states[l] = hamiltonian.sample(l, hamiltonian.field(l, states), generator)
    return states


def drift(name: str, kernel: Kernel) -> tuple[float, float]:
    machine, generator = make(name), torch.Generator().manual_seed(1)
    start = exact_draws(machine, generator)
    states = hm.chains.run(machine, kernel, start, SWEEPS, seed=generator)
    layers, edges = oracle_of(machine).expectations()
    columns = []
    for layer, x in zip(machine.layers, states, strict=True):
        columns += [x, -0.5 * x.square()] if layer.gaussian else [x]
    columns += [(states[l].unsqueeze(-1) * states[m].unsqueeze(-2)).flatten(1) for l, m in machine.edges]
    truth = torch.cat([part.flatten() for part in (*(t for layer in layers for t in layer), *edges)])
    return largest_z(torch.cat(columns, 1), truth.detach())


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("kernel", CORRECT, ids=repr)
def test_no_drift(name, kernel):
    z, limit = drift(name, kernel)
    assert z < limit


@pytest.mark.parametrize("name", [name for name in GRAPHS if "without" not in name])
def test_a_wrong_kernel_is_caught(name):
    z, limit = drift(name, Langevin(0.9, adjust=None))
    assert z > limit
