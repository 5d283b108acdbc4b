"""Pairs of units let go and taken up: a planted sparse machine is found again."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

import harmonium as hm

SITES, STATES = 5, 3
PLANTED = ((0, 1), (1, 4), (2, 3), (2, 4))


def pairs_of(machine: hm.BoltzmannMachine) -> set[tuple[int, int]]:
    joined = machine.couplings[0].joined
    assert joined is not None
    blocks = joined.view(SITES, STATES, SITES, STATES).any(3).any(1).triu(1)
    return {(int(i), int(j)) for i, j in blocks.nonzero()}


@pytest.fixture(scope="module")
def planted() -> tuple[Tensor, Tensor]:
    """All states and their probabilities, under random couplings of the planted pairs and random fields."""
    mask = torch.zeros(SITES, SITES)
    mask[tuple(zip(*PLANTED, strict=True))] = 1
    made = hm.BoltzmannMachine([hm.Categorical(SITES, STATES)], {(0, 0): hm.Masked(mask)}, [0])
    hm.machine.normal_(made, 1.0, seed=0)
    made.layers[0].bias.data.normal_(generator=torch.Generator().manual_seed(1))
    rows = made.layers[0].from_digits(torch.tensor(list(product(range(STATES), repeat=SITES)))).float()
    return rows, torch.softmax(-made.energy([rows]).double(), 0).detach()


def learned(machine: hm.BoltzmannMachine, planted: tuple[Tensor, Tensor]) -> float:
    """Trains a machine without noise and returns how far it is from the planted distribution, in nats."""
    rows, p = planted
    hm.train(
        machine, rows, rule=hm.rules.pseudo_likelihood(), weights=p, updates=150, batch_size=len(rows),
        learning_rate=0.5, progress=False,
    )  # fmt: skip
    q = torch.softmax(-machine.energy([rows]).double(), 0)
    return float((p * (p / q).log()).sum().detach())


def test_decimation_finds_planted_pairs(planted: tuple[Tensor, Tensor]) -> None:
    machine = hm.BoltzmannMachine([hm.Categorical(SITES, STATES)], {(0, 0): hm.Dense()}, [0])
    learned(machine, planted)
    with torch.no_grad():  # in a gauge in which strengths mean nothing
        machine.couplings[0].weight[0].add_(5.0)
    before = {name: x.clone() for name, x in machine.state_dict().items()}
    sparse = hm.tasks.decimate(machine, 7)
    assert len(pairs_of(sparse)) == 7 and set(PLANTED) < pairs_of(sparse)
    learned(sparse, planted)
    sparse = hm.tasks.decimate(sparse, 4)
    assert pairs_of(sparse) == set(PLANTED) and learned(sparse, planted) < 0.01
    assert all(torch.equal(x, before[name]) for name, x in machine.state_dict().items())


def test_what_is_left_of_a_decimated_machine_is_its_own(planted: tuple[Tensor, Tensor]) -> None:
    """Letting nothing go leaves every probability, and letting all go the fields of the zero-sum gauge."""
    rows, _ = planted
    machine = hm.BoltzmannMachine([hm.Categorical(SITES, STATES)], {(0, 0): hm.Dense()}, [0])
    hm.machine.normal_(machine, 1.0, seed=3)
    whole = hm.tasks.decimate(machine, 10)
    p, q = (torch.log_softmax(-each.energy([rows]).double(), 0) for each in (machine, whole))
    torch.testing.assert_close(p, q, atol=1e-5, rtol=0)
    hm.machine.to_zero_sum_(machine)
    none = hm.tasks.decimate(machine, 0)
    assert not pairs_of(none)
    torch.testing.assert_close(none.layers[0].bias, machine.layers[0].bias, atol=1e-5, rtol=0)


def test_hidden_units_let_go_of_weak_sites() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Spin(3)], seed=0)
    machine.metadata = {"name": "kept"}
    W = torch.arange(12.0).view(4, 3) - 5.5
    machine.couplings[0].fill_(W)
    machine.layers[1].bias.requires_grad_(False)
    sparse = hm.tasks.decimate(machine, 6)
    torch.testing.assert_close(sparse.couplings[0].matrix(), W * (W.abs() > 2.6))
    assert sparse.metadata == machine.metadata and not sparse.layers[1].bias.requires_grad


def test_activation_finds_planted_pairs(planted: tuple[Tensor, Tensor]) -> None:
    rows, p = planted
    empty = hm.Masked(torch.zeros(SITES, SITES))
    machine = hm.BoltzmannMachine([hm.Categorical(SITES, STATES)], {(0, 0): empty}, [0])
    hm.machine.init_visible_biases_(machine, rows, p)
    for number in (2, 4):
        own = torch.softmax(-machine.energy([rows]).double(), 0).detach()
        drawn = rows[own.multinomial(20_000, True, generator=torch.Generator().manual_seed(0))]
        machine = hm.tasks.activate(machine, 2, rows, drawn, weights=p)
        assert len(pairs_of(machine)) == number and pairs_of(machine) <= set(PLANTED)
        far = learned(machine, planted)
    assert far < 0.01


def test_the_gain_of_spins_is_that_of_their_signs() -> None:
    """Spins 0 and 2 agree in the rows and not in the draws."""
    machine = hm.BoltzmannMachine([hm.Spin(3)], {(0, 0): hm.Masked(torch.zeros(3, 3))}, [0])
    draws = torch.tensor(list(product((-1.0, 1.0), repeat=3)))
    X = draws[draws[:, 0] == draws[:, 2]]
    joined = hm.tasks.activate(machine, 1, X, draws).couplings[0].joined
    assert joined is not None and joined.nonzero().tolist() == [[0, 2], [2, 0]]


def test_refused() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0)
    with pytest.raises(ValueError, match="edge: expected one below 1, received 1"):
        hm.tasks.decimate(machine, 2, edge=1)
    with pytest.raises(ValueError, match="edge: expected one of visible units"):
        hm.tasks.activate(machine, 1, torch.zeros(2, 3), torch.zeros(2, 3))
    spins = hm.BoltzmannMachine([hm.Spin(3)], [(0, 0)], [0])
    with pytest.raises(ValueError, match="pairs: expected at most 0 that are not joined, received 1"):
        hm.tasks.activate(spins, 1, torch.ones(2, 3), torch.ones(2, 3))
    empty = hm.BoltzmannMachine([hm.Spin(3)], {(0, 0): hm.Masked(torch.zeros(3, 3))}, [0])
    with pytest.raises(ValueError, match="states: expected"):
        hm.tasks.activate(empty, 1, torch.ones(2, 3), torch.ones(2, 2))
    with pytest.raises(ValueError, match=r"weights: expected one for each of 2 rows, received shape \(3,\)"):
        hm.tasks.activate(empty, 1, torch.ones(2, 3), torch.ones(2, 3), weights=torch.ones(3))
