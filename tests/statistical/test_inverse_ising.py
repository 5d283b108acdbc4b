"""Couplings of fully visible spins, recovered from exact draws, and where the exact draws come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exact.graphs import oracle_of
from scipy import stats

import harmonium as hm

from .support import FAILURE_RATE, largest_z

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ROWS = 5_000


@pytest.fixture
def lattice(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Four columns of three spins with random couplings, from the experiment on the 10x10 lattice."""
    monkeypatch.syspath_prepend(EXPERIMENTS)
    import inverse_ising

    return inverse_ising.random_lattice(4, 3, seed=3)


def machine_of(lattice: Any) -> hm.BoltzmannMachine:
    J = lattice.couplings()
    machine = hm.BoltzmannMachine([hm.Spin(len(J))], {(0, 0): hm.Masked(J != 0)}).double()
    machine.couplings[0].fill_(J.triu())
    with torch.no_grad():
        machine.layers[0].bias.copy_(lattice.bias.flatten())
    return machine


def test_transfer_matrices_sum_over_all_states(lattice: Any) -> None:
    """ln Z and all means against the enumeration of 2^12 states, which shares no code with them."""
    oracle = oracle_of(machine_of(lattice))
    np.testing.assert_allclose(lattice.log_partition(), oracle.log_partition().detach(), rtol=1e-12)
    ((mean,),), (pairs,) = oracle.expectations()
    spins, down, across = lattice.means()
    np.testing.assert_allclose(spins.flatten(), mean.detach(), atol=1e-12)
    i, j = lattice.pairs()
    expected = pairs.detach()[i, j]
    np.testing.assert_allclose(torch.cat([down.flatten(), across.flatten()]), expected, atol=1e-12)


def test_draws_follow_the_distribution(lattice: Any) -> None:
    """Failure rate on a fresh seed: 1e-3."""
    X = lattice.draw(ROWS, torch.Generator().manual_seed(1))
    i, j = torch.triu_indices(12, 12, 1)
    (_,), (pairs,) = oracle_of(machine_of(lattice)).expectations()
    spins, *_ = lattice.means()
    truth = torch.cat([spins.flatten(), pairs.detach()[i, j]])
    z, limit = largest_z(torch.cat([X, X[:, i] * X[:, j]], 1), truth)
    assert z < limit


@pytest.mark.mostly_nightly(2)
@pytest.mark.parametrize("rule", ["pseudo_likelihood", "pcd"])
@pytest.mark.parametrize("coupling", ["lattice", "dense"])
def test_couplings_are_recovered(lattice: Any, coupling: str, rule: str) -> None:
    """Errors of maximum likelihood, over their covariance, are χ² in the limit of many rows.

    Failure rate on fresh data at most 1e-3, if pseudo-likelihood and the noise of the chains add no more than
    a fifth to the squares, which is several times what they add on the 10x10 lattice.
    """
    X = lattice.draw(ROWS, torch.Generator().manual_seed(2))
    J = lattice.couplings()
    i, j = lattice.pairs() if coupling == "lattice" else torch.triu_indices(12, 12, 1)
    information = torch.cov(torch.cat([X, X[:, i] * X[:, j]], 1).t())
    covariance = torch.linalg.inv(information)[12:, 12:] / ROWS
    join = hm.Masked(J != 0) if coupling == "lattice" else hm.Dense()
    machine = hm.BoltzmannMachine([hm.Spin(12)], {(0, 0): join}).double()
    hm.train(
        machine, X, rule=hm.rules.pcd(1, 1000) if rule == "pcd" else hm.rules.pseudo_likelihood(),
        updates=200, batch_size=ROWS, learning_rate=0.05, momentum=0.7, schedule="linear", progress=False,
    )  # fmt: skip
    error = (machine.couplings[0].matrix().detach() - J)[i, j]
    squares = float(error @ torch.linalg.solve(covariance, error))
    assert squares < 1.2 * stats.chi2.isf(FAILURE_RATE, len(error))
    assert float(error.square().mean().sqrt()) < 0.04
