"""Gradients, chains and pairs whose products are by bits, as on large machines.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from statistical.support import exact_states, exact_statistics, largest_z, machine, row_statistics
from statistical.test_coupled import estimates

import harmonium as hm
from harmonium import backends
from harmonium.backends import choice

pytest.importorskip("numba")
pytestmark = pytest.mark.statistical
NAMES = ["bernoulli-spin", "categorical-bernoulli", "spin-bernoulli-categorical"]
ROWS = 40_000


@pytest.fixture(autouse=True)
def by_bits(monkeypatch) -> Iterator[None]:
    """Multiplies by bits, whatever the size."""
    backends.choice.works("bits")  # which multiplies itself when it is first asked
    taken: list[None] = []
    original = backends.bits.Fixed.times

    def noted(*arguments):
        taken.append(None)
        return original(*arguments)

    monkeypatch.setattr(backends.bits.Fixed, "times", noted)
    monkeypatch.setattr(choice, "WORTHWHILE", 0)
    for least in ("_NARROW", "_LITTLE", "_MANY", "_ACROSS"):
        monkeypatch.setattr(backends.products, least, 1)
    before = backends.backend_name()
    backends.set_backend("torch,bits=1")
    yield
    backends.set_backend(before)
    assert taken


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rule", [hm.rules.exact(), hm.rules.centred(hm.rules.exact())], ids=repr)
def test_exact_gradients(name: str, rule: hm.learning.Rule) -> None:
    """Against float64, which never takes these ways."""
    made = machine(name)
    v = made.random_states(300, seed=torch.Generator().manual_seed(1))[0]
    truth = rule.gradient(made, v, seed=torch.Generator()).parameters
    actual = rule.gradient(made.float(), v.float(), seed=torch.Generator()).parameters
    for parameter, expected in truth.items():
        torch.testing.assert_close(actual[parameter].double(), expected, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kernel", [hm.chains.Gibbs(), hm.chains.Tempering(3)], ids=repr)
def test_no_drift(name: str, kernel: hm.chains.Kernel) -> None:
    made = machine(name)
    exact, generator = exact_statistics(made.hamiltonian()), torch.Generator().manual_seed(1)
    start = [x.float() for x in exact_states(made, ROWS, generator)]
    states = hm.chains.run(made.float(), kernel, start, 3, seed=generator)
    z, limit = largest_z(row_statistics(made.hamiltonian(), states).double(), exact)
    assert z < limit


@pytest.mark.parametrize("name", NAMES)
def test_pairs_are_unbiased(monkeypatch, name: str) -> None:
    monkeypatch.setattr("harmonium.backends.choice.small_pairs", lambda *_: False)
    made = machine(name)
    exact = exact_statistics(made.hamiltonian())
    z, limit = largest_z(estimates(made.float(), hm.coupled.Gibbs(), 1, 3, 1).double(), exact)
    assert z < limit
