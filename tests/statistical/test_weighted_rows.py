"""Unbiased rules stay so with weights of rows and with rows observed in part.

The mean of independent estimates against the enumerated gradient of the weighted mean log-likelihood of what
was observed, in its own standard errors. Failure rate of every test on a fresh seed: at most 1e-3.
"""

from __future__ import annotations

import pytest
import torch

import harmonium as hm

from .support import largest_z

ROWS, COPIES, REPLICATES = 50, 5, 12
RULES = {"ucd": lambda: hm.rules.ucd(2, 6), "ucd_lmi": lambda: hm.rules.ucd_lmi()}


def flat(estimate: hm.learning.Estimate) -> torch.Tensor:
    return torch.cat([gradient.flatten() for gradient in estimate.parameters.values()])


@pytest.mark.parametrize(("hidden", "gaps"), [((3,), True), ((3, 2), False), ((3, 2), True)])
@pytest.mark.parametrize("rule", RULES)
def test_weighted_gradients_are_right_on_average(rule: str, hidden: tuple[int, ...], gaps: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    machine = hm.BoltzmannMachine([hm.Spin(4), *(hm.Bernoulli(units) for units in hidden)]).double()
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.normal_(0, 0.7, generator=generator)
    v = machine.random_states(ROWS, seed=generator)[0].repeat(COPIES, 1)
    weights = torch.rand(len(v), generator=generator).double() ** 4
    weights[:25] = 0.0
    weights += 30 * (v[:, 0] > 0) * weights  # which the unweighted gradient would miss by far
    if gaps:
        v[torch.rand(v.shape, generator=generator) < 0.3] = torch.nan
    truth = flat(hm.rules.exact().gradient(machine, v, weights=weights, seed=generator))
    made, generators = RULES[rule](), [torch.Generator().manual_seed(seed) for seed in range(REPLICATES)]
    estimates = torch.stack(
        [flat(made.gradient(machine, v, weights=weights, seed=each)) for each in generators]
    )
    z, limit = largest_z(estimates, truth)
    assert z < limit
    z, limit = largest_z(estimates, flat(hm.rules.exact().gradient(machine, v, seed=generator)))
    assert z > limit
