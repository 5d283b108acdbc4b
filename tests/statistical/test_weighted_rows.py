"""Unbiased rules stay so with weights of rows and with rows observed in part.

The mean of independent estimates against the enumerated gradient of the weighted mean log-likelihood of what
was observed, in its own standard errors. Failure rate of every test on a fresh seed: at most 1e-3.
"""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium.coupled import run_pairs
from harmonium.machine import Statistics

from .lots import gradients_in_lots
from .support import largest_z

ROWS, COPIES, LOTS = 50, 8, 40
RULES = {"ucd": lambda: hm.rules.ucd(0, 2), "ucd_lmi": lambda: hm.rules.ucd_lmi()}


def flat(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([gradient.flatten() for gradient in parameters.values()])


@pytest.mark.mostly_nightly(2)
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
    weights[:40] = 0.0
    weights += 30 * (v[:, 0] > 0) * weights  # which the unweighted gradient would miss by far
    if gaps:
        v[torch.rand(v.shape, generator=generator) < 0.3] = torch.nan
    truth = flat(hm.rules.exact().gradient(machine, v, weights=weights, seed=generator).parameters)
    found = gradients_in_lots(RULES[rule](), machine, v.repeat(LOTS, 1), LOTS, weights.repeat(LOTS))
    estimates = torch.stack([flat(each) for each in found])
    z, limit = largest_z(estimates, truth)
    assert z < limit
    z, limit = largest_z(estimates, flat(hm.rules.exact().gradient(machine, v, seed=generator).parameters))
    assert z > limit


def test_weights_of_rows_weigh_corrections_too() -> None:
    """With the same noise the sum is linear in the weights, and weights of 1 change nothing."""
    machine = hm.BoltzmannMachine([hm.Spin(4), hm.Bernoulli(3), hm.Bernoulli(2)]).double()
    hm.machine.normal_(machine, 1.0, torch.Generator().manual_seed(0))
    start = machine.random_states(ROWS, seed=torch.Generator().manual_seed(1))
    hamiltonian = machine.hamiltonian().clamp(start[0], ROWS)

    def total(weights: torch.Tensor | None) -> torch.Tensor:
        into = Statistics(hamiltonian)
        meetings = run_pairs(
            hamiltonian, hm.coupled.Gibbs(), start, k=0, m=0, lag=1, max_sweeps=None, into=into,
            generator=torch.Generator().manual_seed(2), row_weights=weights,
        )  # fmt: skip
        assert int((meetings.times > 1).sum()) > ROWS / 2
        return torch.cat([part.flatten() for part in (*(theta[0] for theta in into.thetas), *into.products)])

    ones = torch.ones(ROWS, dtype=torch.float64)
    some = torch.rand(ROWS, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(total(some) + total(ones - some), total(ones))
        torch.testing.assert_close(total(ones), total(None))
