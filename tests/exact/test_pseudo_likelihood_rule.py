"""The rule of pseudo-likelihood against autograd of the conditionals, which it shares no formula with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import harmonium as hm

from .graphs import GRAPHS, data_for, make

Bernoulli, Spin, Categorical, Gaussian = hm.Bernoulli, hm.Spin, hm.Categorical, hm.Gaussian


def _ring(units: int) -> Tensor:
    return torch.eye(units).roll(1, 0)


FULLY_VISIBLE: dict[str, Callable[[], hm.BoltzmannMachine]] = {
    **{name: GRAPHS[name] for name in ("fully visible spins", "fully visible Potts", "spins on a lattice")},
    "two layers": lambda: hm.BoltzmannMachine([Bernoulli(4), Spin(3)], [(0, 1)], [0, 1]),
    "two layers, the second first": lambda: hm.BoltzmannMachine(
        [Categorical(2, 3), Bernoulli(3)], [(0, 1), (1, 1)], [1, 0]
    ),
    "a ring of real units": lambda: hm.BoltzmannMachine([Gaussian(5)], {(0, 0): hm.Masked(_ring(5))}),
    "a triangle of kinds": lambda: hm.BoltzmannMachine(
        [Gaussian(3), hm.Binomial(2, 3), Categorical(2, 3)], [(0, 1), (0, 2), (1, 2), (2, 2)], [0, 1, 2]
    ),
    "no edges": lambda: hm.BoltzmannMachine([Bernoulli(3), Spin(2)], [], [0, 1]),
}
every = pytest.mark.parametrize("name", FULLY_VISIBLE)


def machine(name: str, seed: int = 5) -> hm.BoltzmannMachine:
    made, generator = FULLY_VISIBLE[name]().double(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in made.layers:
            for p in layer.parameters():
                p.copy_(0.5 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
        for coupling in made.couplings:
            shape = coupling.weight.shape
            W = 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
            coupling.fill_(coupling.within(W))
    return made


def log_pseudo_likelihood(machine: hm.BoltzmannMachine, v: Tensor) -> Tensor:
    """Σ_i ln p(x_i | x_without_i), (rows,): fields from the matrices, distributions from the layers."""
    states = list(machine.split(v).values())
    order = list(machine.split(v))
    x = {l: states[i] for i, l in enumerate(order)}
    J = []
    for coupling, (l, m) in zip(machine.couplings, machine.edges, strict=True):
        W = coupling.matrix()
        below, above = machine.layers[l].scale, machine.layers[m].scale
        W = W if below is None else below.unsqueeze(-1) * W
        J.append(W if above is None else W * above)
    total = torch.zeros(len(v), dtype=torch.float64)
    for l, layer in enumerate(machine.layers):
        field = torch.zeros_like(x[l])
        for (a, b), matrix in zip(machine.edges, J, strict=True):
            if b == l:
                field = field + x[a] @ matrix
            elif a == l:
                field = field + x[b] @ matrix.t()
        total = total + layer.log_conditional(x[l], field).sum(-1)
    return total


def gradient(machine: hm.BoltzmannMachine, v: Tensor, weights: Tensor | None = None) -> dict[str, Tensor]:
    rule = hm.rules.pseudo_likelihood()
    return rule.gradient(machine, v, seed=torch.Generator(), weights=weights).parameters


@every
def test_the_gradient_is_that_of_the_pseudo_likelihood(name: str) -> None:
    made = machine(name)
    v = data_for(made, 7)
    actual = gradient(made, v)
    named = dict(made.named_parameters())
    truth = torch.autograd.grad(
        log_pseudo_likelihood(made, v).mean(), list(named.values()), allow_unused=True
    )
    assert actual.keys() == named.keys()
    for parameter, expected in zip(named, truth, strict=True):
        np.testing.assert_allclose(actual[parameter], expected, atol=1e-8, err_msg=parameter)


@every
def test_weights_of_rows_are_repetitions(name: str) -> None:
    made = machine(name)
    v = data_for(made, 4)
    weights = torch.tensor([2.0, 0.0, 1.0, 3.0], dtype=torch.float64)
    actual, expected = gradient(made, v, weights), gradient(made, v[[0, 0, 2, 3, 3, 3]])
    for parameter in expected:
        np.testing.assert_allclose(actual[parameter], expected[parameter], atol=1e-10, err_msg=parameter)


def test_two_spins_by_hand() -> None:
    """B_1 = w x_2: the derivative in w is 2 x_1 x_2 - x_2 tanh(w x_2) - x_1 tanh(w x_1)."""
    made = hm.BoltzmannMachine([Spin(2)], [(0, 0)]).double()
    w = 0.7
    made.couplings[0].fill_(torch.tensor([[0.0, w], [0.0, 0.0]], dtype=torch.float64))
    v = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    expected = torch.tensor([[0.0, -2 - 2 * np.tanh(w)], [0.0, 0.0]])
    torch.testing.assert_close(gradient(made, v)["couplings.0.weight"], expected.double())


def test_what_it_cannot_learn_is_refused() -> None:
    made = make("semi-restricted")
    with pytest.raises(ValueError, match=r"no hidden layers for the pseudo-likelihood, received \[1\]"):
        gradient(made, data_for(made, 3))
    made = machine("two layers")
    v = data_for(made, 3)
    v[1, 2] = torch.nan
    with pytest.raises(ValueError, match=r"complete rows for the pseudo-likelihood.*NaN"):
        gradient(made, v)


def test_it_says_that_it_is_biased() -> None:
    rule = hm.rules.pseudo_likelihood()
    assert (repr(rule), rule.bias) == ("pseudo_likelihood()", "biased")
