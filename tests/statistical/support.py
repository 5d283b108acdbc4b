"""Small machines, exact draws from them, and comparisons with a stated failure rate.

Every comparison here is two-sided and normal in the limit; ``z_limit`` and ``largest_z`` share FAILURE_RATE
over all comparisons of a test, so a correct library fails a test with at most that probability for a fresh
seed.
"""

from __future__ import annotations

from itertools import pairwise, product

import torch
from scipy import stats
from torch import Tensor

import harmonium as hm
from harmonium.layers import Layer
from harmonium.machine import Hamiltonian, Statistics
from harmonium.sums import expect

FAILURE_RATE = 1e-3

MACHINES = {
    "bernoulli-spin": lambda: [hm.Bernoulli(4), hm.Spin(3)],
    "categorical-bernoulli": lambda: [hm.Categorical(2, 3), hm.Bernoulli(3)],
    "gaussian-bernoulli": lambda: [hm.Gaussian(3), hm.Bernoulli(4)],
    "bernoulli-gaussian": lambda: [hm.Bernoulli(4), hm.Gaussian(2)],
    "spin-bernoulli-categorical": lambda: [hm.Spin(3), hm.Bernoulli(3), hm.Categorical(1, 3)],
    "sparse-bernoulli": lambda: [hm.TruncatedGaussBernoulli(1, -0.5, 1.0), hm.Bernoulli(3)],
    "gaussian-spin-gaussian": lambda: [hm.Gaussian(2), hm.Spin(3), hm.Gaussian(2)],
    "binomial-relu": lambda: [hm.Binomial(2, 2), hm.ReLU(1)],
}
FOR_CHAINS = {"double_relu-spin": lambda: [hm.DoubleReLU(2), hm.Spin(3)]}
"""More machines for chains; pairs of them meet too slowly for a test of every estimate."""


DISCRETE = [name for name, layers in MACHINES.items() if all(layer.discrete for layer in layers())]


def machine(name: str, seed: int = 0, scale: float = 0.7) -> hm.BoltzmannMachine:
    """A machine with parameters N(0, scale²); Gaussian variances spread from about 0.2 to 5."""
    generator = torch.Generator().manual_seed(seed)
    made = hm.BoltzmannMachine((MACHINES | FOR_CHAINS)[name](), seed=generator)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return made.double()


def z_limit(comparisons: int, rate: float = FAILURE_RATE) -> float:
    """The |z| that a normal variate passes in none of so many comparisons with probability 1 - rate."""
    return float(stats.norm.isf(rate / (2 * comparisons)))


def all_states(layer: Layer) -> Tensor:
    """Every joint state of a discrete layer, (n_states ** n_units, width)."""
    digits = list(product(range(layer.n_states), repeat=layer.n_units))
    return layer.from_digits(torch.tensor(digits)).double()


def exact_states(made: hm.BoltzmannMachine, rows: int, generator: torch.Generator) -> list[Tensor]:
    """Independent draws from the machine's distribution: one colour by enumeration, the other given it."""
    hamiltonian = made.hamiltonian()
    layers, other = hamiltonian.graph.sides("exact draws")
    if not all(made.layers[l].discrete for l in layers):
        layers, other = other, layers
    grids = [all_states(made.layers[l]) for l in layers]
    index = torch.cartesian_prod(*[torch.arange(len(grid)) for grid in grids]).view(-1, len(grids))
    states = [torch.empty(0)] * len(made.layers)
    for l, grid, column in zip(layers, grids, index.T, strict=True):
        states[l] = grid[column]
    probability = (-hamiltonian.free_energy(states, other)).softmax(0)
    drawn = torch.multinomial(probability, rows, replacement=True, generator=generator)
    for l in layers:
        states[l] = states[l][drawn]
    for l in other:
        states[l] = hamiltonian.sample(l, hamiltonian.field(l, states), generator)
    return [x.detach() for x in states]


def exact_statistics(hamiltonian: Hamiltonian) -> Tensor:
    """E[S] as one vector."""
    total = Statistics(hamiltonian)
    expect(hamiltonian, total, 1.0)
    return flat(total)


def flat(statistics: Statistics) -> Tensor:
    """All sums as one vector."""
    parts = [part for theta in statistics.thetas for part in theta] + statistics.products
    return torch.cat([part.flatten() for part in parts]).detach()


def row_statistics(hamiltonian: Hamiltonian, states: list[Tensor]) -> Tensor:
    """S(x) of every row, (rows, statistics)."""
    parts = [t for layer, x in zip(hamiltonian.layers, states, strict=True) for t in layer.statistics(x)]
    parts += [(x.unsqueeze(-1) * y.unsqueeze(-2)).flatten(1) for x, y in pairwise(states)]
    return torch.cat(parts, 1)


def largest_z(samples: Tensor, expected: Tensor) -> tuple[float, float]:
    """The largest |z| of column means against expectation, and its limit; constant columns must be equal.

    The limit is Student's, as the errors are estimated from the same, often few, samples.
    """
    error = samples.std(0) / len(samples) ** 0.5
    difference = (samples.mean(0) - expected).abs()
    fixed = error < 1e-12
    assert bool((difference[fixed] < 1e-9).all())
    z = difference[~fixed] / error[~fixed]
    return float(z.max()), float(stats.t.isf(FAILURE_RATE / (2 * len(z)), len(samples) - 1))
