"""Imputation against the conditional distribution by enumeration.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium.likelihood import exact_log_likelihood
from harmonium.tasks import impute

from .support import all_states, largest_z, machine

COPIES = 2000
DISCRETE = ["bernoulli-spin", "categorical-bernoulli", "bernoulli-gaussian", "spin-bernoulli-categorical"]


def problem(name: str, scale: float) -> tuple[hm.BoltzmannMachine, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A machine, one row, which of its units are missing, and E[x | the others]."""
    made = machine(name, scale=scale)
    layer = made.layers[0]
    row = made.random_states(1, seed=torch.Generator().manual_seed(4))[0]
    missing = torch.arange(layer.n_units).unsqueeze(0) != 1
    columns = missing.repeat_interleave(layer.width // layer.n_units, -1)
    if layer.discrete:
        grid = all_states(layer)
    else:
        axis = torch.linspace(-12, 12, 161, dtype=torch.float64)
        grid = torch.cartesian_prod(*[axis if m else row[0, i : i + 1] for i, m in enumerate(missing[0])])
    fits = (grid[:, ~columns[0]] == row[:, ~columns[0]]).all(-1)
    log_weight = exact_log_likelihood(made, grid[fits])
    return made, row, missing, log_weight.softmax(0) @ grid[fits]


@pytest.mark.mostly_nightly(4)
@pytest.mark.parametrize("method", ["gibbs", "tempered"])
@pytest.mark.parametrize("name", [*DISCRETE, "gaussian-bernoulli"])
def test_chains_give_the_conditional_means(name, method):
    made, row, missing, truth = problem(name, 0.9)
    done = impute(made, row.repeat(COPIES, 1), missing, method, draws=1, sweeps=40)
    columns = missing.repeat_interleave(row.shape[1] // missing.shape[1], -1)[0]
    for found in (done.mean, done.draws[0]):
        z, limit = largest_z(found[:, columns], truth[columns])
        assert z < limit
    # Had the given unit not been held, it would be seen.
    unheld = impute(made, row.repeat(COPIES, 1), torch.ones_like(missing), "gibbs", draws=1, sweeps=40)
    z, limit = largest_z(unheld.mean[:, columns], truth[columns])
    assert z > limit


@pytest.mark.parametrize("name", DISCRETE)
def test_the_best_of_several_local_modes_has_the_lowest_energy(name):
    made, row, missing, _ = problem(name, 1.0)
    done = impute(made, row.repeat(20, 1), missing, "local_search", draws=6)
    lowest = []
    for drawn in (done.mode, *done.draws):
        start = [drawn, *made.random_states(20, seed=torch.Generator().manual_seed(0))[1:]]
        modes, _ = hm.chains.local_search(made, start, drawn, seed=torch.Generator().manual_seed(0))
        assert torch.equal(modes[0], drawn)
        lowest.append(made.energy(modes))
    assert bool(torch.isfinite(torch.stack(lowest)).all())
    assert all((done.mode[i] == done.draws[:, i]).all(-1).any() for i in range(20))
