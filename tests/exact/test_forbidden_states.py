"""Forbidden states, -inf among parameters and 0 in networks: sums, modes and searches by enumeration."""

from __future__ import annotations

import itertools
from math import exp, inf, log, prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.exchange import values_of

Factors = list[tuple[list[int], np.ndarray[Any, Any]]]


def network(seed: int, zeros: float) -> tuple[list[int], Factors]:
    """Returns the numbers of values, and random factors of up to two variables with a share of zeros.

    The state with 1 everywhere is allowed.
    """
    random = np.random.default_rng(seed)
    values = random.integers(2, 5, 5).tolist()
    scopes = [[i] for i in range(5)] + [random.permutation(5)[:2].tolist() for _ in range(6)]
    shapes = [[values[i] for i in scope] for scope in scopes]
    tables = [random.gamma(1, size=shape) * (random.random(shape) >= zeros) for shape in shapes]
    for table in tables:
        table[(1,) * table.ndim] += 0.1
    return values, list(zip(scopes, tables, strict=True))


def weights(values: list[int], factors: Factors) -> dict[tuple[int, ...], float]:
    return {
        x: prod(float(table[tuple(x[i] for i in scope)]) for scope, table in factors)
        for x in itertools.product(*map(range, values))
    }


def write(path: Path, values: list[int], factors: Factors, kind: str = "MARKOV") -> Path:
    lines = [kind, str(len(values)), " ".join(map(str, values)), str(len(factors))]
    lines += [" ".join(map(str, [len(scope), *scope])) for scope, _ in factors]
    lines += [f"{table.size} {' '.join(map(repr, table.flatten().tolist()))}" for _, table in factors]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("kind", ["MARKOV", "BAYES"])
@pytest.mark.parametrize("zeros", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_networks_with_zeros_have_the_sums_and_modes_of_enumeration(
    seed: int, zeros: float, kind: str, tmp_path: Path
) -> None:
    """Of 50 runs of annealing on five variables one ends in the likeliest state, on every network."""
    values, factors = network(seed, zeros)
    weight = weights(values, factors)
    machine = hm.exchange.read(write(tmp_path / "x.uai", values, factors, kind)).machine
    log_z = hm.likelihood.exact_log_partition(machine)
    assert log_z == pytest.approx(log(sum(weight.values())), abs=1e-10)
    for method in ("exact", "anneal"):
        found = hm.tasks.minimise(machine, 50, sweeps=30, method=method)
        assert found.energies[0].item() == pytest.approx(-log(max(weight.values())), abs=1e-9)
        for row in values_of(machine, found.states):
            assert weight[tuple(row.astype(int).tolist())] > 0
    states = machine.random_states(50, seed=0)
    rows = [tuple(row) for row in values_of(machine, states).astype(int).tolist()]
    expected = torch.tensor([log(weight[row]) if weight[row] else -inf for row in rows], dtype=torch.float64)
    assert zeros == 0 or bool(expected.isneginf().any())
    torch.testing.assert_close(-machine.energy(states), expected)
    v = machine.hamiltonian(forbidden=True).visible_states(states)
    torch.testing.assert_close(hm.likelihood.exact_log_likelihood(machine, v), expected - log_z)
    hm.exchange.write(machine, tmp_path / "again.uai")
    machine.save(tmp_path / "again")
    for again in (hm.exchange.read(tmp_path / "again.uai").machine, hm.load(tmp_path / "again")):
        torch.testing.assert_close(-again.energy(states), expected)


def test_evidence_leaves_the_network_of_the_others(tmp_path: Path) -> None:
    """A factor of three variables becomes one of two, one of none a constant; both forms of file are read."""
    values, factors = network(0, 0.1)
    factors.append(([], np.array(1e-200)))
    factors.append(([4, 0, 2], np.random.default_rng(1).gamma(1, size=[values[i] for i in (4, 0, 2)])))
    path, evidence = write(tmp_path / "x.uai", values, factors), tmp_path / "x.uai.evid"
    with pytest.raises(ValueError, match="at most two variables for factor 12"):
        hm.exchange.read(path)
    likely = max(weights(values, factors).items(), key=lambda item: item[1])[0]
    weight = {x: w for x, w in weights(values, factors).items() if (x[0], x[3]) == (likely[0], likely[3])}
    for head in ("", "1\n"):
        evidence.write_text(f"{head}2 3 {likely[3]} 0 {likely[0]}\n")
        machine = hm.exchange.read(path, evidence=evidence).machine
        log_z = hm.likelihood.exact_log_partition(machine)
        assert log_z == pytest.approx(log(sum(weight.values())), abs=1e-10)
        found = values_of(machine, hm.tasks.minimise(machine).states)
        assert found.tolist() == [list(map(float, likely))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 9 0", "different ones below 5"),
        ("1 0 9", "values that the network has"),
        ("2 0 0 0 1", "different ones"),
        ("3 0 0", "the number of observed variables, and each with its value"),
        ("", "the number of observed variables"),
        ("one", "whole numbers"),
        ("5 0 0 1 0 2 0 3 0 4 0", "variables that are not observed"),
    ],
)
def test_evidence_that_does_not_fit_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "e").write_text(text)
    path = write(tmp_path / "x.uai", *network(0, 0.0))
    with pytest.raises(ValueError, match=message):
        hm.exchange.read(path, evidence=tmp_path / "e")
    hm.exchange.write(hm.BoltzmannMachine([hm.Spin(2)], [], [0]), tmp_path / "x.txt")
    with pytest.raises(ValueError, match="evidence: expected beside a file of uai, received beside text"):
        hm.exchange.read(tmp_path / "x.txt", evidence=tmp_path / "e")


def test_a_network_without_an_allowed_state_is_refused(tmp_path: Path) -> None:
    never = [([0], np.array([1.0, 0.0])), ([0, 1], np.array([[0.0, 0.0], [1.0, 2.0]]))]
    machine = hm.exchange.read(write(tmp_path / "x.uai", [2, 2], never)).machine
    for search in (
        hm.likelihood.exact_log_partition,
        hm.tasks.minimise,
        lambda m: hm.tasks.minimise(m, 5, sweeps=5, method="anneal"),
    ):
        with pytest.raises(ValueError, match="expected a state that is allowed"):
            search(machine)


def test_pairs_that_exclude_each_other_count_independent_sets() -> None:
    """Couplings of -inf among bits on a ring of n: Lucas numbers of states are allowed."""
    ring = hm.Sparse([(i, (i + 1) % 12) for i in range(12)])
    machine = hm.BoltzmannMachine([hm.Bernoulli(12)], {(0, 0): ring}, [0], seed=None).double()
    machine.couplings[0].fill_(torch.full((12,), -inf))
    assert exp(hm.likelihood.exact_log_partition(machine)) == pytest.approx(322)
    with torch.no_grad():
        machine.layers[0].bias.fill_(1.0)
    assert hm.tasks.minimise(machine, 64, sweeps=50, method="anneal").energies[0].item() == -6.0
    rows = torch.zeros(2, 12).double()
    rows[1, :2] = 1
    assert machine.free_energy(rows).tolist() == [0.0, inf]


def test_what_forbids_states_is_refused_elsewhere_by_name(tmp_path: Path) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0)
    with torch.no_grad():
        machine.couplings[0].weight[1, 0] = -inf
    for use in (
        lambda: hm.likelihood.ais(machine, 5, 5),
        lambda: hm.tasks.sample(machine, 3, seed=0),
        lambda: hm.meanfield.naive(machine, torch.zeros(1, 3)),
        lambda: hm.exchange.write(machine, tmp_path / "x.hdf5"),
    ):
        with pytest.raises(ValueError, match=r"couplings\.0\.weight"):
            use()
    spins = hm.BoltzmannMachine([hm.Spin(3), hm.Bernoulli(2)], seed=0)
    with torch.no_grad():
        spins.layers[0].bias[1] = -inf
    for use in (
        lambda: spins.save(tmp_path / "x"),
        lambda: hm.likelihood.exact_log_partition(spins),
    ):
        with pytest.raises(ValueError, match=r"layers\.0\.bias"):
            use()
