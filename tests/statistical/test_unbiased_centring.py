"""A centred rule is right on average wherever its label says so, against the centred exact gradient.

Both have the offsets of the rule, which may differ from call to call but must not hold the noise of the
estimate. Machines have parameters N(0, 1.2²) and few chains, so that it would show. The limit is Student's,
1e-3 shared over the parameters (19 with one hidden layer, 27 with two): the rate at which a correct program
fails a test on a fresh seed.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from machines import request_of

import harmonium as hm
from harmonium import rules
from harmonium.coupled import Gibbs

from .support import largest_z

ONE, TWO = (4, 3), (4, 3, 2)
CASES = {
    "one pair": (rules.ucd(chains=1), ONE, 250),
    "four pairs": (rules.ucd(chains=4), ONE, 60),
    "a longer average with a lag": (rules.ucd(2, 5, lag=2, chains=4, start="noise"), ONE, 80),
    "local modes": (rules.ucd_lmi(chains=4), ONE, 60),
    "local modes, one": (rules.ucd_lmi(chains=1, pair_kernel=Gibbs()), ONE, 120),
    "two hidden layers": (rules.ucd(chains=4), TWO, 40),
    "two hidden layers, local modes": (rules.ucd_lmi(chains=4, pair_kernel=Gibbs()), TWO, 40),
}


@cache
def problem(units: tuple[int, ...]) -> tuple[hm.BoltzmannMachine, torch.Tensor]:
    """A machine, and four rows of noise as data.

    With one hidden layer in single precision, for which pairs are compiled; with two they are eager.
    """
    generator = torch.Generator().manual_seed(0)
    machine = hm.BoltzmannMachine([hm.Bernoulli(n) for n in units]).double()
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.copy_(1.2 * torch.randn(parameter.shape, generator=generator))
    v = machine.random_states(4, seed=generator)[0]
    return (machine.float(), v.float()) if units == ONE else (machine, v)


@torch.no_grad()
def off(rule: hm.learning.Rule, units: tuple[int, ...], copies: int, noise: torch.Generator) -> torch.Tensor:
    """How far one estimate is from the exact gradient, both centred by the offsets of the rule."""
    machine, v = problem(units)
    task, exact = request_of(machine, v.repeat(copies, 1), noise), request_of(machine, v, noise)
    centre, _, _ = rule.add(task, None)
    rules.exact().add(exact, None)
    parametrisation = hm.learning.Parametrisation(machine)
    found, truth = (rule.direction(parametrisation, each.into, centre) for each in (task, exact))
    return torch.cat([(found[name] - truth[name]).flatten() for name in found]).double()


def deviation(
    rule: hm.learning.Rule, units: tuple[int, ...], replicates: int, copies: int = 1
) -> tuple[float, float]:
    """The largest deviation of the mean gradient in standard errors, and its limit."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.stack([off(rule, units, copies, generator) for _ in range(replicates)])
    return largest_z(drawn, torch.zeros_like(drawn[0]))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.mostly_nightly(1)
def test_the_centred_gradient_is_right_on_average(case: str) -> None:
    rule, units, replicates = CASES[case]
    rule = rules.centred(rule)
    assert rule.bias == "unbiased"
    z, limit = deviation(rule, units, replicates)
    assert z < limit


@pytest.mark.parametrize("units", [ONE, TWO], ids=str)
def test_a_biased_rule_stays_one_and_is_caught(units: tuple[int, ...]) -> None:
    rule = rules.centred(rules.cd(1))
    assert rule.bias == "biased"
    z, limit = deviation(rule, units, 90, copies=20)
    assert z > 2 * limit


@pytest.mark.parametrize("rule", [rules.ucd(max_sweeps=5), rules.ucd_lmi(max_sweeps=5)], ids=repr)
def test_given_up_pairs_are_biased_with_centring_too(rule: hm.learning.Rule) -> None:
    assert rules.centred(rule).bias == "biased"
