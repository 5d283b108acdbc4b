"""Gaussian layers beside Gaussian ones, hidden or visible, by their joint precision in numpy; refusals."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.machine import Statistics
from harmonium.sums import nothing_seen

from .machines import array

Layers = list[hm.layers.Layer]
MACHINES: dict[str, Callable[[], hm.BoltzmannMachine]] = {
    "pair": lambda: hm.BoltzmannMachine([hm.Gaussian(3), hm.Gaussian(2)]),
    "deep": lambda: hm.BoltzmannMachine([hm.Gaussian(2), hm.Gaussian(3), hm.Gaussian(2)]),
    "inner": lambda: hm.BoltzmannMachine([hm.Gaussian(3), hm.Gaussian(2)], edges=[(0, 0), (0, 1), (1, 1)]),
    "bits above": lambda: hm.BoltzmannMachine([hm.Gaussian(3), hm.Gaussian(2), hm.Bernoulli(3)]),
    "two beside": lambda: hm.BoltzmannMachine(
        [hm.Gaussian(2), hm.Spin(2), hm.Gaussian(2)], edges=[(0, 1), (0, 2), (1, 2)]
    ),
}


@torch.no_grad()
def drawn(name: str, scale: float = 0.25) -> hm.BoltzmannMachine:
    machine = MACHINES[name]().double()
    generator = torch.Generator().manual_seed(3)
    for (l, m), coupling in zip(machine.graph.edges, machine.couplings, strict=True):
        W = scale * torch.randn(*coupling.matrix().shape, generator=generator, dtype=torch.float64)
        coupling.fill_(W.triu(1) + W.triu(1).T if l == m else W)
    for layer in machine.layers:
        for parameter in layer.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return machine


class Mixture:
    """p(x) as a mixture of normal distributions of Gaussian units, one for each state of the others."""

    def __init__(self, machine: hm.BoltzmannMachine) -> None:
        hamiltonian, layers = machine.hamiltonian(), machine.layers
        ends = np.cumsum([0, *(layer.width for layer in layers)])
        self.places = [slice(ends[l], ends[l + 1]) for l in range(len(layers))]
        J, b = np.zeros((ends[-1], ends[-1])), np.zeros(ends[-1])
        for l, m, W in hamiltonian.edges:
            J[self.places[l], self.places[m]] = array(W)
            J[self.places[m], self.places[l]] = array(W).T
        gaussian = np.concatenate([np.full(layer.width, layer.gaussian) for layer in layers])
        curvature = np.zeros(ends[-1])
        for l, layer in enumerate(layers):
            b[self.places[l]] = array(hamiltonian.thetas[l][0])
            if layer.gaussian:
                curvature[self.places[l]] = array(hamiltonian.thetas[l][1])
        values = [layer.two_values for layer in layers for _ in range(layer.width) if not layer.gaussian]
        self.states = np.array(list(product(*values))).reshape(2 ** len(values), len(values))
        self.real, self.n = np.flatnonzero(gaussian), ends[-1]
        other = np.flatnonzero(~gaussian)
        self.covariance = np.linalg.inv(np.diag(curvature[self.real]) - J[np.ix_(self.real, self.real)])
        fields = b[self.real] + self.states @ J[np.ix_(other, self.real)]
        self.means = fields @ self.covariance
        weights = (
            self.states @ b[other]
            + np.einsum("si,ij,sj->s", self.states, J[np.ix_(other, other)], self.states) / 2
        )
        weights = weights + 0.5 * (fields * self.means).sum(1)
        weights = weights + 0.5 * np.linalg.slogdet(2 * np.pi * self.covariance)[1]
        self.log_partition = float(np.logaddexp.reduce(weights))
        self.p = np.exp(weights - self.log_partition)
        self.other = other

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """E[x] and E[x xᵀ] of all units."""
        x = np.zeros((len(self.p), self.n))
        x[:, self.real], x[:, self.other] = self.means, self.states
        second = np.einsum("s,si,sj->ij", self.p, x, x)
        second[np.ix_(self.real, self.real)] += self.covariance
        return self.p @ x, second

    def log_density(self, v: np.ndarray, units: np.ndarray) -> np.ndarray:
        """ln p of some of the Gaussian units."""
        at = np.searchsorted(self.real, units)
        C = self.covariance[np.ix_(at, at)]
        off = v[:, None] - self.means[:, at]
        energy = np.einsum("rsi,ij,rsj->rs", off, np.linalg.inv(C), off) / 2
        terms = np.log(self.p) - energy - np.linalg.slogdet(2 * np.pi * C)[1] / 2
        found: np.ndarray = np.logaddexp.reduce(terms, axis=1)
        return found


@pytest.mark.parametrize("name", MACHINES)
def test_partition_likelihood_and_moments(name: str) -> None:
    machine, truth = drawn(name), Mixture(drawn(name))
    assert hm.likelihood.has_hidden_states(machine.graph, machine.layers)
    assert hm.likelihood.exact_log_partition(machine) == pytest.approx(truth.log_partition, abs=1e-9)
    width = machine.layers[0].width
    v = torch.randn(5, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = truth.log_density(array(v), np.arange(width))
    np.testing.assert_allclose(array(hm.likelihood.exact_log_likelihood(machine, v)), expected, atol=1e-9)
    partial = v.clone()
    partial[:, 0] = torch.nan
    table = hm.likelihood.HiddenStates.of(machine)
    np.testing.assert_allclose(
        array(table.log_likelihood(partial)),
        truth.log_density(array(v[:, 1:]), np.arange(1, width)),
        atol=1e-9,
    )
    mean, second = truth.moments()
    found = table.posterior(nothing_seen(machine.hamiltonian())).moments()
    assert found.mean.shape == (1, width)
    np.testing.assert_allclose(array(found.mean[0]), mean[:width], atol=1e-9)
    np.testing.assert_allclose(
        array(found.variance[0]), second.diagonal()[:width] - mean[:width] ** 2, atol=1e-9
    )
    hidden = np.concatenate([np.arange(truth.n)[truth.places[l]] for l in machine.hidden])
    np.testing.assert_allclose(
        array(table.posterior(nothing_seen(machine.hamiltonian())).hidden_means()[0]), mean[hidden], atol=1e-9
    )


def test_rows_in_any_order_of_memory() -> None:
    machine = hm.BoltzmannMachine([hm.Gaussian(9), hm.Bernoulli(2)], edges=[(0, 0), (0, 1)], seed=0).double()
    rows = torch.randn(12, 9, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    rows[rows > 0.8] = torch.nan
    table = hm.likelihood.HiddenStates.of(machine)
    by_column = rows.t().contiguous().t()
    torch.testing.assert_close(table.log_likelihood(by_column), table.log_likelihood(rows))


@pytest.mark.parametrize("name", MACHINES)
def test_expected_statistics(name: str) -> None:
    machine, truth = drawn(name), Mixture(drawn(name))
    hamiltonian, (mean, second) = machine.hamiltonian(), Mixture(drawn(name)).moments()
    into = Statistics(hamiltonian)
    hm.sums.expect(hamiltonian, into, 1.0)
    for (l, m), found in zip(machine.graph.edges, into.products, strict=True):
        expected = second[truth.places[l], truth.places[m]]
        np.testing.assert_allclose(array(found), expected / 2 if l == m else expected, atol=1e-9)
    for l in range(len(machine.layers)):
        np.testing.assert_allclose(array(into.thetas[l][0]), mean[truth.places[l]], atol=1e-9)


@pytest.mark.parametrize("name", ["pair", "bits above"])
def test_draws_have_the_distribution(name: str) -> None:
    """40,000 draws, moments within 5 standard errors."""
    machine = drawn(name)
    mean, second = Mixture(machine).moments()
    width, n = machine.layers[0].width, 40_000
    sample = hm.tasks.sample(machine, n, seed=0)
    assert sample.method == "exact" and sample.rows.shape == (n, width)
    x = array(sample.rows)
    spread = np.sqrt(second.diagonal()[:width] - mean[:width] ** 2)
    assert (np.abs(x.mean(0) - mean[:width]) < 5 * spread / n**0.5).all()
    errors = np.abs(np.cov(x.T) - (second[:width, :width] - np.outer(mean[:width], mean[:width])))
    assert (errors < 5 * 1.5 * np.outer(spread, spread) / n**0.5).all()


@pytest.mark.nightly
def test_learning_by_exact_gradients() -> None:
    """Two hidden Gaussian units learn a covariance of two factors (factor analysis)."""
    generator = torch.Generator().manual_seed(0)
    loadings = torch.tensor([[1.0, 0.8, 0.0, 0.0], [0.0, 0.0, 0.9, -0.7]])
    X = torch.randn(2000, 2, generator=generator) @ loadings + 0.5 * torch.randn(2000, 4, generator=generator)
    machine = hm.BoltzmannMachine([hm.Gaussian(4), hm.Gaussian(2)], seed=0)
    before = float(hm.likelihood.exact_log_likelihood(machine, X).mean())
    hm.train(machine, X, rule="exact", updates=1500, batch_size=2000, learning_rate=0.05, progress=False)
    after = float(hm.likelihood.exact_log_likelihood(machine, X).mean())
    C = np.cov(X.T.numpy())
    best = -0.5 * float(np.linalg.slogdet(2 * np.pi * np.e * C)[1])
    assert before < best - 0.5 and best - 0.1 < after <= best + 0.01


def two(W: float) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine([hm.Gaussian(1), hm.Gaussian(1)])
    machine.couplings[0].fill_(torch.tensor([[W]]))
    return machine


X = torch.zeros(20, 1)
USES: dict[str, Callable[[hm.BoltzmannMachine], object]] = {
    "run": lambda m: hm.chains.run(m, hm.chains.Gibbs(), m.random_states(3, seed=0), 2, seed=0),
    "diagnose_chains": lambda m: hm.chains.diagnose_chains(m, sweeps=40),
    "meet": lambda m: hm.coupled.meet(m, hm.coupled.Gibbs(), m.random_states(3, seed=0), seed=0),
    "sample": lambda m: hm.tasks.sample(m, 3),
    "sample by chains": lambda m: hm.tasks.sample(m, 3, method="gibbs"),
    "train": lambda m: hm.train(m, X, rule="pcd", updates=2, progress=False),
    "exact": hm.likelihood.exact_log_partition,
    "ais": lambda m: hm.likelihood.ais(m, chains=5, temperatures=5),
    "ladder": hm.ladder.log_partitions,
    "tap": lambda m: hm.likelihood.tap_log_partition(m, X),
    "log-likelihood": lambda m: hm.likelihood.log_likelihood(m, X, 0.0),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("W", [1.01, 1.1])
def test_a_machine_without_a_distribution_is_refused(use: str, W: float) -> None:
    with pytest.raises(ValueError, match=r"machine: .*Gaussian layers \[0, 1\].* without a distribution"):
        USES[use](two(W))


def test_close_to_the_edge_it_is_taken() -> None:
    """K = [[1, -W], [-W, 1]] has the determinant 1 - W²."""
    exact = np.log(2 * np.pi) - 0.5 * np.log(1 - 0.99**2)
    assert hm.likelihood.exact_log_partition(two(0.99)) == pytest.approx(exact, abs=1e-4)
    assert hm.likelihood.ais(two(0.5), chains=50, temperatures=100, seed=0).value == pytest.approx(
        np.log(2 * np.pi) - 0.5 * np.log(0.75), abs=0.05
    )


def test_training_that_leaves_the_distributions_stops_and_says_why() -> None:
    """Data whose correlation only couplings beyond the edge would give, at a rate that overshoots."""
    machine = two(0.9)
    generator = torch.Generator().manual_seed(0)
    X = 5 * torch.randn(200, 1, generator=generator)
    with pytest.raises(hm.training.TrainingDiverged, match="joint precision"):
        hm.train(machine, X, rule=hm.rules.cd(1), updates=500, learning_rate=0.05, seed=0, progress=False)
    hm.likelihood.exact_log_partition(machine)  # put back to where it had one


def test_wide_lattices_of_weak_couplings_are_taken_by_their_rows() -> None:
    layer = hm.Gaussian(9000)
    pairs = [(i, i + 1) for i in range(8999)]
    machine = hm.BoltzmannMachine([layer], edges={(0, 0): hm.Sparse(pairs)})
    assert hm.chains.run(machine, hm.chains.Gibbs(), machine.random_states(1, seed=0), 1, seed=0)
