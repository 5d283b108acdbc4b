"""States of the lowest energy, against enumeration and planted ground states; graphs of Gset."""

from __future__ import annotations

from pathlib import Path

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


GRAPH = "4 5\n1 2 1\n2 3 -1\n3 4 1\n1 4 1\n1 3 2\n"


def test_graphs_of_gset_have_their_cuts(tmp_path: Path) -> None:
    path = tmp_path / "G0"
    path.write_text(GRAPH)
    found = hm.exchange.read(path)
    machine = found.machine
    assert found.form == "gset" and machine.metadata["origin"]["weight"] == 4.0
    edges = [tuple(map(int, line.split())) for line in GRAPH.splitlines()[1:]]
    for spins in torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4):
        cut = sum(w for i, j, w in edges if spins[i - 1] != spins[j - 1])
        assert (4.0 - machine.energy([spins[None]]).item()) / 2 == cut
    hm.exchange.write(machine, tmp_path / "again.gset")
    assert (tmp_path / "again.gset").read_text() == GRAPH
    assert (4.0 - hm.tasks.minimise(machine).energies[0].item()) / 2 == 4


@pytest.mark.parametrize(
    ("text", "cut"),
    [("4 4\n1 2\n2 3\n3 4\n1 4\n", 4.0), ("4 4\n1 2 1.5\n2 3 -0.5\n3 4 1\n1 4 2.25\n", 4.25)],
)
def test_graphs_without_weights_or_with_real_ones(tmp_path: Path, text: str, cut: float) -> None:
    (tmp_path / "G").write_text(text)
    machine = hm.exchange.read(tmp_path / "G").machine
    weight = machine.metadata["origin"]["weight"]
    assert (weight - hm.tasks.minimise(machine).energies[0].item()) / 2 == cut
    hm.exchange.write(machine, tmp_path / "again.gset")
    again = hm.exchange.read(tmp_path / "again.gset").machine
    assert torch.equal(again.couplings[0].weight, machine.couplings[0].weight)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4 5\n1 2 1\n", "expected 5 lines"),
        ("2 1\n1 3 1\n", r"line 2: expected two vertices .* in 1\.\.2"),
        ("2 1\n1 2 nan\n", "line 2: expected two vertices and a finite weight.*received '1 2 nan'"),
        ("3 2\n1 2 0.5\n2 3\n", "line 3: expected two vertices and a finite weight, .*received '2 3'"),
        ("2 1\n1 2 1 1\n", "line 2: expected two vertices and a finite weight"),
        ("2 2\n1 2 1\n2 1 1\n", "every pair of units once"),
        ("3 3\n1 2 1\n2 1 2\n2 3 1\n", "every pair of units once"),  # as many as three vertices have
        ("3 3\n1 2 1\n1 1 2\n2 3 1\n", "different units"),
        ("0 1\n1 2 1\n", "at least one vertex"),
        ("two one\n1 2 1\n", "line 1: expected the numbers"),
        ("999999999 1\n1 2 1\n", "vertices"),
    ],
)
def test_damaged_graphs_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "G").write_text(text)
    with pytest.raises(ValueError, match=message):
        hm.exchange.read(tmp_path / "G", form="gset")


def test_other_machines_are_no_graphs(tmp_path: Path) -> None:
    lifted = of_pairs(2, np.array([[0, 1]]), np.array([0.5]))
    lifted.constant = 1.0
    for machine, message in (
        (hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)]), "one layer of spins"),
        (lifted, "no constant of the energy for graphs"),
    ):
        with pytest.raises(ValueError, match=message):
            hm.exchange.write(machine, tmp_path / "x.gset")


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
