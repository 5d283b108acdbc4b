"""Machines that are graphs of layers, against an oracle that was written from the formulas alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.machine import Statistics

from .graphs import GRAPHS, data_for, holes, make, oracle_of

every = pytest.mark.parametrize("name", GRAPHS)


@every
def test_energies(name: str) -> None:
    machine = make(name)
    states = machine.random_states(20, seed=torch.Generator().manual_seed(0))
    expected = oracle_of(machine).energy(states).detach()
    np.testing.assert_allclose(machine.energy(states).detach(), expected, rtol=1e-10, atol=1e-10)


@every
def test_log_partition_and_likelihood(name: str) -> None:
    machine, v = make(name), data_for(make(name), 6)
    oracle = oracle_of(machine)
    log_partition = hm.likelihood.exact_log_partition(machine)
    np.testing.assert_allclose(log_partition, oracle.log_partition().detach(), rtol=1e-10)
    expected = oracle.log_likelihood(v).detach()
    np.testing.assert_allclose(hm.likelihood.exact_log_likelihood(machine, v), expected, atol=1e-10)
    if machine.graph.independent:
        actual = hm.likelihood.log_likelihood(machine, v, log_partition)
        np.testing.assert_allclose(actual, expected, atol=1e-10)
    else:
        with pytest.raises(ValueError, match="no edge joins"):
            hm.likelihood.log_likelihood(machine, v, log_partition)


@every
def test_exact_gradient(name: str) -> None:
    machine, v = make(name), data_for(make(name), 5)
    generator = torch.Generator().manual_seed(0)
    actual = hm.rules.exact().gradient(machine, v, seed=generator).parameters
    expected = oracle_of(machine).gradient(v)
    assert actual.keys() == expected.keys()
    for parameter, gradient in expected.items():
        np.testing.assert_allclose(actual[parameter], gradient, atol=1e-8, err_msg=parameter)


@every
def test_expected_statistics_of_every_reading(name: str) -> None:
    """Statistics of all joint states, read as they are and with ``graph.summed`` summed out."""
    machine = make(name)
    if not all(layer.discrete for layer in machine.layers):
        return
    hamiltonian, oracle = machine.hamiltonian(), oracle_of(machine)
    states, probability = (x for x in oracle.probabilities())
    layers, edges = oracle.expectations()
    for summed in ((), machine.graph.summed):
        total = Statistics(hamiltonian)
        total.add(hamiltonian, states, probability.detach(), summed)
        for l, (mean, *_) in enumerate(layers):
            np.testing.assert_allclose(total.thetas[l][0].detach(), mean.detach(), atol=1e-10)
        for edge, (l, m) in enumerate(machine.edges):
            pattern = machine.couplings[edge].sparsity
            factor = 2 if l == m and pattern is None else 1
            expected = edges[edge] if pattern is None else pattern.gather(edges[edge])
            np.testing.assert_allclose(factor * total.products[edge].detach(), expected, atol=1e-10)


@every
def test_free_energies_of_every_set_that_can_be_summed_out(name: str) -> None:
    machine = make(name)
    states = machine.random_states(4, seed=torch.Generator().manual_seed(2))
    Z = hm.likelihood.exact_log_partition(machine)
    oracle = oracle_of(machine)
    for summed in machine.graph.independent_sets(range(len(machine.layers))):
        if not all(machine.layers[l].discrete for l in summed):
            continue
        F = machine.free_energy([None if l in summed else x for l, x in enumerate(states)], summed)
        grids = [_grid(machine.layers[l]) for l in summed]
        index = torch.cartesian_prod(*[torch.arange(len(grid)) for grid in grids]).view(-1, len(grids))
        for row in range(len(F)):
            every = [x[row].expand(len(index), -1) for x in states]
            for l, grid, chosen in zip(summed, grids, index.T, strict=True):
                every[l] = grid[chosen]
            np.testing.assert_allclose(
                float(F[row]), -float((-oracle.energy(every)).logsumexp(0).detach()), atol=1e-9
            )
    assert np.isfinite(Z)


def _grid(layer: hm.layers.Layer) -> torch.Tensor:
    n, q = layer.n_units, layer.n_states
    digits = torch.cartesian_prod(*[torch.arange(q)] * n).view(-1, n)
    return layer.from_digits(digits).double()


@every
def test_colours_are_colours(name: str) -> None:
    """No two units of one colour are joined, and every unit has one colour."""
    machine = make(name)
    graph = machine.graph
    offsets = np.cumsum([0, *(layer.width for layer in machine.layers)])
    joined = np.zeros((offsets[-1], offsets[-1]), dtype=bool)
    for l, m, J in machine.hamiltonian().edges:
        joined[offsets[l] : offsets[l + 1], offsets[m] : offsets[m + 1]] |= (J != 0).numpy()
    joined |= joined.T
    seen = []
    for colour in graph.colours:
        columns = np.concatenate(
            [
                offsets[part.layer]
                + (
                    np.arange(machine.layers[part.layer].width)
                    if part.columns is None
                    else part.columns.numpy()
                )
                for part in colour
            ]
        )
        assert not joined[np.ix_(columns, columns)].any()
        seen.extend(columns.tolist())
    assert sorted(seen) == list(range(offsets[-1]))
    assert set(graph.summed) <= {part.layer for part in graph.colours[-1]} - set(machine.visible)


def test_numbers_of_colours() -> None:
    expected = {
        "two visible kinds": 2, "three visible kinds": 2, "label on top of a deep machine": 2,
        "fully visible spins": 7, "fully visible Potts": 4, "spins on a lattice": 2, "four colours": 4,
        "a triangle of layers": 3, "semi-restricted": 6, "layers skipped": 2,
        "hidden layers at the ends of a path": 3, "a hidden layer on a triangle": 3,
    }  # fmt: skip
    assert {name: len(make(name).graph.colours) for name in expected} == expected


@every
def test_hidden_layers_that_nothing_joins_are_summed_out_together(name: str) -> None:
    """However the layers beside them are coloured."""
    machine = make(name)
    joined = any(l in machine.hidden and m in machine.hidden for l, m in machine.edges)
    assert machine.graph.independent == (not joined)


@pytest.mark.parametrize(
    ("layers", "edges", "visible"),
    [
        ([hm.Spin(2), hm.Spin(3), hm.Spin(2), hm.Spin(2)], [(0, 1), (2, 3)], [0, 3]),
        ([hm.Spin(2), hm.Spin(3), hm.Spin(2), hm.Spin(2)], [(0, 0), (0, 1), (1, 2), (0, 3)], [0, 1]),
    ],
    ids=["in two pieces", "beside inner edges"],
)
def test_they_are_wherever_they_stand(layers, edges, visible) -> None:
    machine = hm.BoltzmannMachine(layers, edges, visible)
    assert machine.graph.independent and machine.graph.summed == machine.graph.hidden
    v = data_for(machine, 5)
    actual = hm.likelihood.log_likelihood(machine, v, hm.likelihood.exact_log_partition(machine))
    np.testing.assert_allclose(actual, oracle_of(machine).log_likelihood(v).detach(), atol=1e-5)


def test_two_groups_of_layers_where_sweeps_take_three_colours() -> None:
    """What needs two groups of layers asks the layers, not the sweep."""
    machine = make("hidden layers at the ends of a path")
    assert set(machine.graph.sides("a test")) == {(0, 2), (1, 3)}
    generator = torch.Generator().manual_seed(0)
    hm.chains.local_search(machine, machine.random_states(5, seed=generator), seed=generator)
    with pytest.raises(ValueError, match="received 3 colours"):
        make("a hidden layer on a triangle").graph.sides("a test")


@every
def test_files(name: str, tmp_path) -> None:
    machine = make(name)
    machine.save(tmp_path / "machine.safetensors")
    other = hm.load(tmp_path / "machine.safetensors")
    assert (other.edges, other.visible) == (machine.edges, machine.visible)
    assert [c.kind for c in other.couplings] == [c.kind for c in machine.couplings]
    states = machine.random_states(10, seed=torch.Generator().manual_seed(0))
    assert torch.equal(other.energy(states), machine.energy(states))


@pytest.mark.mostly_nightly(8)
@every
def test_training_by_the_exact_gradient_climbs(name: str) -> None:
    machine, v = make(name), data_for(make(name), 8)
    before = hm.likelihood.exact_log_likelihood(machine, v).mean()
    for rule in (hm.rules.exact(), hm.rules.centred(hm.rules.exact())):
        hm.train(machine, v, rule=rule, updates=5, learning_rate=0.02, weight_decay=1e-4, progress=False)
        after = hm.likelihood.exact_log_likelihood(machine, v).mean()
        assert after > before
        before = after
    for coupling in machine.couplings:
        if coupling.joined is not None and coupling.sparsity is None:
            outside = ~coupling.joined if not coupling.inner else torch.tril(torch.ones_like(coupling.joined))
            assert not bool(coupling.weight[outside].any())


def test_a_chain_is_the_simplest_graph() -> None:
    layers = [hm.Bernoulli(4), hm.Bernoulli(3), hm.Spin(2)]
    chain = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3), hm.Spin(2)])
    graph = hm.BoltzmannMachine(layers, edges=[(0, 1), (1, 2)], visible=[0])
    assert chain.graph == graph.graph and chain.graph.is_chain and graph.graph.is_chain
    assert all(torch.equal(a, b) for a, b in zip(chain.parameters(), graph.parameters(), strict=True))
    assert graph.graph.sides("a test") == ((0, 2), (1,)) and graph.graph.summed == (1,)


@every
def test_whole_weights_count_as_repeated_rows(name: str) -> None:
    machine, v = make(name), data_for(make(name), 4)
    weights = torch.tensor([2.0, 0.0, 1.0, 3.0], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for rule in (hm.rules.exact(), hm.rules.centred(hm.rules.exact())):
        weighted = rule.gradient(machine, v, weights=weights, seed=generator).parameters
        repeated = rule.gradient(machine, v[[0, 0, 2, 3, 3, 3]], seed=generator).parameters
        for parameter in repeated:
            np.testing.assert_allclose(weighted[parameter], repeated[parameter], atol=1e-10)
    oracle = oracle_of(machine).gradient(v, weights=weights)
    found = hm.rules.exact().gradient(machine, v, weights=weights, seed=generator).parameters
    for parameter, gradient in oracle.items():
        np.testing.assert_allclose(found[parameter], gradient, atol=1e-8)


@every
def test_rows_observed_in_part(name: str) -> None:
    machine = make(name)
    v = holes(machine, data_for(machine, 6))
    oracle = oracle_of(machine)
    expected = oracle.log_likelihood_observed(v).detach()
    np.testing.assert_allclose(hm.likelihood.exact_log_likelihood(machine, v), expected, atol=1e-10)
    found = hm.rules.exact().gradient(machine, v, seed=torch.Generator().manual_seed(0)).parameters
    for parameter, gradient in oracle.gradient(v).items():
        np.testing.assert_allclose(found[parameter], gradient, atol=1e-8, err_msg=parameter)


def spins_with_couplings_of_their_own() -> hm.Dense:
    return hm.BoltzmannMachine([hm.Spin(3)], edges=[(0, 0)], visible=[0]).couplings[0]


@pytest.mark.parametrize("part", ["whole", "above the diagonal", "an array"])
def test_couplings_within_a_layer_are_filled_with_a_symmetric_matrix_or_its_upper_half(part) -> None:
    J = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    coupling = spins_with_couplings_of_their_own()
    coupling.fill_({"whole": J, "above the diagonal": J.triu(), "an array": J.double().numpy()}[part])
    assert torch.equal(coupling.matrix(), J)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (torch.ones(3, 3).tril(), ValueError, r"values: expected a symmetric matrix.*adds them up"),
        (torch.arange(9.0).view(3, 3), ValueError, r"values: expected a symmetric matrix"),
        (torch.ones(3, 2), ValueError, r"values: expected shape \(3, 3\), received \(3, 2\)"),
        (0.3, TypeError, r"values: expected a numpy array or torch tensor, received float"),
        ([[0.0]], TypeError, r"values: expected a numpy array or torch tensor, received list"),
    ],
)
def test_couplings_are_not_filled_with_what_would_be_lost(values, error, message) -> None:
    coupling = spins_with_couplings_of_their_own()
    before = coupling.matrix()
    with pytest.raises(error, match=message):
        coupling.fill_(values)
    assert torch.equal(coupling.matrix(), before)
