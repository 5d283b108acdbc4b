"""Training out of equilibrium is seen in a finished machine, and a machine at equilibrium is not accused.

A fall is reported if it passes Student's t at a rate of 1e-3 shared over the numbers of sweeps, and is 0.02
or more. In 3,300 resamplings of nine machines that mix (3 to 64 visible units) there was one alarm. The falls
of the machines below score far above the limit of about 5.
"""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium.report import resampling


@pytest.fixture(scope="module")
def digits() -> torch.Tensor:
    return torch.from_numpy(hm.data.threshold(hm.data.digits()[0])).float()[:1500]


def trained(X: torch.Tensor, hidden: int, rule: hm.learning.Rule, **settings: object) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine([hm.Bernoulli(X.shape[1]), hm.Bernoulli(hidden)], seed=0)
    hm.train(machine, X, rule=rule, progress=False, **settings)
    return machine


@pytest.mark.nightly
def test_short_chains_from_noise_are_found_out(digits: torch.Tensor) -> None:
    """Training by chains of 10 sweeps from noise makes samples that are good then, and worse later."""
    machine = trained(digits, 32, hm.rules.noise_cd(10), updates=1200, learning_rate=0.1)
    found = resampling(machine, digits, sweeps=256, seed=1)
    assert found.falls and found.peak < 64
    assert float(found.correlation.max()) > 0.85 and float(found.drop.max()) > 0.04


def test_persistent_chains_at_a_high_rate_are_found_out(digits: torch.Tensor) -> None:
    machine = trained(digits, 50, hm.rules.pcd(), updates=1500, learning_rate=0.5)
    found = resampling(machine, digits, sweeps=256, seed=1)
    assert found.falls and float(found.drop.max()) > 0.1


def test_persistent_chains_at_a_falling_rate_are_not_accused(digits: torch.Tensor) -> None:
    """4 seeds at a rate of 1e-3 or less: at most one alarm, but with probability below 1e-5."""
    machine = trained(digits, 50, hm.rules.pcd(), updates=1500, learning_rate=0.1, schedule="linear")
    found = [resampling(machine, digits, sweeps=128, seed=seed) for seed in range(4)]
    assert sum(each.falls for each in found) <= 1
    assert all(float(each.correlation[-1]) > 0.85 for each in found)


@pytest.mark.mostly_nightly(1)
@pytest.mark.parametrize("units", [3, 5, 12])
def test_the_exact_gradient_is_not_accused(units: int) -> None:
    """Machines that learned by counting; few and weak pairs too, whose correlation is all noise.

    20 seeds at a rate of 1e-3 or less: at most one alarm, but with probability below 2e-4.
    """
    teacher = hm.BoltzmannMachine([hm.Bernoulli(units), hm.Bernoulli(4)], seed=0)
    hm.machine.normal_(teacher, 0.5, torch.Generator().manual_seed(1))
    X = hm.chains.run(teacher, hm.chains.Gibbs(), teacher.random_states(1000, seed=1), 100, seed=2)[0]
    machine = trained(X, 4, hm.rules.exact(), updates=400, learning_rate=0.2)
    assert sum(resampling(machine, X, sweeps=32, seed=seed).falls for seed in range(20)) <= 1
