"""A Gibbs sweep of fully visible machines, whose units are joined to few others or to all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

import harmonium as hm
from benchmarks.race import Contestant, Table, compare, repeat

SPINS, DEGREE, CHAINS = 400, 6, 1000
CASES = (
    "400 Spin, random neighbours, at most 6",
    "400 Bernoulli, the same",
    "400 Spin, 20 × 20 lattice",
    "400 Spin, all joined",
    "50 Categorical of 21 states, all joined",
)


def random_neighbours(units: int, degree: int, generator: torch.Generator) -> Tensor:
    """A symmetric mask that joins random pairs until hardly a unit has room: (units, units) booleans."""
    mask = torch.zeros(units, units, dtype=torch.bool)
    for i, j in torch.randint(units, (20 * units, 2), generator=generator).tolist():
        if i != j and max(int(mask[i].sum()), int(mask[j].sum())) < degree:
            mask[i, j] = mask[j, i] = True
    return mask


def lattice(side: int) -> Tensor:
    """Nearest neighbours of a square with open ends."""
    line = torch.arange(side)
    place = torch.cartesian_prod(line, line)
    return (place.unsqueeze(1) - place).abs().sum(-1) == 1


def sparse_sweeps(quick: bool) -> Table:
    table = Table(
        "sparse-sweeps",
        "Fully visible machines: one Gibbs sweep",
        "÷ the first",
        notes=["1,000 chains, 500 of the Potts machine"],
    )
    generator = torch.Generator().manual_seed(0)
    neighbours = random_neighbours(SPINS, DEGREE, generator)
    machines = (
        (hm.Spin(SPINS), hm.Masked(neighbours), CHAINS),
        (hm.Bernoulli(SPINS), hm.Masked(neighbours), CHAINS),
        (hm.Spin(SPINS), hm.Masked(lattice(20)), CHAINS),
        (hm.Spin(SPINS), hm.Dense(), CHAINS),
        (hm.Categorical(50, 21), hm.Dense(), 500),
    )
    contestants: dict[str, Contestant] = {}
    colours = {}
    for name, (layer, coupling, chains) in zip(CASES, machines, strict=True):
        machine = hm.BoltzmannMachine([layer], {(0, 0): coupling})
        coupling.fill_(0.1 * torch.randn(coupling.weight.shape, generator=generator).triu(1))
        colours[name] = len(machine.graph.colours)
        contestants[name] = repeat(sweep_of(machine, chains), 1)
    with torch.no_grad():
        compare(table, contestants, 5 if quick else 25)
    table.rows = [replace(row, figures={"colours": colours[row.contestant]}) for row in table.rows]
    return table


def sweep_of(machine: hm.BoltzmannMachine, chains: int) -> Callable[[], None]:
    """A sweep that goes on from the last one's states, without its fields."""
    hamiltonian, generator = machine.hamiltonian(), torch.Generator().manual_seed(1)
    kernel = hm.chains.Gibbs()
    state = kernel.init(hamiltonian, machine.random_states(chains, seed=generator), generator)

    def sweep() -> None:
        nonlocal state
        state, _ = kernel.step(hamiltonian, hm.chains.KernelState(state.states, state.sweeps), generator)

    return sweep
