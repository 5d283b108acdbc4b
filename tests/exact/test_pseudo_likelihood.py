"""The pseudo-likelihood against conditional probabilities by enumeration."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import harmonium as hm

from . import oracle
from .graphs import GRAPHS, data_for, make, oracle_of
from .machines import array, build, describe
from .oracle import Array, Description
from .specifications import SPECIFICATIONS, Specification

CASES = [
    *(
        s
        for s in SPECIFICATIONS
        if s.hidden_layers == 1 and s.kinds[0] in ("bernoulli", "spin", "categorical")
    ),
    Specification("spin-categorical", (("spin", 5), ("categorical", 2, 3))),
    Specification("spin-gaussian", (("spin", 4), ("gaussian", 2))),
    Specification("categorical-gaussian", (("categorical", 3, 4), ("gaussian", 2))),
    Specification("categorical strong", (("categorical", 2, 3), ("spin", 3)), 20.0),
]
cases = pytest.mark.parametrize("specification", CASES, ids=lambda s: s.name)


def conditionals(description: Description, states: Array) -> Array:
    """ln p(v_i | v_without_i) of every row and unit, (rows, units): joint probabilities, renormalised."""
    layer = description.layers[0]
    every = oracle.support(layer)
    joint = oracle.log_probability(description, every)
    columns = layer.width // layer.n_units
    result = np.empty((len(states), layer.n_units))
    for unit in range(layer.n_units):
        others = np.ones(layer.width, dtype=bool)
        others[unit * columns : (unit + 1) * columns] = False
        for row, state in enumerate(states):
            agree = (every[:, others] == state[others]).all(1)
            own = (every == state).all(1)
            result[row, unit] = joint[own][0] - oracle.log_sum_exp(joint[agree])
    return result


def test_every_discrete_visible_kind_is_covered() -> None:
    assert {s.kinds[0] for s in CASES} == {"bernoulli", "spin", "categorical"}


@cases
def test_the_sum_of_log_conditionals(specification: Specification) -> None:
    """At every visible state."""
    machine = build(specification)
    description = oracle.natural(describe(machine))
    states = oracle.support(description.layers[0])
    actual = hm.likelihood.pseudo_log_likelihood(machine, torch.from_numpy(states))
    assert actual.dtype == torch.float64
    every = hm.likelihood.unit_log_probabilities(machine, states, 0)
    layer, values = machine.layers[0], machine.layers[0].values().to(every)
    own = (layer.by_unit(torch.from_numpy(states)).unsqueeze(2) == values).all(-1)
    np.testing.assert_allclose(every[own].view(len(states), -1), conditionals(description, states), atol=1e-5)
    np.testing.assert_allclose(every.logsumexp(-1), 0.0, atol=1e-12)
    assert tuple(actual.shape) == (len(states),)
    np.testing.assert_allclose(array(actual), conditionals(description, states).sum(1), rtol=1e-9, atol=1e-9)


@cases
def test_single_precision(specification: Specification) -> None:
    machine = build(specification, torch.float32)
    description = oracle.natural(describe(machine))
    states = oracle.support(description.layers[0])
    actual = hm.likelihood.pseudo_log_likelihood(machine, torch.from_numpy(states).float())
    np.testing.assert_allclose(array(actual), conditionals(description, states).sum(1), rtol=1e-4, atol=1e-4)


def test_one_unit_has_only_its_marginal() -> None:
    """With a single visible unit the pseudo-likelihood is the likelihood."""
    for layer in (hm.Bernoulli(1), hm.Spin(1), hm.Categorical(1, 4)):
        machine = hm.BoltzmannMachine([layer, hm.Bernoulli(3)]).double()
        with torch.no_grad():
            for parameter in machine.parameters():
                parameter.copy_(torch.linspace(-1, 2, parameter.numel()).view_as(parameter))
        states = layer.from_digits(torch.arange(layer.n_states).unsqueeze(-1))
        exact = hm.likelihood.exact_log_likelihood(machine, states)
        pseudo = hm.likelihood.pseudo_log_likelihood(machine, states)
        np.testing.assert_allclose(array(pseudo), array(exact), rtol=1e-12)


@cases
def test_one_draw_is_one_conditional_scaled_up(specification: Specification) -> None:
    machine = build(specification)
    description = oracle.natural(describe(machine))
    states = oracle.support(description.layers[0])
    generator = torch.Generator().manual_seed(0)
    drawn = hm.likelihood.pseudo_log_likelihood(machine, torch.from_numpy(states), sampled=1, seed=generator)
    possible = conditionals(description, states) * description.layers[0].n_units
    distance = np.abs(possible - array(drawn)[:, None]).min(1)
    np.testing.assert_allclose(distance, 0, atol=1e-8)


@pytest.mark.statistical
def test_draws_average_to_the_exact_value() -> None:
    """Every row's mean over 4000 draws of a unit, and rows that draw apart; failure rate 1e-3."""
    specification = next(s for s in CASES if s.name == "categorical-bernoulli")
    machine = build(specification)
    description = oracle.natural(describe(machine))
    states = oracle.support(description.layers[0])[:8]
    draws = 4000
    rows = torch.from_numpy(np.repeat(states, draws, axis=0))
    values = hm.likelihood.pseudo_log_likelihood(
        machine, rows, sampled=1, seed=torch.Generator().manual_seed(1)
    )
    values = array(values).reshape(len(states), draws)
    error = values.std(1, ddof=1) / draws**0.5
    z = np.abs(values.mean(1) - conditionals(description, states).sum(1)) / error
    assert z.max() < stats.norm.isf(1e-3 / (2 * len(z)))


def test_the_same_generator_state_draws_the_same_units() -> None:
    machine = build(CASES[1])
    states = torch.from_numpy(oracle.support(oracle.natural(describe(machine)).layers[0]))
    values = [
        hm.likelihood.pseudo_log_likelihood(
            machine, states, sampled=2, seed=torch.Generator().manual_seed(seed)
        )
        for seed in (5, 5, 6)
    ]
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])


DISCRETE = [name for name in GRAPHS if "Gaussian" not in name and name != "three visible kinds"]
INDEPENDENT = [name for name in DISCRETE if make(name).graph.independent]


@pytest.mark.parametrize("name", INDEPENDENT)
def test_graphs(name: str) -> None:
    """Against the unnormalised probabilities of all states of each visible unit, from an oracle apart."""
    machine = make(name)
    X = data_for(machine, 6)
    truth = oracle_of(machine)
    now = truth.log_unnormalised(X)
    expected = torch.zeros(len(X), dtype=torch.float64)
    first = 0
    for l in machine.visible:
        layer = machine.layers[l]
        values = layer.values()
        for _ in range(layer.n_units):
            last = first + values.shape[1]
            changed = [
                torch.cat([X[:, :first], value.expand(len(X), -1), X[:, last:]], 1) for value in values
            ]
            expected += now - torch.stack([truth.log_unnormalised(v) for v in changed]).logsumexp(0)
            first = last
    actual = hm.likelihood.pseudo_log_likelihood(machine, X)
    torch.testing.assert_close(actual, expected.detach(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", [name for name in DISCRETE if name not in INDEPENDENT])
def test_joined_hidden_layers_are_refused(name: str) -> None:
    machine = make(name)
    with pytest.raises(ValueError, match="machine: expected hidden layers that no edge joins"):
        hm.likelihood.pseudo_log_likelihood(machine, data_for(machine, 2))


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["two visible kinds", "hidden layer in the middle"])
def test_draws_go_through_all_visible_layers(name: str) -> None:
    """One row drawn 4000 times; failure rate 1e-3, shared over both."""
    machine = make(name)
    X = data_for(machine, 1)
    exact = hm.likelihood.pseudo_log_likelihood(machine, X).item()
    drawn = hm.likelihood.pseudo_log_likelihood(
        machine, X.repeat(4000, 1), sampled=1, seed=torch.Generator().manual_seed(2)
    )
    error = float(drawn.std()) / 4000**0.5
    assert abs(float(drawn.mean()) - exact) < stats.norm.isf(1e-3 / 4) * error
