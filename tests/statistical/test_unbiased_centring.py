"""A centred rule is right on average wherever its label says so, against the centred exact gradient.

Machines with parameters N(0, 1.2²) and few chains, where the noise is large: offsets made of the same noise
were 28 standard errors off. The limit is 4 standard errors of every parameter (19 with one hidden layer, 27
with two), so that a correct program fails a test on a fresh seed with probability 1.2e-3, and 1.7e-3.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch

import harmonium as hm
from harmonium import rules
from harmonium.couplings import Gibbs

LIMIT = 4.0
ONE, TWO = (4, 3), (4, 3, 2)
CASES = {
    "one pair": (rules.ucd(chains=1), ONE, 2000),
    "four pairs": (rules.ucd(chains=4), ONE, 1000),
    "a longer average with a lag": (rules.ucd(2, 5, lag=2, chains=4, start="noise"), ONE, 500),
    "antithetic pairs": (rules.ucd(chains=4, antithetic=True), ONE, 500),
    "local modes": (rules.ucd_lmi(chains=4), ONE, 400),
    "local modes, one": (rules.ucd_lmi(chains=1, coupling=Gibbs()), ONE, 1000),
    "two hidden layers": (rules.ucd(chains=4), TWO, 250),
    "two hidden layers, local modes": (rules.ucd_lmi(chains=4, coupling=Gibbs()), TWO, 250),
}


@cache
def problem(units: tuple[int, ...]) -> tuple[hm.BoltzmannMachine, torch.Tensor, torch.Tensor]:
    """A machine, four rows of noise as data, and the centred exact gradient.

    With one hidden layer in single precision, for which pairs are compiled; with two they are eager.
    """
    generator = torch.Generator().manual_seed(0)
    machine = hm.BoltzmannMachine([hm.Bernoulli(n) for n in units]).double()
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.copy_(1.2 * torch.randn(parameter.shape, generator=generator))
    v = machine.random_states(4, seed=generator)[0]
    truth = flat(rules.centred(rules.exact()).gradient(machine, v, seed=generator))
    return (machine.float(), v.float(), truth) if units == ONE else (machine, v, truth)


def flat(estimate: hm.learning.Estimate) -> torch.Tensor:
    return torch.cat([g.flatten() for g in estimate.parameters.values()]).double()


def standard_errors(
    rule: hm.learning.Rule, units: tuple[int, ...], replicates: int, copies: int = 1
) -> float:
    """The largest deviation of the mean gradient, in standard errors; of copies of the data if so said."""
    machine, v, truth = problem(units)
    v = v.repeat(copies, 1)
    generator = torch.Generator().manual_seed(1)
    drawn = torch.stack([flat(rule.gradient(machine, v, seed=generator)) for _ in range(replicates)])
    return float(((drawn.mean(0) - truth).abs() / (drawn.std(0) / replicates**0.5)).max())


@pytest.mark.parametrize("case", CASES)
def test_the_centred_gradient_is_right_on_average(case: str) -> None:
    rule, units, replicates = CASES[case]
    rule = rules.centred(rule)
    assert rule.bias == "unbiased"
    assert standard_errors(rule, units, replicates) < LIMIT


@pytest.mark.parametrize("units", [ONE, TWO], ids=str)
def test_a_biased_rule_stays_one_and_is_caught(units: tuple[int, ...]) -> None:
    rule = rules.centred(rules.cd(1))
    assert rule.bias == "biased"
    assert standard_errors(rule, units, 300, copies=10) > 2 * LIMIT


@pytest.mark.parametrize("rule", [rules.ucd(max_steps=5), rules.ucd_lmi(max_steps=5)], ids=repr)
def test_given_up_pairs_are_biased_with_centring_too(rule: hm.learning.Rule) -> None:
    assert rules.centred(rule).bias == "biased"
