"""Compiled sweeps over the edges of a sparse graph have the transition of plain sums over all states.

Failure rate of every statistical test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

import tracemalloc
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from machines import with_normal_parameters
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ellipk
from statistical.support import FAILURE_RATE

import harmonium as hm
from harmonium.backends import RowsInTurn, SparsityPattern, choice, colouring

pytest.importorskip("numba")
sparse_sweeps = pytest.importorskip("harmonium.backends.sparse_sweeps")
join_edges, sweep_edges = sparse_sweeps.join_edges, sparse_sweeps.sweep_edges

CHAINS = 64 * 700 + 11  # lots of unequal size
KERNELS = ("gibbs", "metropolis")
VALUES = ((-1.0, 1.0), (0.0, 1.0))


def lattice(side: int, closed: bool) -> NDArray[np.int64]:
    """Nearest neighbours of a square, open or closed to a torus."""
    node = np.arange(side * side).reshape(side, side)
    if not closed:
        return np.concatenate(
            [
                np.stack([node[1:], node[:-1]], -1).reshape(-1, 2),
                np.stack([node[:, 1:], node[:, :-1]], -1).reshape(-1, 2),
            ]
        )
    steps = [np.stack([node, np.roll(node, -1, axis)], -1).reshape(-1, 2) for axis in (0, 1)]
    return np.concatenate(steps)


def random_pairs(nodes: int, edges: int, seed: int) -> NDArray[np.int64]:
    """Some of the pairs of nodes, in no order, with either node first."""
    generator = np.random.default_rng(seed)
    every = np.argwhere(np.triu(np.ones((nodes, nodes), bool), 1))
    return generator.permuted(generator.permutation(every)[:edges], axis=1)


def compress_rows(pairs: NDArray[np.int64], nodes: int) -> RowsInTurn:
    """Neighbours in the order of a sweep."""
    joined = hm.Sparse(torch.as_tensor(pairs).view(-1, 2).long())
    return hm.BoltzmannMachine([hm.Spin(nodes)], {(0, 0): joined}, [0], seed=None).graph.rows_in_turn(0)


def n_colours(rows: RowsInTurn) -> int:
    return len(rows.colour_starts) - 1


GRAPHS = {
    "open 3 × 3": (9, lattice(3, False)),
    "closed 3 × 3": (9, lattice(3, True)),
    "random": (7, random_pairs(7, 10, 1)),
    "complete": (5, random_pairs(5, 10, 2)),
    "a node alone": (6, np.array([[0, 1], [4, 1], [4, 5], [5, 3]])),
}


def keys(seed: int, sweeps: int = 1) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(1 << 62, size=sweeps).astype(np.uint64)


class Oracle:
    """The joint density and the transition of one sweep, by plain sums over all states, float64."""

    def __init__(self, rows: RowsInTurn, pairs: NDArray[np.int64], values: tuple[float, float], seed: int):
        generator = np.random.default_rng(seed)
        self.rows, self.pairs, self.values = rows, pairs, values
        self.bias = generator.normal(0, 0.5, len(rows.order)).astype(np.float32)
        self.J = generator.normal(0, 0.7, len(pairs)).astype(np.float32)
        self.states = np.array(list(product(values, repeat=len(rows.order))))

    def density(self, beta: float = 1.0, outside: NDArray[np.float64] | float = 0.0) -> NDArray[np.float64]:
        """The probability of every state."""
        x, (i, j) = self.states, self.pairs.T
        exponent = x @ (self.bias.astype(float) + outside) + beta * (x[:, i] * x[:, j]) @ self.J
        weight = np.exp(exponent - exponent.max())
        return weight / weight.sum()

    def transition(
        self, kernel: str, density: NDArray[np.float64], held: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """The probability of every state (column) after a sweep from every state (row)."""
        size = len(self.states)
        whole = np.eye(size)
        for node in self.rows.order:
            bit = 1 << (len(self.rows.order) - 1 - node)
            other = np.arange(size) ^ bit
            if kernel == "gibbs":
                change = density[other] / (density + density[other])
            else:
                change = 0.5 * np.minimum(1, density[other] / density)
            if held is not None and held[node]:
                change = np.zeros(size)
            step = np.diag(1 - change)
            step[np.arange(size), other] = change
            whole = whole @ step
        return whole

    def couplings(self):
        return torch.from_numpy(self.bias), join_edges(torch.from_numpy(self.J), self.rows, self.values)

    def start(self, number: int, chains: int = CHAINS) -> torch.Tensor:
        """Chains that are all in one of the states."""
        return torch.from_numpy(self.states[number]).float().expand(chains, -1)

    def numbers(self, states: torch.Tensor) -> NDArray[np.int64]:
        """Which of the states each chain is in."""
        assert set(states.unique().tolist()) <= set(self.values)
        bits = (states.numpy() == self.values[1]).astype(np.int64)
        return bits @ (1 << np.arange(len(self.rows.order))[::-1])

    def counts(self, states: torch.Tensor) -> NDArray[np.int64]:
        return np.bincount(self.numbers(states), minlength=len(self.states))


def make(graph: str, values: tuple[float, float] = (-1.0, 1.0), seed: int = 5) -> Oracle:
    nodes, pairs = GRAPHS[graph]
    return Oracle(compress_rows(pairs, nodes), pairs, values, seed)


def agree(counts: NDArray[np.int64], probability: NDArray[np.float64], comparisons: int) -> bool:
    """Passes a χ² test of counts, rare states taken together."""
    expected = probability * counts.sum()
    assert counts[expected < 1e-9].sum() == 0
    often = expected >= 10
    observed, wanted = (np.append(x[often], x[~often].sum()) for x in (counts, expected))
    present = wanted > 1e-6
    found = stats.chisquare(observed[present], wanted[present] * observed.sum() / wanted[present].sum())
    return bool(found.pvalue > FAILURE_RATE / comparisons)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("values", VALUES)
def test_one_sweep_is_the_product_of_its_units(graph, kernel, values):
    oracle = make(graph, values)
    transition = oracle.transition(kernel, oracle.density())
    for key, number in enumerate((0, len(oracle.states) // 3)):
        end = sweep_edges(oracle.start(number), *oracle.couplings(), keys(key), kernel=kernel)
        assert agree(oracle.counts(end), transition[number], 2)


@pytest.mark.parametrize("chains", [1, 8, 9, 17, 64, 65, 200])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.mostly_nightly(2)
def test_words_of_any_size_have_one_transition(chains, kernel):
    """Few chains by many sweeps: two at a time, so that what is tested is the second beside the first."""
    oracle = make("random")
    transition = oracle.transition(kernel, oracle.density())
    couplings, size = oracle.couplings(), len(oracle.states)
    pairs, n_sweeps = np.zeros((size, size), np.int64), -(-6_000 // chains)
    states = oracle.start(0, chains).clone()
    before = oracle.numbers(states)
    for sweep in range(n_sweeps):
        states = sweep_edges(states, *couplings, keys(10_000 * sweep), kernel=kernel)
        after = oracle.numbers(states)
        np.add.at(pairs, (before, after), 1)
        before = after
    visits = pairs.sum(1)
    most = np.argsort(visits)[-5:]
    assert all(agree(pairs[number], transition[number], len(most)) for number in most)


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_drift_from_an_exact_start(kernel):
    oracle = make("closed 3 × 3")
    density = oracle.density()
    start = np.random.default_rng(3).choice(len(density), CHAINS, p=density)
    states = torch.from_numpy(oracle.states[start]).float()
    end = sweep_edges(states, *oracle.couplings(), keys(1, 6), kernel=kernel)
    assert agree(oracle.counts(end), density, 1)
    tilted = sweep_edges(states, *oracle.couplings(), keys(1, 6), kernel=kernel, beta=1.05)
    assert not agree(oracle.counts(tilted), density, 1)  # the test finds what is wrong by 5 %


@pytest.mark.parametrize("kernel", KERNELS)
def test_sweeps_reach_the_density(kernel):
    oracle = make("open 3 × 3", (0.0, 1.0))
    end = sweep_edges(oracle.start(0), *oracle.couplings(), keys(2, 60), kernel=kernel)
    assert agree(oracle.counts(end), oracle.density(), 1)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("values", VALUES)
def test_each_chain_has_its_temperature(kernel, values):
    oracle = make("random", values)
    beta = torch.tensor([0.2, 1.0, 1.7]).repeat(CHAINS)[:CHAINS]
    states = oracle.start(1)
    end = sweep_edges(states, *oracle.couplings(), keys(3), kernel=kernel, beta=beta.unsqueeze(1))
    for value in beta.unique():
        transition = oracle.transition(kernel, oracle.density(float(value)))
        assert agree(oracle.counts(end[beta == value]), transition[1], 3)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("values", VALUES)
def test_fields_of_other_layers_and_held_units(kernel, values):
    """By chain either of two fields, which β does not multiply, and either of two sets of held units."""
    oracle = make("random", values)
    generator = np.random.default_rng(4)
    fields, held = generator.normal(0, 0.8, (2, 7)), generator.random((2, 7)) < 0.4
    which = torch.arange(CHAINS) % 2
    end = sweep_edges(
        oracle.start(5),
        *oracle.couplings(),
        keys(4),
        kernel=kernel,
        beta=0.7,
        outside=torch.from_numpy(fields).float()[which],
        held=torch.from_numpy(held)[which],
    )
    for number in range(2):
        density = oracle.density(0.7, fields[number])
        transition = oracle.transition(kernel, density, held[number])
        assert agree(oracle.counts(end[which == number]), transition[5], 2)


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("chains", [1, 40, 150])
def test_energies_of_pairs(values, chains):
    """Against a plain sum over the pairs, float64; means are refused, and left to tensor code."""
    oracle = make("random", values)
    x = torch.from_numpy(np.random.default_rng(0).choice(values, (chains, 7))).float()
    found = sparse_sweeps.pair_energies(x, oracle.couplings()[1])
    i, j = oracle.pairs.T
    expected = ((x[:, i] * x[:, j]).double().numpy() * oracle.J.astype(float)).sum(1)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
    x[-1, 3] = 0.5
    assert sparse_sweeps.pair_energies(x, oracle.couplings()[1]) is None


def test_energies_of_a_machine(monkeypatch):
    """States by words, means by products: both as float64 has them, β and biases included."""
    called = []
    energies = sparse_sweeps.pair_energies
    monkeypatch.setattr(
        sparse_sweeps, "pair_energies", lambda *what: called.append(energies(*what)) or called[-1]
    )
    monkeypatch.setattr(choice, "IN_TURN", 0)
    pairs = torch.as_tensor(lattice(4, True))
    machine = hm.BoltzmannMachine(
        [hm.Spin(16), hm.Bernoulli(3)], {(0, 0): hm.Sparse(pairs), (0, 1): hm.Dense()}
    )
    machine = with_normal_parameters(machine, 0.7)
    states = machine.random_states(200, seed=0)
    means = [torch.rand(200, 16) * 2 - 1, states[1]]
    for x in (states, means):
        with torch.no_grad():
            found = machine.hamiltonian().tempered(0.6).energy(x)
            expected = machine.hamiltonian().to(torch.float64).tempered(0.6).energy([y.double() for y in x])
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert [energy is None for energy in called] == [False, True]
    states[0].requires_grad_()
    machine.hamiltonian().energy(states).sum().backward()
    assert states[0].grad is not None and len(called) == 2


def test_large_fields_are_certain():
    """Log-odds far beyond the range of float32's exponential."""
    rows, values = compress_rows(np.array([[0, 1], [1, 2]]), 3), torch.tensor([1e4, -1e4])
    bias = torch.tensor([1e5, 0.0, 0.0])
    couplings = join_edges(values, rows, (-1.0, 1.0))
    for kernel in KERNELS:
        end = sweep_edges(-torch.ones(100, 3), bias, couplings, keys(0, 40), kernel=kernel)
        assert end.unique(dim=0).tolist() == [[1.0, 1.0, -1.0]]


@pytest.mark.parametrize("chains", [1, 3, 130])
@pytest.mark.nightly
def test_bits_do_not_depend_on_threads(chains, monkeypatch):
    """Threads that share lots, and threads that share the units of a colour."""
    nodes = 10_000
    pairs = np.stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes], 1)
    couplings = join_edges(torch.full((nodes,), 0.3), compress_rows(pairs, nodes), (0.0, 1.0))
    start = torch.zeros(chains, nodes)
    found, shared = [], []
    threads, over = torch.get_num_threads(), sparse_sweeps.over

    def noted(work, *rest, least=1):
        shared.append(work)
        over(work, *rest, least=least)

    monkeypatch.setattr(sparse_sweeps, "over", noted)
    monkeypatch.setattr(sparse_sweeps, "TILES_A_THREAD", 2)
    try:
        for number in (1, 2, 4):
            torch.set_num_threads(number)
            found.append(sweep_edges(start, torch.zeros(nodes), couplings, keys(6, 3)))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    assert {sparse_sweeps._sweep_lots, sparse_sweeps._sweep_tiles} < set(shared)
    assert 0.5 < float(found[0].mean()) < 0.8


def test_chains_do_not_share_noise():
    """Chains, units and sweeps of free spins: no two are alike."""
    rows = compress_rows(np.zeros((0, 2)), 300)
    couplings = join_edges(torch.zeros(0), rows, (-1.0, 1.0))
    first, second = (
        sweep_edges(torch.ones(200, 300), torch.zeros(300), couplings, keys(8, n)) for n in (1, 2)
    )
    for x, y in ((first, first), (first.t(), first.t()), (first, second)):
        overlap = (x @ y.t()) / np.sqrt(x.shape[1])
        alike = overlap if y is second else overlap[~np.eye(len(x), dtype=bool)]
        limit = stats.norm.isf(FAILURE_RATE / 3 / 2 / alike.numel())
        assert float(alike.abs().max()) < limit


def test_states_stay_where_none_is_drawn():
    oracle = make("random")
    states = torch.from_numpy(oracle.states).float()
    held = torch.ones(states.shape, dtype=torch.bool)
    for n_sweeps, mask in ((0, None), (2, held)):
        end = sweep_edges(states, *oracle.couplings(), keys(0, n_sweeps), held=mask)
        assert torch.equal(end, states) and end is not states


@pytest.mark.parametrize("n_nodes, n_pairs", [(1, 0), (6, 0), (12, 20), (40, 60), (60, 900)])
def test_rows_have_every_edge_twice_and_colours_are_independent(n_nodes, n_pairs):
    pairs = random_pairs(n_nodes, n_pairs, 7)
    rows = compress_rows(pairs, n_nodes)
    assert sorted(rows.order.tolist()) == list(range(n_nodes))
    assert (len(rows.order), len(rows.positions) // 2) == (n_nodes, n_pairs)
    colour = np.empty(n_nodes, np.int64)
    for c, (begin, end) in enumerate(pairwise(rows.colour_starts)):
        colour[rows.order[begin:end]] = c
        assert end > begin
    assert (colour[pairs[:, 0]] != colour[pairs[:, 1]]).all()
    node = np.repeat(rows.order, np.diff(rows.starts))
    entries = np.sort(np.stack([node, rows.others], 1), 1)
    assert (entries == np.sort(pairs[rows.positions], 1)).all()
    assert (np.bincount(rows.positions, minlength=n_pairs) == 2).all()
    degree = max(np.bincount(pairs.flatten(), minlength=n_nodes))
    assert n_colours(rows) <= degree + 1


def test_two_colours_where_two_suffice():
    tree = np.array([[i, (i - 1) // 2] for i in range(1, 1000)])
    for pairs, nodes in ((lattice(30, True), 900), (lattice(31, False), 961), (tree, 1000)):
        assert n_colours(compress_rows(pairs, nodes)) == 2
    assert n_colours(compress_rows(lattice(31, True), 961)) <= 4
    both = np.concatenate([[[0, 1], [1, 2], [2, 0]], tree + 3])  # an odd component leaves the other alone
    rows = compress_rows(both, 1003)
    assert (n_colours(rows), np.diff(rows.colour_starts)[2:].tolist()) == (3, [1])


def test_time_and_memory_follow_the_edges():
    """10^5 nodes, of which a matrix would have 40 GB."""
    nodes = 100_000
    pairs = random_regular(nodes, 4)
    tracemalloc.start()
    try:
        rows = compress_rows(pairs, nodes)
        couplings = join_edges(torch.ones(len(pairs)), rows, (-1.0, 1.0))
        states = torch.ones(3, nodes)
        sweep_edges(states, torch.zeros(nodes), couplings, keys(0))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 400 * len(pairs)
    kept = sum(x.nbytes for x in (rows.order, rows.starts, rows.others, rows.positions))
    assert kept + couplings.weight.nbytes + couplings.offset.nbytes < 16 * nodes + 24 * len(pairs) + 100


def random_regular(nodes: int, degree: int) -> NDArray[np.int64]:
    """Pairs of a random graph whose nodes have about the degree."""
    ends = np.random.default_rng(0).permutation(np.repeat(np.arange(nodes), degree)).reshape(-1, 2)
    return np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], 1), axis=0)


@pytest.mark.parametrize("n_nodes, n_pairs", [(1, 0), (30, 60), (50, 1200), (80, 3160)])
def test_compiled_and_plain_colouring_agree(n_nodes, n_pairs):
    """The last has 80 colours, more than a word holds."""
    joined = torch.as_tensor(random_pairs(n_nodes, n_pairs, 3))
    pattern = SparsityPattern(joined, (n_nodes, n_nodes), (1, 1), True)
    starts, others, _ = (x.numpy().astype(np.int32) for x in pattern.by_column)
    found = []
    for colour in (colouring._colour, colouring._compiled(colouring._colour)):
        colours = np.full(n_nodes, -1)
        colour(starts, others, colours)
        found.append(colours.tolist())
    assert found[0] == found[1]
    assert max(found[0]) + 1 == 80 or n_nodes < 80


# Onsager's solution of the square lattice without a field.


def onsager_energy(beta: float) -> float:
    """The energy of a spin of the infinite lattice with couplings 1 (Onsager 1944)."""
    k = 2 * np.sinh(2 * beta) / np.cosh(2 * beta) ** 2
    return float(-1 / np.tanh(2 * beta) * (1 + 2 / np.pi * (2 * np.tanh(2 * beta) ** 2 - 1) * ellipk(k**2)))


def yang_magnetisation(beta: float) -> float:
    """|m| of the infinite lattice (Yang 1952)."""
    return float((1 - np.sinh(2 * beta) ** -4) ** 0.125) if np.sinh(2 * beta) > 1 else 0.0


@pytest.mark.nightly
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("beta", [0.3, 0.6])
def test_the_square_lattice_of_onsager_and_yang(kernel, beta):
    """256 × 256 spins, 64 chains from all up, where both are as good as infinite; means over chains."""
    side, chains = 256, 64
    pairs, bias = lattice(side, True), torch.zeros(side**2)
    couplings = join_edges(torch.ones(len(pairs)), compress_rows(pairs, side**2), (-1.0, 1.0))
    states = sweep_edges(torch.ones(chains, side**2), bias, couplings, keys(1, 400), beta=beta, kernel=kernel)
    energies, sizes = [], []
    for sample in range(20):
        states = sweep_edges(states, bias, couplings, keys(100 + sample, 10), beta=beta, kernel=kernel)
        square = states.view(chains, side, side)
        neighbours = square.roll(1, 1) + square.roll(1, 2)
        energies.append(-(square * neighbours).mean((1, 2)).double())
        sizes.append(square.mean((1, 2)).double())
    limit = stats.t.isf(FAILURE_RATE / 2 / 2, chains - 1)
    for found, expected in ((energies, onsager_energy(beta)), (sizes, yang_magnetisation(beta))):
        by_chain = torch.stack(found).mean(0)
        error = float(by_chain.std()) / chains**0.5
        assert abs(float(by_chain.mean()) - expected) < limit * error


def kaufman_energy(side: int, beta: float) -> float:
    """The energy of a spin of a closed square (Kaufman 1949), by a difference of ln Z."""

    def log_partition(beta: float) -> float:
        angles = np.pi * np.arange(2 * side) / side
        gamma = np.arccosh(np.maximum(1, np.cosh(2 * beta) ** 2 / np.sinh(2 * beta) - np.cos(angles)))
        gamma[0] = 2 * beta + np.log(np.tanh(beta))
        size = np.abs(side * gamma / 2)
        terms = [sum_[first::2].sum() for first in (1, 0) for sum_ in (cosh(size), sinh(size))]
        most = max(terms)
        weights = np.array([1, 1, 1, np.sign(gamma[0])]) * np.exp(np.array(terms) - most)
        return float(side**2 / 2 * np.log(2 * np.sinh(2 * beta)) + most + np.log(weights.sum() / 2))

    def cosh(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return x + np.log1p(np.exp(-2 * x))

    def sinh(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return x + np.log1p(-np.exp(-2 * x))

    return -(log_partition(beta + 1e-5) - log_partition(beta - 1e-5)) / 2e-5 / side**2


@pytest.mark.nightly
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_square_lattice_next_to_its_critical_point(kernel):
    """32 × 32 spins at 0.44, whose chains take some 2,000 sweeps to forget; the energy is of this size."""
    side, chains, beta = 32, 64, 0.44
    states = np.array(list(product((-1, 1), repeat=9))).reshape(-1, 3, 3)
    energy = -(states * (np.roll(states, 1, 1) + np.roll(states, 1, 2))).sum((1, 2))
    weight = np.exp(-beta * energy)
    assert abs(kaufman_energy(3, beta) - weight @ energy / weight.sum() / 9) < 1e-8
    pairs, bias = lattice(side, True), torch.zeros(side**2)
    couplings = join_edges(torch.ones(len(pairs)), compress_rows(pairs, side**2), (-1.0, 1.0))
    begun = torch.ones(chains, side**2)
    moved = sweep_edges(begun, bias, couplings, keys(1, 40_000), beta=beta, kernel=kernel)
    means = torch.zeros(chains, dtype=torch.float64)
    for sample in range(400):
        moved = sweep_edges(moved, bias, couplings, keys(10 + sample, 50), beta=beta, kernel=kernel)
        square = moved.view(chains, side, side)
        means -= (square * (square.roll(1, 1) + square.roll(1, 2))).mean((1, 2)).double() / 400
    error = float(means.std()) / chains**0.5
    limit = stats.t.isf(FAILURE_RATE / 2, chains - 1)
    assert abs(float(means.mean()) - kaufman_energy(side, beta)) < limit * error
    assert error < 0.01
