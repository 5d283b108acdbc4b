"""Pairs that are equal in all that is read leave the sums at once, which changes no sum."""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium.coupled import Gibbs, Metropolis, PairKernel, meeting, run_pairs
from harmonium.machine import Statistics


def sums(coupling: PairKernel, readings: list[tuple[int, ...]] | None, lag: int) -> torch.Tensor:
    made = hm.BoltzmannMachine([hm.Spin(4), hm.Bernoulli(3), hm.Bernoulli(2)], seed=0).double()
    with torch.no_grad():
        for coupled in made.couplings:
            coupled.weight.mul_(20)
    generator = torch.Generator().manual_seed(1)
    into = Statistics(made.hamiltonian()).in_readings(readings)
    start = made.random_states(50, seed=generator)
    with torch.no_grad():
        run_pairs(
            made.hamiltonian(), coupling, start, k=0, m=2, lag=lag, max_sweeps=None,
            generator=generator, into=into, weight=0.02,
        )  # fmt: skip
    return torch.cat([t.flatten() for t in (*(x for theta in into.thetas for x in theta), *into.products)])


@pytest.mark.parametrize("lag", [1, 3])
@pytest.mark.parametrize("readings", [None, [()], [(0, 2), (1,)]], ids=repr)
@pytest.mark.parametrize("coupling", [Gibbs(), Metropolis()], ids=repr)
def test_equal_pairs_add_nothing(coupling, readings, lag, monkeypatch):
    expected = sums(coupling, readings, lag)
    without = meeting._drop
    calls = []

    def late(gone, apart, both, met):  # keeps them for the difference; the second call takes those that met
        calls.append(len(apart))
        return without(gone & (len(calls) % 2 == 0), apart, both, met)

    monkeypatch.setattr(meeting, "_drop", late)
    torch.testing.assert_close(sums(coupling, readings, lag), expected)
    assert calls


@pytest.mark.parametrize("marginalise", [True, False])
def test_pairs_that_met_are_not_read_again(marginalise, monkeypatch):
    """In a machine this strongly coupled no proposal is taken, so that all pairs meet in their first step."""
    made = hm.BoltzmannMachine([hm.Spin(40), hm.Spin(30), hm.Spin(20)], seed=0)
    with torch.no_grad():
        for coupled in made.couplings:
            coupled.weight.mul_(300)
    read = []
    add = Statistics.add
    monkeypatch.setattr(
        Statistics,
        "add",
        lambda self, hamiltonian, states, *more: (
            read.append(len(states[0])) or add(self, hamiltonian, states, *more)
        ),
    )
    rule = hm.rules.ucd_lmi(marginalise=marginalise)
    v = made.random_states(16, seed=torch.Generator().manual_seed(0))[0]
    rule.gradient(made, v, seed=torch.Generator().manual_seed(1))
    assert read == [16, 16]  # once in either phase
