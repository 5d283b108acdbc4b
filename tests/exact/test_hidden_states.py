"""Sums over hidden states against enumeration, integrals and automatic differentiation, to 1e-8.

Machines of discrete and Gaussian units, with couplings inside and among Gaussian layers, are compared with
the oracle of graphs; all kinds of units with sums over fine grids, unit by unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.layers import Layer
from harmonium.likelihood import HiddenStates, exact_log_likelihood, exact_log_partition, has_hidden_states
from harmonium.sums import hidden_states as module

from .graphs import data_for, holes, oracle_of, with_drawn_parameters

ROWS = 12
MACHINES: dict[str, Callable[[], hm.BoltzmannMachine]] = {
    "Bernoulli": lambda: hm.BoltzmannMachine([hm.Bernoulli(5), hm.Bernoulli(4)]),
    "categories": lambda: hm.BoltzmannMachine([hm.Categorical(3, 4), hm.Categorical(2, 3)]),
    "counts beside counts": lambda: hm.BoltzmannMachine([hm.Binomial(3, 4), hm.Binomial(2, 3)]),
    "Gaussian": lambda: hm.BoltzmannMachine([hm.Gaussian(4), hm.Spin(4)]),
    "a table": lambda: hm.BoltzmannMachine(
        [hm.Gaussian(2), hm.Bernoulli(2), hm.Categorical(2, 3), hm.Binomial(1, 3), hm.Spin(4)],
        edges=[(0, 4), (1, 4), (2, 4), (3, 4)],
        visible=[2, 0, 1, 3],
    ),
    "joined columns": lambda: hm.BoltzmannMachine([hm.Gaussian(4), hm.Bernoulli(3)], edges=[(0, 0), (0, 1)]),
    "joined layers": lambda: hm.BoltzmannMachine(
        [hm.Gaussian(2), hm.Bernoulli(3), hm.Gaussian(2), hm.Categorical(1, 3), hm.Gaussian(1)],
        edges=[(0, 1), (0, 2), (1, 2), (1, 3), (1, 4), (2, 2)],
        visible=[3, 2, 0, 4],
    ),
    "joined layers, one without hidden units": lambda: hm.BoltzmannMachine(
        [hm.Gaussian(2), hm.Gaussian(2), hm.Categorical(2, 3)], edges=[(0, 1), (1, 2)], visible=[0, 1]
    ),
    "hidden layers that are joined": lambda: hm.BoltzmannMachine(
        [hm.Gaussian(2), hm.Spin(2), hm.Bernoulli(3), hm.Categorical(1, 3)],
        edges=[(0, 1), (1, 2), (2, 2), (2, 3)],
        visible=[0, 3],
    ),
    "Gaussian without hidden layers": lambda: hm.BoltzmannMachine([hm.Gaussian(3)], edges=[(0, 0)]),
}
machines = pytest.mark.parametrize("name", MACHINES)


def made(name: str, dtype: torch.dtype = torch.float64) -> hm.BoltzmannMachine:
    return with_drawn_parameters(MACHINES[name]().to(dtype), 0.35)


def rows_of(machine: hm.BoltzmannMachine) -> Tensor:
    """Rows with holes: the first shows all, the second nothing."""
    return holes(machine, data_for(machine, ROWS))


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-8) -> None:
    torch.testing.assert_close(found, expected.detach(), rtol=tolerance, atol=tolerance)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few rows, so that there are several."""
    monkeypatch.setattr(module, "BLOCK_BYTES", 1 << 12)


# Against the oracle of graphs ------------------------------------------------------------------------------


@machines
@pytest.mark.mostly_nightly(2)
def test_likelihood_of_what_rows_show(name: str, small_blocks: None) -> None:
    machine = made(name)
    oracle, v = oracle_of(machine), rows_of(machine)
    table = HiddenStates(machine.hamiltonian())
    assert len(list(table.blocks(v))) > 1
    assert table.log_partition == pytest.approx(oracle.log_partition().item(), abs=1e-8)
    close(table.log_weights(v), oracle.log_unnormalised(v))
    close(table.log_likelihood(v), oracle.log_likelihood_observed(v))
    assert exact_log_partition(machine) == pytest.approx(oracle.log_partition().item(), abs=1e-8)
    close(exact_log_likelihood(machine, v), oracle.log_likelihood_observed(v))


@machines
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_of_the_rule(name: str, weighted: bool, small_blocks: None) -> None:
    machine = made(name)
    v = rows_of(machine)
    weights = torch.linspace(0.0, 3.0, ROWS, dtype=torch.float64) if weighted else None
    found = hm.rules.exact().gradient(machine, v, seed=0, weights=weights).parameters
    expected = oracle_of(machine).gradient(v, weights)
    assert found.keys() == expected.keys()
    for key in found:
        close(found[key], expected[key])


@machines
def test_gradient_in_float32_and_again(name: str) -> None:
    single = made(name, torch.float32)
    double = MACHINES[name]().double()
    double.load_state_dict(single.state_dict())
    v = rows_of(single)
    first, again = (hm.rules.exact().gradient(single, v, seed=seed).parameters for seed in (0, 1))
    expected = hm.rules.exact().gradient(double, v.double(), seed=0).parameters
    for key in first:
        assert first[key].dtype == torch.float32
        assert torch.equal(first[key], again[key])
        close(first[key].double(), expected[key], 1e-4)


@pytest.mark.parametrize("name", [name for name in MACHINES if len(MACHINES[name]().visible) > 1])
def test_conditional_likelihood(name: str) -> None:
    machine = made(name)
    v, given = rows_of(machine), [machine.visible[0]]
    found = hm.likelihood.conditional_log_likelihood(machine, v, given)
    close(found, oracle_of(machine).log_conditional(v, given))


@machines
def test_moments_of_missing_entries(name: str) -> None:
    """By derivatives of the oracle's ln p with respect to the form's linear part."""
    machine = made(name)
    oracle, v = oracle_of(machine), rows_of(machine)
    found = HiddenStates(machine.hamiltonian()).posterior(v).moments()
    hamiltonian = machine.hamiltonian()
    for row, mean, variance in zip(v, found.mean, found.variance, strict=True):
        x = oracle._joint(row.unsqueeze(0))
        h, q = (part.detach().requires_grad_() for part in oracle._form())
        by_h, by_q = torch.autograd.grad(oracle._log_sum(x, h, q).sum(), (h, q))
        second = (by_q + by_q.T).diagonal()
        columns = torch.cat([torch.arange(len(h))[oracle.columns[l]] for l in hamiltonian.graph.visible])
        missing = row.isnan()
        close(mean[missing], by_h[columns][missing])
        close(variance[missing], (second - by_h.square())[columns][missing])
        assert torch.equal(mean[~missing], row[~missing])
        assert not bool(variance[~missing].any())


@machines
def test_probabilities_of_hidden_states(name: str) -> None:
    machine = made(name)
    if not machine.hidden:
        return
    oracle, v = oracle_of(machine), rows_of(machine)
    posterior = HiddenStates(machine.hamiltonian()).posterior(v)
    close(posterior.probabilities.sum(1), torch.ones(ROWS, dtype=torch.float64))
    means = posterior.hidden_means()
    for row, mean in zip(v, means, strict=True):
        layers, _ = oracle.expectations(row.unsqueeze(0))
        close(mean, torch.cat([layers[l][0] for l in machine.hidden]))


# All kinds of units, by sums over grids --------------------------------------------------------------------

KINDS = list(Layer.registry)


def unit_machine(kind: str) -> hm.BoltzmannMachine:
    """Three units of a kind beside three Bernoulli units."""
    layer = Layer.registry[kind].plain(3, 4)
    machine = hm.BoltzmannMachine([layer, hm.Bernoulli(3)]).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter += 0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return machine


def grid_of(layer: Layer) -> tuple[Tensor, Tensor]:
    """States of one unit, (points, columns), and ln of what each stands for: a fine sum over its states."""
    if layer.discrete:
        values = layer.values().double()
        return values, torch.zeros(len(values), dtype=torch.float64)
    pieces = {"truncated": [(0.0, 1.0)], "relu": [(0.0, 40.0)], "double_relu": [(-40.0, 0.0), (0.0, 40.0)]}
    name = next((name for name in ("truncated", "double_relu", "relu") if layer.kind.startswith(name)), "")
    if name == "truncated":
        low, high = (torch.as_tensor(layer.config()[end]).flatten()[0].item() for end in ("low", "high"))
        pieces["truncated"] = [(low, high)]
    points, logs = [], []
    nodes, weights = np.polynomial.legendre.leggauss(400)
    for low, high in pieces.get(name, [(-40.0, 0.0), (0.0, 40.0)]):
        points.append(low + (high - low) * (nodes + 1) / 2)
        logs.append(np.log(weights * (high - low) / 2))
    if layer.kind == "truncated_gauss_bernoulli":  # an atom of mass 1
        points.append(np.zeros(1))
        logs.append(np.zeros(1))
    return torch.from_numpy(np.concatenate(points)).unsqueeze(1), torch.from_numpy(np.concatenate(logs))


def slow_rows(machine: hm.BoltzmannMachine, v: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For every row ln Σ exp(-E) over what it lacks, and mean and second moment of every entry, by loops."""
    layer, hidden = machine.layers
    hamiltonian = machine.hamiltonian()
    J, size = hamiltonian.J[0].detach(), layer.width // layer.n_units
    grid, log_cell = grid_of(layer)
    for row in v:
        logs, firsts, seconds = [], [], []
        for h in product([0.0, 1.0], repeat=hidden.n_units):
            state = torch.tensor(h, dtype=torch.float64)
            field, total = J @ state, hidden.bias.detach() @ state
            first, second = torch.zeros(layer.width).double(), torch.zeros(layer.width).double()
            for unit in range(layer.n_units):
                columns = slice(unit * size, (unit + 1) * size)
                own = row[columns].unsqueeze(0)
                points, cell = (grid, log_cell) if own.isnan().any() else (own, torch.zeros(1).double())
                states = torch.zeros(len(points), layer.width, dtype=torch.float64)
                states[:, columns] = points
                weight = layer.unit_log_weights(states)[:, unit].detach() + points @ field[columns] + cell
                total = total + weight.logsumexp(0)
                p = weight.softmax(0)
                first[columns], second[columns] = p @ points, p @ points.square()
            logs.append(total)
            firsts.append(first)
            seconds.append(second)
        p = torch.stack(logs).softmax(0)
        yield torch.stack(logs).logsumexp(0), p @ torch.stack(firsts), p @ torch.stack(seconds)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_unit(kind: str) -> None:
    machine = unit_machine(kind)
    layer, hamiltonian = machine.layers[0], machine.hamiltonian()
    v = data_for(machine, 6)
    noise = layer.noise(v.shape, generator=torch.Generator().manual_seed(1)).double()
    v = holes(machine, layer.sample(torch.zeros_like(v), noise).detach())
    table = HiddenStates(hamiltonian)
    found = table.posterior(v)
    moments = found.moments()
    for i, (total, mean, second) in enumerate(slow_rows(machine, v)):
        close(found.log_weights[i], total)
        close(moments.mean[i], mean)
        close(moments.variance[i], second - mean.square())
    ((free, *_),) = slow_rows(machine, torch.full_like(v[:1], torch.nan))
    assert table.log_partition == pytest.approx(float(free), abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_are_derivatives_for_every_kind(kind: str) -> None:
    """E[t] and E[x ⊗ h] given rows with holes: the rule's gradient by differences of the log-likelihood."""
    machine = unit_machine(kind)
    layer = machine.layers[0]
    v = data_for(machine, 6)
    noise = layer.noise(v.shape, generator=torch.Generator().manual_seed(1)).double()
    v = holes(machine, layer.sample(torch.zeros_like(v), noise).detach())
    found = hm.rules.exact().gradient(machine, v, seed=0).parameters
    for name, parameter in machine.named_parameters():
        flat, step = parameter.data.view(-1), 1e-5
        for i in range(len(flat)):
            values = []
            for sign in (1, -1):
                flat[i] += sign * step
                values.append(HiddenStates(machine.hamiltonian()).log_likelihood(v).mean())
                flat[i] -= sign * step
            difference = (values[0] - values[1]) / (2 * step)
            close(found[name].reshape(-1)[i], difference, 1e-7)


# What is possible ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "edges", "visible", "possible"),
    [
        ([hm.Bernoulli(30), hm.Bernoulli(12)], [(0, 1)], [0], True),
        ([hm.Bernoulli(30), hm.Bernoulli(13)], [(0, 1)], [0], False),
        ([hm.Bernoulli(3), hm.Categorical(6, 4)], [(0, 1)], [0], True),
        ([hm.Bernoulli(3), hm.Gaussian(2)], [(0, 1)], [0], False),
        ([hm.Bernoulli(3), hm.Bernoulli(3)], [(0, 0), (0, 1)], [0], False),
        ([hm.Gaussian(3), hm.Bernoulli(2), hm.Bernoulli(2)], [(0, 1), (0, 2)], [0, 1], False),
        ([hm.Gaussian(3), hm.Categorical(1, 40)], [(0, 1)], [0], True),
        ([hm.Gaussian(3), hm.Categorical(1, 40)], [(0, 0), (0, 1)], [0], False),
    ],
)
def test_the_limits(
    layers: list[Layer], edges: list[tuple[int, int]], visible: list[int], possible: bool
) -> None:
    machine = hm.BoltzmannMachine(layers, edges=edges, visible=visible)
    assert has_hidden_states(machine.graph, machine.layers) is possible
    if not possible:
        with pytest.raises(ValueError, match="expected discrete hidden layers with at most 4096"):
            HiddenStates(machine.hamiltonian())


def test_couplings_without_a_distribution_are_refused() -> None:
    machine = hm.BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(2)], edges=[(0, 0), (0, 1)])
    machine.couplings[0].fill_(torch.tensor([[0.0, 1.5], [0.0, 0.0]]))
    with pytest.raises(ValueError, match="positive definite"):
        HiddenStates(machine.hamiltonian())
