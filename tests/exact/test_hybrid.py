"""Rules that learn a label given the data and the data too, against the two likelihoods of an oracle."""

from __future__ import annotations

import warnings

import pytest
import torch

import harmonium as hm

from .graphs import data_for, holes, oracle_of
from .test_conditional import close, every, gradient, machine_of


@every
def test_exact_hybrid_gradient(name: str) -> None:
    """Weighted rows, and rows that lack entries or the whole of y, which teach p(x) alone."""
    machine = machine_of(name)
    complete = data_for(machine, 5)
    given = [machine.visible[0]]
    without = machine.hamiltonian().observe_only(given, complete)
    oracle = oracle_of(machine)
    weights = torch.tensor([2.0, 0.0, 1.0, 0.5, 3.0], dtype=torch.float64)
    rule = hm.rules.hybrid(hm.rules.exact(), given, 0.3)
    assert rule.bias == "exact" and rule.generative and rule.density_share == 0.3
    for v in (complete, holes(machine, complete), torch.cat([complete[:3], without[3:]])):
        one, other = oracle.gradient(v, weights=weights, given=given), oracle.gradient(v, weights=weights)
        expected = {name: 0.7 * one[name] + 0.3 * other[name] for name in one}
        close(gradient(rule, machine, v, weights=weights), expected)


@every
def test_centring_is_of_the_sum(name: str) -> None:
    machine = machine_of(name)
    v, given = data_for(machine, 5), [machine.visible[0]]
    rule = hm.rules.centred(hm.rules.exact())
    one, other = (gradient(each, machine, v) for each in (hm.rules.conditional(rule, given), rule))
    found = gradient(hm.rules.hybrid(rule, given, 0.3), machine, v)
    close(found, {name: 0.7 * one[name] + 0.3 * other[name] for name in one})


def test_the_ends_are_the_rules_themselves() -> None:
    rule = hm.rules.pcd()
    assert hm.rules.hybrid(rule, [0], 1) is rule
    machine = machine_of("two visible kinds")
    v = data_for(machine, 5)
    close(
        gradient(hm.rules.hybrid(rule, [0], 0), machine, v),
        gradient(hm.rules.conditional(rule, [0]), machine, v),
        0.0,
    )


def test_chains_go_on_from_update_to_update() -> None:
    machine = machine_of("two visible kinds")
    v = data_for(machine, 30)
    rule = hm.rules.hybrid(hm.rules.pcd(chains=7), [0], 0.2)
    assert repr(rule) == "hybrid(pcd(1, chains=7), condition_on=[0], joint=0.2)" and rule.bias == "biased"
    run = hm.train(machine, v, rule=rule, updates=3, progress=False)
    assert {len(x) for x in run.rule_state.states} == {7}
    rule.check_state(machine, run.rule_state)
    with pytest.raises(ValueError, match=r"state: expected chains|state\[0\]"):
        rule.check_state(machine, [x[:, :1] for x in run.rule_state.states])


@pytest.mark.parametrize("joint", [-0.1, 1.1, float("nan")])
def test_what_is_no_share(joint: float) -> None:
    with pytest.raises(ValueError, match="joint: expected"):
        hm.rules.hybrid(hm.rules.pcd(), [0], joint)


def test_a_classifier_is_not_held_to_a_likelihood_that_it_does_not_learn() -> None:
    """p(x) may fall without end while p(y | x) is learned: no warning, and no divergence."""
    machine = hm.BoltzmannMachine(
        [hm.Bernoulli(4), hm.Categorical(1, 2), hm.Bernoulli(6)], edges=[(0, 2), (1, 2)], visible=[0, 1]
    )
    generator = torch.Generator().manual_seed(0)
    x = torch.bernoulli(torch.full((200, 4), 0.5), generator=generator)
    v = torch.cat([x, torch.eye(2)[(x.sum(1) > 2).long()]], 1)
    hm.machine.normal_(machine, 0.1, generator)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hm.train(
            machine, v, rule=hm.rules.conditional(hm.rules.exact(), [0]), updates=150, optimizer="adam",
            learning_rate=1.0, progress=False,
        )  # fmt: skip
    assert hm.likelihood.conditional_log_likelihood(machine, v, [0]).mean() > -0.3
    assert hm.likelihood.exact_log_likelihood(machine, v).mean() < -10  # uniform noise has -3.5
