"""Chains from local modes: unbiased where they say so, in both phases, plain and marginalised.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

from typing import final

import pytest
import torch
from machines import with_normal_parameters

import harmonium as hm
from harmonium.coupled import ChainState, PairKernel
from harmonium.learning import ExpectationRequest, LocalModes
from harmonium.machine import Statistics
from harmonium.sums import expect

from .lots import in_lots
from .support import flat, largest_z

DEEP = {
    "bernoulli": lambda: [hm.Bernoulli(3), hm.Bernoulli(3), hm.Bernoulli(2)],
    "spin": lambda: [hm.Spin(3), hm.Spin(2), hm.Spin(3)],
    "mixed": lambda: [hm.Spin(3), hm.Bernoulli(2), hm.Categorical(1, 3)],
    "three hidden": lambda: [hm.Bernoulli(2), hm.Spin(2), hm.Bernoulli(2), hm.Spin(1)],
}
LOTS = 40
CHAINS = 2400


def deep(name: str, scale: float = 0.6) -> hm.BoltzmannMachine:
    return with_normal_parameters(hm.BoltzmannMachine(DEEP[name]()).double(), scale, 3, torch.float64)


def data(made: hm.BoltzmannMachine, chains: int) -> torch.Tensor:
    few = made.random_states(5, seed=torch.Generator().manual_seed(1))[0]
    return few.repeat(chains // 5, 1)


def estimates(made, *, clamped, chains=CHAINS, **settings) -> torch.Tensor:
    """Independent estimates of E[S | v] or E[S], (LOTS, statistics)."""
    hamiltonian, total = made.hamiltonian(), Statistics(made.hamiltonian())
    request = ExpectationRequest(
        hamiltonian, data(made, chains), torch.Generator().manual_seed(0), total, True
    )
    expectation = LocalModes(clamped=clamped, **settings)
    return torch.stack(
        [flat(lot) for lot in in_lots(hamiltonian, total, LOTS, lambda: expectation.add(request))]
    )


def truth(made, *, clamped) -> torch.Tensor:
    total, v = Statistics(made.hamiltonian()), data(made, 5)
    with torch.no_grad():
        expect(made.hamiltonian(), total, 1 / len(v) if clamped else 1.0, v if clamped else None)
    return flat(total)


@final
class Shortcut(PairKernel):
    """One Metropolis chain compared with its own past: Y is where X was, and they "meet" at a refusal."""

    def __init__(self) -> None:
        self.right = hm.coupled.Metropolis()

    def chain_layers(self, hamiltonian):
        return self.right.chain_layers(hamiltonian)

    def prepare(self, hamiltonian, place, copies):
        return place

    def single(self, hamiltonian, place, generator):
        return self.right.single(hamiltonian, place, generator)

    def coupled(self, hamiltonian, both, generator):
        pairs = len(both.states[0]) // 2
        x = both.select_rows(slice(0, pairs))
        moved = self.right.single(hamiltonian.select_rows(torch.arange(pairs)), x, generator)
        states = [torch.cat(pair) for pair in zip(moved.states, x.states, strict=True)]
        return ChainState(states, {}), torch.zeros(pairs, dtype=torch.int64)


@pytest.mark.mostly_nightly(2)
@pytest.mark.parametrize("name", DEEP)
def test_each_phase_and_the_gradient_are_unbiased_and_marginalising_takes_variance_away(name):
    """The total variance over statistics; its own relative error is about 0.2 from so many lots, and it falls
    to less than a half."""
    made, variance = deep(name), {}
    given, alone = truth(made, clamped=True), truth(made, clamped=False)
    for marginalise in (False, True):
        settings = {"pair_kernel": hm.coupled.Metropolis(), "marginalise": marginalise}
        clamped = estimates(made, clamped=True, **settings)
        free = estimates(made, clamped=False, **settings)
        for found, expected in ((clamped, given), (free, alone), (clamped - free, given - alone)):
            z, limit = largest_z(found, expected)
            assert z < limit
        variance[marginalise] = float(free.var(0).sum())
    assert variance[True] < variance[False]


@pytest.mark.parametrize("name", DEEP)
def test_gibbs_pairs_from_local_modes_are_unbiased_too(name):
    """Such pairs meet in the even layers, while these readings see the odd ones too; one of the two phases is
    marginalised.
    """
    made = deep(name, 0.8 if name == "spin" else 1.2)  # spins differ by 2, and their pairs meet late
    for clamped in (True, False):
        marginalise = clamped == (name in ("bernoulli", "mixed"))
        found = estimates(made, clamped=clamped, pair_kernel=hm.coupled.Gibbs(), marginalise=marginalise)
        z, limit = largest_z(found, truth(made, clamped=clamped))
        assert z < limit


@pytest.mark.parametrize("name", ["bernoulli", "three hidden"])
def test_the_shortcut_with_a_single_chain_is_caught(name):
    made = deep(name)
    for clamped in (True, False):
        found = estimates(made, clamped=clamped, pair_kernel=Shortcut(), chains=16_000)
        z, limit = largest_z(found, truth(made, clamped=clamped))
        assert z > 2 * limit


@pytest.mark.parametrize("name", DEEP)
def test_local_modes_without_a_correction_are_biased(name):
    made = deep(name, 1.0)
    hamiltonian, rows = made.hamiltonian(), []
    for seed in range(25):
        total = Statistics(hamiltonian)
        with torch.no_grad():
            LocalModes().add(
                ExpectationRequest(
                    hamiltonian, data(made, 800), torch.Generator().manual_seed(seed), total, True
                )
            )
        rows.append(flat(total))
    found = torch.stack(rows)
    z, limit = largest_z(found, truth(made, clamped=False))
    assert z > 2 * limit


def test_bias_is_told():
    assert hm.rules.ucd_lmi().bias == "unbiased"
    assert hm.rules.ucd_lmi(pair_kernel=hm.coupled.Gibbs()).bias == "unbiased"
    assert hm.rules.ucd_lmi(max_sweeps=50).bias == "biased"
    assert hm.rules.ucd_lmi(pair_kernel=None).bias == "biased"
