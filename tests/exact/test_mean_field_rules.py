"""Rules of mean field: the gradient is that of the scheme's own likelihood; starts, solutions, failures."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import harmonium as hm
from harmonium.learning import MeanField
from harmonium.meanfield import Plefka

from .mean_field import MACHINES, TIGHT, noise, random_machine

pytestmark = pytest.mark.slow

TIGHTLY = {"tolerance": 1e-13, "max_sweeps": 20_000, "damping": 0.3}
SOLVERS = {
    "mean_field": hm.meanfield.naive,
    "tap": hm.meanfield.tap,
    "adatap": partial(hm.meanfield.tap, solver="adatap"),
}
SCALAR = [name for name in MACHINES if "categorical" not in name]


def gradient(rule: hm.learning.Rule, machine: hm.BoltzmannMachine, v: torch.Tensor, state: object = None):
    return rule.gradient(machine, v, state, seed=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("rule", SOLVERS)
@pytest.mark.parametrize("name", SCALAR)
@pytest.mark.mostly_nightly(2)
def test_the_gradient_is_that_of_clamped_less_free(rule: str, name: str) -> None:
    """Finite differences along a direction in all learnable parameters, at both solutions solved anew."""
    machine = random_machine(name, 0, 0.6)
    v = noise(machine, 3)
    estimate = gradient(hm.rules.RECIPES[rule](**TIGHTLY), machine, v)
    solver = partial(SOLVERS[rule], **TIGHT)
    generator = torch.Generator().manual_seed(1)

    def likelihood() -> float:
        return float((solver(machine, v).free_energy - solver(machine, v, v).free_energy).mean())

    kept = {label: parameter.detach().clone() for label, parameter in machine.named_parameters()}
    along = {label: torch.randn(x.shape, generator=generator, dtype=x.dtype) for label, x in kept.items()}
    values = []
    with torch.no_grad():
        for sign in (1, -1):
            for label, parameter in machine.named_parameters():
                parameter.copy_(kept[label] + sign * 1e-5 * along[label])
            values.append(likelihood())
    slope = float(sum((estimate.parameters[label] * x).sum() for label, x in along.items()))
    assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("start", ["data", "persistent", "noise"])
def test_starts_and_their_number(start: str) -> None:
    machine = random_machine("bernoulli deep", 0, 1.0)
    v = noise(machine, 4)
    for solutions in (1, 3, 7):
        rule = hm.rules.tap(solutions, start=start, tolerance=None, max_sweeps=3)
        first = gradient(rule, machine, v)
        assert (first.state is not None) == (start == "persistent")
        assert first.diagnostics["mean_field_sweeps"] == 3
        second = gradient(rule, machine, v, first.state)
        if first.state is not None:
            assert len(second.state.means[0]) == solutions
    with pytest.raises(ValueError, match="start"):
        hm.rules.tap(start="somewhere")


def test_persistent_solutions_go_on_where_they_stopped() -> None:
    """Three sweeps and three more are six."""
    machine = random_machine("bernoulli", 0, 2.0)
    v = noise(machine, 4)

    def rule(sweeps: int) -> hm.learning.Rule:
        return hm.rules.tap(start="persistent", tolerance=None, max_sweeps=sweeps)

    twice = gradient(rule(3), machine, v, gradient(rule(3), machine, v).state)
    once = gradient(rule(6), machine, v)
    for label, direction in once.parameters.items():
        torch.testing.assert_close(twice.parameters[label], direction, rtol=1e-12, atol=1e-12)


def test_solutions_of_another_machine_are_refused() -> None:
    rule = hm.rules.tap(start="persistent")
    machine, other = random_machine("bernoulli", 0, 1.0), random_machine("spin", 0, 1.0)
    state = gradient(rule, machine, noise(machine, 2)).state
    with pytest.raises(ValueError, match="state"):
        gradient(rule, other, noise(other, 2), state)


def test_rows_without_a_normaliser_are_left_out_and_none_left_is_an_error() -> None:
    machine = hm.BoltzmannMachine([hm.Spin(6), hm.Gaussian(4)]).double()
    with torch.no_grad():
        machine.couplings[0].weight.fill_(0.7)
    aligned, balanced = torch.ones(1, 6).double(), torch.zeros(1, 6).double()
    free = MeanField(partial(Plefka, order=2), clamped=False)
    clamped = MeanField(partial(Plefka, order=2))
    rule = hm.learning.Rule("tap", clamped, free, "biased")
    both = gradient(rule, machine, torch.cat([aligned, balanced]))
    assert both.diagnostics["mean_field_unbounded"] == 0.5
    assert all(bool(torch.isfinite(g).all()) for g in both.parameters.values())
    with pytest.raises(ValueError, match="normaliser"):
        gradient(rule, machine, balanced)
