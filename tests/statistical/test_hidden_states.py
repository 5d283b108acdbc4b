"""Draws from the exact distribution against its moments, and rules that sample against the exact rule.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from exact.graphs import data_for, holes, with_drawn_parameters
from scipy import stats
from torch import Tensor

import harmonium as hm
from harmonium.likelihood import HiddenStates, exact_log_likelihood
from harmonium.machine import Statistics
from harmonium.tasks import sample

from .support import FAILURE_RATE, all_states, largest_z

DRAWS = 20_000
GENERATOR = 11


def table(hidden: int = 4, scale: float = 0.5) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine(
        [
            *(hm.Gaussian(2), hm.Categorical(1, 3), hm.Binomial(1, 3), hm.TruncatedGaussian(1, 0.0, 1.0)),
            hm.Spin(hidden),
        ],
        edges=[(0, 4), (1, 4), (2, 4), (3, 4)],
        visible=[0, 1, 2, 3],
    )
    return with_drawn_parameters(machine.double(), scale)


def joined() -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine(
        [hm.Gaussian(2), hm.Bernoulli(3), hm.Gaussian(2)],
        edges=[(0, 1), (0, 2), (1, 2), (2, 2)],
        visible=[2, 0],
    )
    return with_drawn_parameters(machine.double(), 0.35)


def test_whole_rows_follow_the_enumerated_distribution() -> None:
    machine = with_drawn_parameters(hm.BoltzmannMachine([hm.Bernoulli(4), hm.Spin(3)]).double(), 1.0)
    grid = all_states(machine.layers[0])
    p = exact_log_likelihood(machine, grid).exp()
    drawn = sample(machine, DRAWS, method="exact", seed=GENERATOR).rows
    counts = (drawn.unsqueeze(1) == grid).all(-1).sum(0)
    assert int(counts.sum()) == DRAWS
    assert stats.chisquare(counts.numpy(), (p / p.sum() * DRAWS).numpy()).pvalue > FAILURE_RATE
    # Those of another machine would be seen.
    other = with_drawn_parameters(hm.BoltzmannMachine([hm.Bernoulli(4), hm.Spin(3)]).double(), 0.9)
    wrong = exact_log_likelihood(other, grid).exp()
    assert stats.chisquare(counts.numpy(), (wrong / wrong.sum() * DRAWS).numpy()).pvalue < FAILURE_RATE


@pytest.mark.parametrize("make", [table, joined])
def test_conditional_draws_have_the_moments_of_pairs(make) -> None:
    """E[x] and E[x xᵀ] of what a row lacks, hidden units included by their means given each draw."""
    machine = make()
    hamiltonian = machine.hamiltonian()
    row = holes(machine, data_for(machine, 5))[3:4]
    row[:, 0] = torch.nan
    hidden = HiddenStates(hamiltonian)
    exact = Statistics(hamiltonian)
    hidden.expect(exact, 1.0, row)
    drawn = hidden.posterior(row).draw(torch.Generator().manual_seed(GENERATOR), DRAWS)[:, 0]
    states = [x if len(x) else torch.empty(0) for x in hamiltonian.split(drawn)]
    for m in machine.hidden:
        states[m] = hamiltonian.mean(m, hamiltonian.field(m, states)).detach()
    found, expected = [], []
    for l, layer in enumerate(machine.layers):
        if l not in machine.hidden:
            found += layer.statistics(states[l])
            expected += exact.thetas[l]
    for edge, (l, m) in enumerate(machine.edges):
        outer = (states[l].unsqueeze(2) * states[m].unsqueeze(1)).flatten(1)
        found.append(outer / 2 if l == m else outer)
        expected.append(exact.products[edge].flatten())
    x, truth = torch.cat([t.detach() for t in found], 1), torch.cat([t.detach() for t in expected])
    varies = x.std(0) > 1e-9
    torch.testing.assert_close(x[:, ~varies].mean(0), truth[~varies])
    z, limit = largest_z(x[:, varies], truth[varies])
    assert z < limit


def chains_at(machine: hm.BoltzmannMachine, count: int, generator: torch.Generator) -> list[Tensor]:
    """Joint states from the exact distribution."""
    hamiltonian = machine.hamiltonian()
    states = hamiltonian.split(sample(machine, count, method="exact", seed=generator).rows)
    for m in machine.hidden:
        states[m] = hamiltonian.sample(m, hamiltonian.field(m, states), generator).detach()
    return states


@pytest.mark.parametrize("make", [table, joined])
def test_persistent_chains_at_the_distribution_agree_with_the_exact_rule(make) -> None:
    """The gradient by chains that begin at the distribution is right on average, for rows with holes too."""
    machine = make()
    v = holes(machine, data_for(machine, 8))
    exact = hm.rules.exact().gradient(machine, v, seed=0).parameters
    generator, rule, found = torch.Generator().manual_seed(GENERATOR), hm.rules.pcd(1, chains=200), []
    for _ in range(25):
        estimate = rule.gradient(machine, v, chains_at(machine, 200, generator), seed=generator)
        found.append(torch.cat([estimate.parameters[name].flatten() for name in exact]))
    x, truth = torch.stack(found), torch.cat([exact[name].flatten() for name in exact])
    varies = x.std(0) > 1e-9
    torch.testing.assert_close(x[:, ~varies].mean(0), truth[~varies])
    z = (x.mean(0) - truth)[varies].abs() / (x.std(0)[varies] / len(x) ** 0.5)
    assert float(z.max()) < float(stats.t.isf(FAILURE_RATE / (2 * len(z)), len(x) - 1))


def flat(sums: Statistics) -> Tensor:
    """All sums side by side."""
    each = [*chain.from_iterable(sums.thetas), *sums.products]
    return torch.cat([t.flatten() for t in each]).detach()


@pytest.mark.nightly
def test_sampled_holes_agree_with_summed_ones() -> None:
    """With 2^9 hidden states the clamped side of sampled rules draws what is missing: means over many copies.

    Couplings are weak, so that chains mix: at 0.5 they are off by a third of a unit after 160 sweeps.
    """
    machine = table(hidden=9, scale=0.2)
    v = holes(machine, data_for(machine, 4))
    hamiltonian = machine.hamiltonian()
    exact = Statistics(hamiltonian)
    HiddenStates(hamiltonian).expect(exact, 1 / len(v), v)
    truth = flat(exact)
    clamped, found = hm.learning.ClampedChains(20), []
    generator = torch.Generator().manual_seed(GENERATOR)
    for _ in range(25):
        into = Statistics(hamiltonian)
        task = hm.learning.ExpectationRequest(hamiltonian, v.repeat(50, 1), generator, into, False)
        assert not task.exact
        clamped.add(task)
        found.append(flat(into))
    x = torch.stack(found)
    z = (x.mean(0) - truth).abs() / (x.std(0) / len(x) ** 0.5)
    assert float(z.max()) < float(stats.t.isf(FAILURE_RATE / (2 * len(z)), len(x) - 1))
