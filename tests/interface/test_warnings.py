"""Where warnings point: at the line of one's own that led to them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import harmonium as hm

REAL = np.random.default_rng(0).normal(size=(300, 12))


def near_a_saddle():
    machine = hm.BoltzmannMachine([hm.Gaussian(12), hm.Bernoulli(6)], seed=0)
    hm.train(machine, REAL, rule="cd", updates=2, progress=False)


def few_annealing_runs():
    machine = hm.BoltzmannMachine([hm.Bernoulli(30), hm.Bernoulli(20)], seed=0)
    machine.couplings[0].fill_(8 * torch.randn(30, 20, generator=torch.Generator().manual_seed(0)))
    hm.likelihood.ais(machine, 100, 1, seed=0)


def still_rising():
    pytest.importorskip("sklearn")
    correlated = np.repeat(np.random.default_rng(0).random((200, 3)) < 0.5, 4, axis=1)
    hm.RBM(6, epochs=30, random_state=0).fit(correlated.astype(float))


def many_pairs_given_up():
    machine = hm.BoltzmannMachine([hm.Bernoulli(30), hm.Bernoulli(20)], seed=0)
    machine.couplings[0].fill_(4 * torch.randn(30, 20, generator=torch.Generator().manual_seed(0)))
    hm.rules.ucd(max_sweeps=2).gradient(machine, machine.random_states(50, seed=0)[0], seed=0)


@pytest.mark.parametrize("lead", [near_a_saddle, few_annealing_runs, still_rising, many_pairs_given_up])
def test_warnings_point_outside_the_package(lead):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lead()
    assert caught
    assert {warning.filename for warning in caught} == {__file__}
    first = lead.__code__.co_firstlineno
    assert all(first < warning.lineno < first + 6 for warning in caught)
