"""The zero-sum gauge leaves every probability, and sums to zero."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import harmonium as hm
from harmonium.likelihood import exact_log_likelihood
from harmonium.machine import to_zero_sum_

MACHINES = {
    "potts": lambda: hm.BoltzmannMachine([hm.Categorical(4, 3)], {(0, 0): hm.Dense()}, [0]),
    "bernoulli": lambda: hm.BoltzmannMachine([hm.Categorical(3, 3), hm.Bernoulli(2)]),
    "gaussian": lambda: hm.BoltzmannMachine([hm.Categorical(3, 3), hm.Gaussian(2)]),
    "double": lambda: hm.BoltzmannMachine([hm.Categorical(3, 3), hm.DoubleReLU(2)]),
    "potts hidden": lambda: hm.BoltzmannMachine([hm.Categorical(3, 3), hm.Categorical(2, 4)]),
    "spins below": lambda: hm.BoltzmannMachine([hm.Spin(3), hm.Categorical(2, 3)]),
    "semi": lambda: hm.BoltzmannMachine(
        [hm.Categorical(3, 3), hm.Bernoulli(2)], {(0, 0): hm.Dense(), (0, 1): hm.Dense()}, [0]
    ),
    "masked": lambda: hm.BoltzmannMachine(
        [hm.Categorical(3, 3), hm.Bernoulli(2)],
        {
            (0, 0): hm.Masked(torch.tensor([[0, 1, 0], [1, 0, 1], [0, 1, 0]])),
            (0, 1): hm.Masked(torch.tensor([[1, 0], [1, 1], [0, 1]])),
        },
        [0],
    ),
    "deep": lambda: hm.BoltzmannMachine([hm.Categorical(2, 3), hm.Categorical(2, 3), hm.Spin(2)]),
}


def drawn(name):
    machine = MACHINES[name]().double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for label, x in machine.named_parameters():
            if "log" not in label:
                x.copy_(torch.randn(x.shape, generator=generator, dtype=x.dtype))
        for coupling in machine.couplings:
            coupling.draw_(0.7, generator)
    return machine


@pytest.mark.parametrize("name", MACHINES)
def test_probabilities_stay_and_couplings_sum_to_zero(name):
    machine = drawn(name)
    layer = machine.layers[0]
    states = torch.tensor(list(product(range(layer.n_states), repeat=layer.n_units)))
    v = layer.from_digits(states).double()
    before, weights = exact_log_likelihood(machine, v), [c.weight.clone() for c in machine.couplings]
    to_zero_sum_(machine)
    torch.testing.assert_close(exact_log_likelihood(machine, v), before, atol=1e-6, rtol=0)
    assert any(not torch.equal(a, c.weight) for a, c in zip(weights, machine.couplings, strict=True))
    for (l, m), coupling in zip(machine.edges, machine.couplings, strict=True):
        for index, W in ((l, coupling.matrix()), (m, coupling.matrix().t())):
            below = machine.layers[index]
            if below.one_hot:
                sums = W.reshape(below.n_units, below.n_states, -1).sum(1)
                assert float(sums.abs().max()) < 1e-9
    for each in machine.layers:
        if each.one_hot:
            assert float(each.bias.sum(-1).abs().max()) < 1e-9


@pytest.mark.parametrize("name", MACHINES)
def test_twice_is_once(name):
    machine = drawn(name)
    to_zero_sum_(machine)
    once = [x.clone() for x in machine.parameters()]
    to_zero_sum_(machine)
    for a, b in zip(once, machine.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_units_without_a_gauge_stay():
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Spin(2)], seed=0)
    before = [x.clone() for x in machine.parameters()]
    to_zero_sum_(machine)
    assert all(torch.equal(a, b) for a, b in zip(before, machine.parameters(), strict=True))
