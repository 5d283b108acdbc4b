"""Bounds on the log-likelihood of deep machines against enumeration.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

import pytest
import torch
from machines import with_normal_parameters

import harmonium as hm
from harmonium.likelihood import annealed_bound, exact_log_likelihood, exact_log_partition, variational_bound

from .support import MACHINES, largest_z, machine

DEEP = {
    "spin-bernoulli-categorical": MACHINES["spin-bernoulli-categorical"],
    "gaussian-spin-gaussian": MACHINES["gaussian-spin-gaussian"],
    "four layers": lambda: [hm.Bernoulli(3), hm.Spin(3), hm.Bernoulli(2), hm.Spin(2)],
}


def made(name: str) -> hm.BoltzmannMachine:
    if name in MACHINES:
        return machine(name, scale=1.0)
    return with_normal_parameters(hm.BoltzmannMachine(DEEP[name]()).double(), 1.0, 5)


def rows(built: hm.BoltzmannMachine, count: int) -> torch.Tensor:
    return built.random_states(count, seed=torch.Generator().manual_seed(2))[0]


@pytest.mark.parametrize("name", DEEP)
def test_the_variational_bound_is_below_and_the_annealed_one_between(name):
    built = made(name)
    v, constant = rows(built, 12), exact_log_partition(built)
    truth = exact_log_likelihood(built, v)
    variational = variational_bound(built, v, constant)
    assert bool((variational <= truth + 1e-9).all())
    assert float((truth - variational).max()) > 1e-3  # a machine where there is something to gain
    annealed = annealed_bound(built, v, constant, chains=200, temperatures=200)
    assert float((truth - annealed).abs().mean()) < 0.2 * float((truth - variational).mean())


@pytest.mark.parametrize("name", DEEP)
def test_the_variational_bound_of_what_rows_show_is_below_its_likelihood(name):
    """Exact, and so without a failure rate; without couplings it is the likelihood."""
    built = made(name)
    v, constant = rows(built, 12), exact_log_partition(built)
    width = built.layers[0].width // built.layers[0].n_units
    hole = torch.rand(12, built.layers[0].n_units, generator=torch.Generator().manual_seed(3)) < 0.4
    v = v.masked_fill(hole.repeat_interleave(width, 1), torch.nan)
    assert bool(hole.any(1).all() or hole.any())
    gap = exact_log_likelihood(built, v) - variational_bound(built, v, constant)
    assert bool((gap >= -1e-9).all()) and float(gap.max()) > 1e-3
    for coupling in built.couplings:
        coupling.fill_(torch.zeros_like(coupling.weight))
    found = variational_bound(built, v, exact_log_partition(built))
    torch.testing.assert_close(found, exact_log_likelihood(built, v), rtol=0, atol=1e-9)


@pytest.mark.parametrize("temperatures", [1, 7])
@pytest.mark.parametrize("name", DEEP)
def test_annealing_weights_are_right_on_average(name, temperatures):
    built = made(name)
    v, constant = rows(built, 3), exact_log_partition(built)
    truth = exact_log_likelihood(built, v)
    found = annealed_bound(built, v.repeat(4000, 1), constant, chains=1, temperatures=temperatures)
    ratio = (found.view(4000, 3) - truth).exp()
    z, limit = largest_z(ratio, torch.ones(3, dtype=torch.float64))
    assert z < limit
    # Weights that are a fifth too large are seen.
    assert largest_z(ratio * 1.2, torch.ones(3, dtype=torch.float64))[0] > limit


def test_with_one_hidden_layer_both_are_the_log_likelihood():
    built = machine("bernoulli-spin")
    v, constant = rows(built, 10), exact_log_partition(built)
    truth = hm.likelihood.log_likelihood(built, v, constant)
    assert torch.allclose(variational_bound(built, v, constant), truth)
    assert torch.allclose(annealed_bound(built, v, constant, chains=2, temperatures=3), truth)
