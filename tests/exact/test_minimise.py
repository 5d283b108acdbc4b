"""States of the lowest energy, against enumeration and planted ground states; largest cuts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import harmonium as hm

from . import graphs

DISCRETE = [
    name for name in sorted(graphs.GRAPHS) if "Gaussian" not in name and name != "three visible kinds"
]


@pytest.mark.parametrize("name", DISCRETE)
@pytest.mark.parametrize("method", ["exact", "anneal"])
def test_the_lowest_state_is_that_of_enumeration(name: str, method: str) -> None:
    """Of 50 runs of annealing on at most 14 units one ends in the lowest state, on every machine."""
    machine = graphs.make(name, scale=1.5)
    states, p = graphs.oracle_of(machine).probabilities()
    found = hm.tasks.minimise(machine, 50, sweeps=100, method=method, seed=0)
    assert found.method == method
    for x, y in zip(states, found.states, strict=True):
        assert torch.equal(x[p.argmax()], y[0])
    torch.testing.assert_close(found.energies, machine.energy(found.states).detach())
    assert bool((found.energies.diff() >= 0).all())
    assert int(found.counts.sum()) == (1 if method == "exact" else 50)


def of_pairs(n: int, pairs: np.ndarray, J: np.ndarray) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine([hm.Spin(n)], {(0, 0): hm.Sparse(pairs)}, [0], seed=None)
    machine.couplings[0].fill_(J)
    return machine


@pytest.mark.parametrize("size", [4, 10, 24])
def test_planted_states_are_ground_states(size: int) -> None:
    pairs, J, state = hm.data.planted_glass(size, seed=size)
    machine = of_pairs(size**2, pairs, J)
    assert machine.energy([torch.from_numpy(state)[None]]).item() == -(size**2)
    degree = np.bincount(pairs.ravel(), minlength=size**2)
    assert (
        set(degree.tolist()) == {4} and len({tuple(sorted(pair)) for pair in pairs.tolist()}) == 2 * size**2
    )
    found = hm.tasks.minimise(machine, 64, sweeps=400, method="anneal", seed=1)
    assert found.energies[0].item() == -(size**2)
    if size < 20:
        assert hm.tasks.minimise(machine, method="exact").energies.tolist() == [-(size**2)]


@pytest.mark.nightly
def test_runs_end_where_no_single_spin_improves() -> None:
    """One sweep is not enough to find a low state, but each run ends in a local minimum."""
    pairs, J, _ = hm.data.planted_glass(12, seed=0)
    machine = of_pairs(144, pairs, J * np.random.default_rng(0).uniform(0.5, 1.5, len(J)))
    found = hm.tasks.minimise(machine, 20, sweeps=1, method="anneal", seed=0)
    x = found.states[0].double()
    field = machine.double().hamiltonian().field(0, [x]).detach()
    assert bool((x * field >= 0).all())


def test_fields_count_as_couplings_do() -> None:
    """A strong field on every unit decides all of them; one on a single unit orders a ferromagnet."""
    ring = hm.Sparse([(i, (i + 1) % 30) for i in range(30)])
    machine = hm.BoltzmannMachine([hm.Bernoulli(30)], {(0, 0): ring}, [0], seed=None)
    machine.couplings[0].fill_(np.ones(30))
    bias = -torch.ones(30)
    machine.layers[0].set_finite_(bias=bias)
    bias[3] = -0.5
    machine.layers[0].set_finite_(bias=bias)
    found = hm.tasks.minimise(machine, 64, sweeps=100, method="anneal", seed=0)
    assert found.energies[0].item() == -0.5 and bool((found.states[0][0] == 1).all())


def test_equal_seeds_give_equal_states() -> None:
    pairs, J, _ = hm.data.planted_glass(8, seed=0)
    machine = of_pairs(64, pairs, J)
    first, second = (hm.tasks.minimise(machine, 64, sweeps=20, method="anneal", seed=4) for _ in range(2))
    assert torch.equal(first.states[0], second.states[0]) and torch.equal(first.counts, second.counts)


def test_a_machine_without_parameters_has_all_states_at_one_energy() -> None:
    machine = hm.BoltzmannMachine([hm.Spin(8), hm.Bernoulli(3)], seed=None)
    found = hm.tasks.minimise(machine, 7, sweeps=2, method="anneal")
    assert set(found.energies.tolist()) == {0.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"runs": 0}, "runs: expected"),
        ({"sweeps": 0}, "sweeps: expected"),
        ({"method": "magic"}, "method: expected one of"),
        ({"betas": (1.0,)}, "betas: expected"),
        ({"betas": (2.0, 1.0)}, "betas: expected"),
        ({"method": "exact"}, "expected a machine of small tree width"),
    ],
)
def test_errors(arguments: dict[str, object], message: str) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(40), hm.Bernoulli(40)], seed=0)
    with pytest.raises(ValueError, match=message):
        hm.tasks.minimise(machine, **arguments)


def test_real_units_are_refused() -> None:
    with pytest.raises(ValueError, match="two values or categories, received Gaussian"):
        hm.tasks.minimise(hm.BoltzmannMachine([hm.Gaussian(3), hm.Bernoulli(2)]))


@pytest.mark.parametrize("size", [3, 5, 2])
def test_a_planted_glass_has_an_even_side(size: int) -> None:
    with pytest.raises(ValueError, match="size: expected an even number"):
        hm.data.planted_glass(size)


@pytest.mark.parametrize(
    ("weights", "cut"), [([1.0, -1, 1, 1, 2], 4.0), ([1.0, 1, 1, 1, 0], 4.0), ([1.5, -0.5, 1, 2.25, 0], 4.25)]
)
def test_the_largest_cut_is_a_lowest_state(weights: list[float], cut: float) -> None:
    """With J = -w the weight between spins of either sign is (Σ w - E) / 2."""
    edges, w = np.array([(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)]), np.array(weights)
    machine = of_pairs(4, edges, -w)
    for spins in torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4):
        between = sum(x for (i, j), x in zip(edges, w, strict=True) if spins[i] != spins[j])
        assert (w.sum() - machine.energy([spins[None]]).item()) / 2 == between
    assert (w.sum() - hm.tasks.minimise(machine).energies[0].item()) / 2 == cut


@pytest.mark.parametrize("kinds", ["spins", "bits", "labels"])
def test_states_go_to_dimod_and_back(kinds: str) -> None:
    pytest.importorskip("dimod")
    layers = {
        "spins": [hm.Spin(4), hm.Spin(3)],
        "bits": [hm.Bernoulli(4), hm.Spin(3)],
        "labels": [hm.Categorical(3, 3), hm.Bernoulli(2)],
    }[kinds]
    machine = graphs.with_drawn_parameters(hm.BoltzmannMachine(layers).double(), 1.0)
    found = hm.tasks.minimise(machine, 20, sweeps=3, method="anneal", seed=0)
    samples = hm.exchange.states_to_dimod(machine, found.states, found.counts)
    assert np.allclose(samples.record.energy, found.energies)
    assert samples.record.num_occurrences.tolist() == found.counts.tolist()
    again = hm.exchange.states_from_dimod(machine, samples)
    for x, y in zip(found.states, again, strict=True):
        assert torch.equal(x.repeat_interleave(found.counts, 0), y)
    model = hm.exchange.to_dimod(machine)
    if kinds != "labels":
        assert np.allclose(model.energies(samples), found.energies)
