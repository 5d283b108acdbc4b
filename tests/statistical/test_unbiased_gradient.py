"""The gradient of ``ucd`` is right on average, and the same test catches contrastive divergence.

Every kind of visible unit, one and two hidden layers. The mean of independent estimates is compared with the
enumerated gradient, parameter by parameter, in its own standard errors. Failure rate of every test on a fresh
seed: at most 1e-3, shared over its parameters, by Student's distribution of so few estimates.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from scipy import stats

import harmonium as hm

from .lots import gradients_in_lots
from .support import FAILURE_RATE

ROWS = 600
REPLICATES = 15
LOTS, LOT = 40, 150
"""Of one run, where pairs are not compiled."""
VISIBLE = {
    "bernoulli": lambda: hm.Bernoulli(6),
    "spin": lambda: hm.Spin(4),
    "categorical": lambda: hm.Categorical(2, 3),
    "gaussian": lambda: hm.Gaussian(3),
}
HIDDEN = {
    "one hidden layer": lambda: [hm.Bernoulli(6)],
    "two hidden layers": lambda: [hm.Bernoulli(3), hm.Spin(2)],
}
HORIZONS = [(1, 1, 1), (3, 10, 1), (2, 8, 3)]
EVERY = [(visible, hidden) for visible in VISIBLE for hidden in HIDDEN]
IN_TURN = [(*names, HORIZONS[(i + j) % 3]) for i, names in enumerate(EVERY) for j in range(2 - i % 2)]
"""Two horizons for every machine of one hidden layer and one for the others, whose pairs are slower; three
machines or more for every horizon: their weights know no machine."""


@cache
def problem(visible: str, hidden: str) -> tuple[hm.BoltzmannMachine, torch.Tensor, torch.Tensor]:
    """A machine with parameters N(0, 1), the least likely tenth of noise as data, and the exact gradient."""
    generator = torch.Generator().manual_seed(0)
    made = hm.BoltzmannMachine([VISIBLE[visible](), *HIDDEN[hidden]()]).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    rows = ROWS if compiled(visible, hidden) else LOT
    v = made.random_states(10 * rows, seed=generator)[0]
    v = v[hm.likelihood.exact_log_likelihood(made, v).argsort()[:rows]]
    truth = flat(hm.rules.exact().gradient(made, v, seed=generator).parameters)
    return (made.float(), v.float(), truth) if compiled(visible, hidden) else (made, v, truth)


def compiled(visible: str, hidden: str) -> bool:
    """Whether pairs are, in single precision; test_coupled has eager ones of such units."""
    return visible in ("bernoulli", "spin") and hidden == "one hidden layer"


def flat(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([g.flatten() for g in parameters.values()]).double()


def deviation(rule: hm.learning.Rule, visible: str, hidden: str) -> tuple[float, float]:
    """The largest deviation of the mean gradient in standard errors, and its limit."""
    made, v, truth = problem(visible, hidden)
    seeds = [torch.Generator().manual_seed(seed) for seed in range(REPLICATES)]
    return compared([rule.gradient(made, v, seed=each).parameters for each in seeds], truth)


def compared(estimates: list[dict[str, torch.Tensor]], truth: torch.Tensor) -> tuple[float, float]:
    drawn = torch.stack([flat(each) for each in estimates])
    error = drawn.std(0) / len(drawn) ** 0.5
    difference = (drawn.mean(0) - truth).abs()
    limit = stats.t.isf(FAILURE_RATE / (2 * len(truth)), len(drawn) - 1)
    return float((difference / error).max()), float(limit)


@pytest.mark.mostly_nightly(4)
@pytest.mark.parametrize(("visible", "hidden", "horizon"), IN_TURN, ids=str)
def test_coupled_chains_give_the_exact_gradient_on_average(visible, hidden, horizon):
    rule = hm.rules.ucd(*horizon)
    assert rule.bias == "unbiased"
    if compiled(visible, hidden):
        largest, limit = deviation(rule, visible, hidden)
    else:
        made, v, truth = problem(visible, hidden)
        largest, limit = compared(gradients_in_lots(rule, made, v.repeat(LOTS, 1), LOTS), truth)
    assert largest < limit


@pytest.mark.parametrize(("visible", "hidden"), EVERY)
def test_one_sweep_of_contrastive_divergence_is_caught(visible, hidden):
    largest, limit = deviation(hm.rules.cd(1), visible, hidden)
    assert largest > 2 * limit


def test_pairs_may_begin_at_the_chains_of_another_rule():
    """More chains than the batch has rows, and handed over far from the machine's distribution."""
    made, v, truth = problem("bernoulli", "one hidden layer")
    rule = hm.rules.ucd(start="persistent")
    estimates = []
    for seed in range(REPLICATES):
        generator = torch.Generator().manual_seed(seed)
        chains = hm.rules.pcd(1, 2 * ROWS).gradient(made, v, seed=generator).state
        chains.states[0].fill_(1.0)
        estimate = rule.gradient(made, v, chains, seed=generator)
        assert [len(x) for x in estimate.state.states] == [2 * ROWS] * 2
        estimates.append(estimate.parameters)
    largest, limit = compared(estimates, truth)
    assert largest < limit
