"""Graphs at the edge of what a graph is: without edges, in pieces, on no device, dense inner edges."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from time import perf_counter

import pytest
import torch
from machines import with_normal_parameters

import harmonium as hm

from .graphs import data_for, holes, make, oracle_of

pytestmark = pytest.mark.slow

ODD: dict[str, Callable[[], hm.BoltzmannMachine]] = {
    "one layer without edges": lambda: hm.BoltzmannMachine([hm.Spin(4)], edges=[]),
    "a Gaussian layer without edges": lambda: hm.BoltzmannMachine([hm.Gaussian(3)], edges=[]),
    "two layers without edges": lambda: hm.BoltzmannMachine(
        [hm.Spin(3), hm.Categorical(2, 3)], edges=[], visible=[1, 0]
    ),
    "a visible layer without edges": lambda: hm.BoltzmannMachine(
        [hm.Bernoulli(3), hm.Gaussian(2), hm.Bernoulli(2)], edges=[(0, 2)], visible=[1, 0]
    ),
    "hidden layers apart from the visible one": lambda: hm.BoltzmannMachine(
        [hm.Bernoulli(3), hm.Spin(2), hm.Bernoulli(2)], edges=[(1, 2)], visible=[0]
    ),
    "two machines in one": lambda: hm.BoltzmannMachine(
        [hm.Bernoulli(3), hm.Spin(2), hm.Spin(3), hm.Bernoulli(2)], edges=[(0, 1), (2, 3)], visible=[0, 2]
    ),
}


def odd(name: str) -> hm.BoltzmannMachine:
    return with_normal_parameters(ODD[name]().double(), 0.5, 5, torch.float64)


@pytest.mark.parametrize("name", ODD)
def test_exact_answers(name):
    machine = odd(name)
    oracle, v = oracle_of(machine), data_for(machine, 6)
    found = hm.likelihood.exact_log_partition(machine)
    assert found == pytest.approx(float(oracle.log_partition().detach()), abs=1e-10)
    for rows in (v, holes(machine, v)):
        torch.testing.assert_close(
            hm.likelihood.exact_log_likelihood(machine, rows), oracle.log_likelihood_observed(rows).detach()
        )
        gradient = hm.rules.exact().gradient(machine, rows, seed=torch.Generator()).parameters
        for parameter, expected in oracle.gradient(rows).items():
            torch.testing.assert_close(gradient[parameter], expected.view_as(gradient[parameter]))


@pytest.mark.parametrize("name", ODD)
def test_chains_and_pairs_begin_at_visible_states(name):
    machine, generator = odd(name), torch.Generator().manual_seed(0)
    v = data_for(machine, 6)
    for kernel in (hm.chains.Gibbs(), hm.chains.Metropolis(), hm.chains.Tempering(3)):
        machine.check_states(hm.chains.run(machine, kernel, v, 2, seed=generator))
    meetings = hm.coupled.meet(machine, hm.coupled.Gibbs(), v, seed=generator)
    assert not bool(meetings.capped.any())


@pytest.mark.mostly_nightly(24)
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("recipe", [name for name in hm.rules.RECIPES if name != "exact"])
def test_rules(name, recipe):
    machine, generator = odd(name), torch.Generator().manual_seed(0)
    v = data_for(machine, 6)
    real = any(layer.gaussian for layer in machine.layers)
    columns = any(layer.width > layer.n_units for layer in machine.layers)
    if (recipe == "adatap" and columns) or (recipe == "ucd_lmi" and real):
        with pytest.raises(ValueError, match=r"expected (units of one column|discrete)"):
            hm.rules.RECIPES[recipe]().gradient(machine, v, seed=generator)
        return
    for rows in (v, holes(machine, v)):
        found = hm.rules.RECIPES[recipe]().gradient(machine, rows, seed=generator)
        assert all(bool(torch.isfinite(g).all()) for g in found.parameters.values())


@pytest.mark.parametrize(
    "name",
    ["one layer without edges", "two layers without edges", "hidden layers apart from the visible one"],
)
def test_solvers_are_exact_where_no_edge_is(name):
    machine = odd(name)
    with torch.no_grad():
        for coupling in machine.couplings:
            coupling.weight.zero_()
    truth = -hm.likelihood.exact_log_partition(machine)
    v = data_for(machine, 3)
    solvers = [hm.meanfield.naive, hm.meanfield.tap, partial(hm.meanfield.tap, order=3)]
    solvers += [partial(hm.meanfield.tap, solver=name) for name in ("adatap", "relaxed_bp")]
    if any(layer.width > layer.n_units for layer in machine.layers):
        solvers = solvers[:2]
    for solver in solvers:
        torch.testing.assert_close(
            solver(machine, v).free_energy, torch.full((3,), truth, dtype=torch.float64)
        )


@pytest.mark.parametrize("name", ODD)
def test_files_and_copies(name, tmp_path):
    machine = odd(name)
    machine.save(tmp_path / "machine")
    loaded = hm.load(tmp_path / "machine")
    assert (loaded.edges, loaded.visible) == (machine.edges, machine.visible)
    states = machine.random_states(4, seed=torch.Generator().manual_seed(0))
    assert torch.equal(loaded.energy(states), machine.energy(states))
    assert torch.equal(deepcopy(machine).energy(states), machine.energy(states))


@pytest.mark.parametrize("name", ["fully visible spins", "semi-restricted and sparse", "windows of an image"])
def test_a_machine_comes_back_from_no_device(name):
    """Patterns and colours outlive a move to the meta device, which loses all numbers."""
    machine = make(name)
    expected = machine.hamiltonian().J
    other = deepcopy(machine).to("meta")
    other.hamiltonian()
    assert other.graph.colours
    other.to_empty(device="cpu").load_state_dict(machine.state_dict())
    for J, K in zip(other.hamiltonian().J, expected, strict=True):
        assert torch.equal(J, K)
    states = [
        hm.chains.run(
            each,
            hm.chains.Gibbs(),
            data_for(machine, 4),
            2,
            seed=torch.Generator().manual_seed(0),
        )
        for each in (machine, other)
    ]
    assert all(torch.equal(x, y) for x, y in zip(*states, strict=True))


def test_a_wide_inner_edge_has_its_colours_in_seconds():
    """2,000 units take half a second; through lists of edges they took minutes."""
    start = perf_counter()
    machine = hm.BoltzmannMachine([hm.Spin(2000)], edges=[(0, 0)])
    assert len(machine.graph.colours) == 2000
    assert perf_counter() - start < 20
