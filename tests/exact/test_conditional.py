"""Conditional likelihoods, their gradients and predictions, against an oracle written from the formulas."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.learning import Rule
from harmonium.likelihood import conditional_log_likelihood

from .graphs import GRAPHS, data_for, holes, make, oracle_of

pytestmark = pytest.mark.slow

Bernoulli, Spin, Categorical, Gaussian = hm.Bernoulli, hm.Spin, hm.Categorical, hm.Gaussian

MORE: dict[str, Callable[[], hm.BoltzmannMachine]] = {
    "visible layers joined": lambda: hm.BoltzmannMachine(
        [Bernoulli(3), Spin(2), Categorical(1, 3)], edges=[(0, 1), (0, 2), (1, 2)], visible=[0, 1, 2]
    ),
    "a masked part": lambda: hm.BoltzmannMachine(
        [Bernoulli(4), Categorical(1, 3), Spin(3)],
        edges={(0, 2): hm.Masked(torch.eye(4, 3) > 0), (1, 2): hm.Dense()},
        visible=[0, 1],
    ),
    "windows beside a label": lambda: hm.BoltzmannMachine(
        [Bernoulli(6), Categorical(1, 3), Bernoulli(4)],
        edges={(0, 2): hm.Local((3, 2), 2), (1, 2): hm.Dense(), (0, 0): hm.Dense()},
        visible=[0, 1],
    ),
    "labels with inner edges": lambda: hm.BoltzmannMachine(
        [Gaussian(2), Categorical(3, 2), Spin(2)], edges=[(0, 2), (1, 2), (1, 1)], visible=[0, 1]
    ),
}
NAMES = [*(name for name in GRAPHS if len(make(name).visible) > 1), *MORE]
every = pytest.mark.parametrize("name", NAMES)


def machine_of(name: str) -> hm.BoltzmannMachine:
    if name in GRAPHS:
        return make(name)
    GRAPHS[name] = MORE[name]
    try:
        return make(name)
    finally:
        del GRAPHS[name]


def close(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-8) -> None:
    assert found.keys() == expected.keys()
    for parameter, gradient in expected.items():
        np.testing.assert_allclose(found[parameter], gradient, atol=tolerance, err_msg=parameter)


def gradient(rule: Rule, machine: hm.BoltzmannMachine, v: Tensor, **more: Tensor) -> dict[str, Tensor]:
    return rule.gradient(machine, v, seed=torch.Generator().manual_seed(0), **more).parameters


def test_there_are_enough_graphs() -> None:
    assert len(NAMES) >= 8


@pytest.mark.mostly_nightly(5)
@every
def test_conditional_likelihood(name: str) -> None:
    machine = machine_of(name)
    complete = data_for(machine, 6)
    oracle = oracle_of(machine)
    for v in (complete, holes(machine, complete)):
        for l in machine.visible:
            others = [m for m in machine.visible if m != l]
            for given in ([l], others):
                expected = oracle.log_conditional(v, given).detach()
                found = conditional_log_likelihood(machine, v, given)
                assert found.dtype == torch.float64
                np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.mostly_nightly(5)
@every
def test_exact_conditional_gradient(name: str) -> None:
    machine = machine_of(name)
    complete = data_for(machine, 5)
    oracle = oracle_of(machine)
    weights = torch.tensor([2.0, 0.0, 1.0, 0.5, 3.0], dtype=torch.float64)
    for given in ([machine.visible[0]], [machine.visible[-1]]):
        rule = hm.rules.conditional(hm.rules.exact(), given)
        assert rule.bias == "exact"
        for v in (complete, holes(machine, complete)):
            close(gradient(rule, machine, v), oracle.gradient(v, given=given))
            weighted = gradient(rule, machine, v, weights=weights)
            close(weighted, oracle.gradient(v, weights=weights, given=given))


@cache
def given_the_first(name: str) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """Data, complete and with holes, and the gradient of ln p(the others | the first visible layer)."""
    machine = machine_of(name)
    complete = data_for(machine, 5)
    oracle = oracle_of(machine)
    return [(v, oracle.gradient(v, given=machine.visible[:1])) for v in (complete, holes(machine, complete))]


RULES = [hm.rules.cd(), hm.rules.pcd(), hm.rules.ucd(), hm.rules.ucd_lmi(), hm.rules.mean_field_pcd()]


@pytest.mark.parametrize("rule", RULES, ids=repr)
@every
def test_few_states_are_enumerated_whatever_the_rule(name: str, rule: Rule) -> None:
    """Nothing is drawn: exact although the rule samples."""
    machine = machine_of(name)
    if not machine.graph.independent:
        return
    for v, expected in given_the_first(name):
        found = gradient(hm.rules.conditional(rule, [machine.visible[0]]), machine, v)
        close(found, expected)


@every
def test_centring_and_conditioning_commute(name: str) -> None:
    machine, given = machine_of(name), [machine_of(name).visible[0]]
    v = data_for(machine, 5)
    exact = hm.rules.exact()
    one = gradient(hm.rules.centred(hm.rules.conditional(exact, given)), machine, v)
    other = gradient(hm.rules.conditional(hm.rules.centred(exact), given), machine, v)
    close(one, other, 0.0)
    # Other coordinates: a direction along which the same likelihood rises.
    plain = gradient(hm.rules.conditional(exact, given), machine, v)
    assert sum(float((one[p] * plain[p]).sum()) for p in plain) > 0
    assert any(not torch.allclose(one[p], plain[p]) for p in plain)


def test_chains_stand_in_for_many_states() -> None:
    """Ten binary labels have more states than are enumerated: chains, whose mean is right in the limit."""
    machine = hm.BoltzmannMachine(
        [Bernoulli(2), Bernoulli(10), Bernoulli(10)], edges=[(0, 2), (1, 2)], visible=[0, 1]
    ).double()
    hm.machine.normal_(machine, 0.1, torch.Generator().manual_seed(1))
    v = data_for(machine, 400)
    exact = gradient(hm.rules.conditional(hm.rules.exact(), [0]), machine, v[:20])
    sampled = gradient(hm.rules.conditional(hm.rules.cd(), [0]), machine, v[:20].repeat(20, 1))
    for parameter, expected in exact.items():
        difference = float((sampled[parameter] - expected).abs().max())
        assert difference < 0.15
        # Noise shows that it was drawn; what is given on both sides has none.
        assert difference > 1e-6 or parameter == "layers.0.bias"


def test_training_a_classifier() -> None:
    """ln p(label | pixels) rises, with a rule by name of its own and a run to go on from."""
    machine = machine_of("two visible kinds")
    v = data_for(machine, 30)
    before = conditional_log_likelihood(machine, v, [0]).mean()
    rule = hm.rules.conditional(hm.rules.pcd(), [0])
    assert repr(rule) == "conditional(pcd(1), condition_on=[0])"
    run = hm.train(machine, v, rule=rule, updates=30, learning_rate=0.2, progress=False)
    assert conditional_log_likelihood(machine, v, [0]).mean() > before + 0.1
    assert run.rule_state is None


def test_labels_of_bias() -> None:
    labels = {"exact": "exact", "cd": "biased", "pcd": "biased", "ucd": "unbiased", "tap": "biased"}
    for name, label in labels.items():
        assert hm.rules.conditional(getattr(hm.rules, name)(), [0]).bias == label
    assert hm.rules.conditional(hm.rules.quadrature(), [0]).bias == "biased"


@pytest.mark.parametrize(
    ("given", "error"),
    [([], ValueError), ([0, 0], ValueError), ([-1], ValueError), ([True], ValueError), (0, TypeError)],
)
def test_what_cannot_be_given(given: list[int], error: type[Exception]) -> None:
    with pytest.raises(error, match="condition_on: expected"):
        hm.rules.conditional(hm.rules.cd(), given)
    machine = machine_of("two visible kinds")
    with pytest.raises(error, match="condition_on: expected"):
        conditional_log_likelihood(machine, data_for(machine, 2), given)


@pytest.mark.parametrize("given", [[2], [0, 1], [5]])
def test_what_this_machine_cannot_be_given(given: list[int]) -> None:
    machine = machine_of("two visible kinds")
    with pytest.raises(
        ValueError, match=r"condition_on: expected some, not all, of the visible layers \[0, 1\]"
    ):
        gradient(hm.rules.conditional(hm.rules.cd(), given), machine, data_for(machine, 2))
    with pytest.raises(ValueError, match="condition_on: expected some"):
        conditional_log_likelihood(machine, data_for(machine, 2), given)


def test_a_conditional_rule_keeps_no_state() -> None:
    rule, machine = hm.rules.conditional(hm.rules.pcd(), [0]), machine_of("two visible kinds")
    rule.check_state(machine, None)
    with pytest.raises(ValueError, match="state: expected None"):
        rule.check_state(machine, machine.random_states(3, seed=torch.Generator().manual_seed(0)))
    with pytest.raises(ValueError, match="rule: expected one that is not conditional"):
        hm.rules.conditional(rule, [1])


@every
def test_predictions(name: str) -> None:
    """Every unit of every discrete visible layer, also where other entries are not observed."""
    machine = machine_of(name)
    complete = data_for(machine, 6)
    oracle = oracle_of(machine)
    for v in (complete, holes(machine, complete)):
        states = machine.split(v)
        for l in machine.visible:
            layer = machine.layers[l]
            if not layer.discrete:
                continue
            found = hm.tasks.predict(machine, v, l)
            assert found.shape == (len(v), layer.n_units, layer.n_states)
            columns = layer.width // layer.n_units
            for unit in range(layer.n_units):
                rows = []
                for value in layer.values():
                    alone = torch.full_like(states[l], torch.nan)
                    alone[:, unit * columns : (unit + 1) * columns] = value
                    rows.append(torch.cat([alone if m == l else x for m, x in states.items()], -1))
                weights = oracle.log_unnormalised(torch.cat(rows)).detach()
                expected = weights.view(layer.n_states, -1).T.softmax(-1)
                np.testing.assert_allclose(found[:, unit], expected, atol=1e-10)


@every
def test_predictions_of_one_unit(name: str) -> None:
    """Given the other units of its layer too, where these are observed."""
    machine = machine_of(name)
    v = holes(machine, data_for(machine, 6))
    oracle, states = oracle_of(machine), machine.split(v)
    for l in machine.visible:
        layer = machine.layers[l]
        if not layer.discrete:
            continue
        unit, columns = layer.n_units - 1, layer.width // layer.n_units
        weights = []
        for value in layer.values():
            x = states[l].clone()
            x[:, unit * columns :] = value
            row = torch.cat([x if m == l else other for m, other in states.items()], -1)
            weights.append(oracle.log_unnormalised(row).detach())
        found = hm.tasks.predict(machine, v, l, unit=unit)
        assert found.shape == (len(v), 1, layer.n_states)
        np.testing.assert_allclose(found[:, 0], torch.stack(weights, -1).softmax(-1), atol=1e-10)
        drawn = hm.tasks.predict(machine, v, l, "gibbs", unit=unit, sweeps=2)
        assert drawn.shape == found.shape and bool(drawn.isfinite().all())
        with pytest.raises(ValueError, match=f"unit: expected one from 0 to {unit}"):
            hm.tasks.predict(machine, v, l, unit=unit + 1)


@pytest.mark.parametrize("name", ["label on top of a deep machine", "labels with inner edges"])
def test_predictions_by_chains(name: str) -> None:
    """Means of 1,000 chains vary by less than 0.5/√1000 = 0.016, and by far less over 30 sweeps each."""
    machine = machine_of(name)
    v = data_for(machine, 4)
    v[:, 0] = torch.nan
    l = machine.visible[-1]
    exact = hm.tasks.predict(machine, v, l)
    drawn = hm.tasks.predict(machine, v, l, "gibbs", chains=1000, sweeps=60)
    torch.testing.assert_close(drawn.sum(-1), torch.ones_like(drawn[..., 0]))
    assert float((exact - drawn).abs().max()) < 0.03


def test_what_cannot_be_predicted() -> None:
    machine = machine_of("a Gaussian and a Bernoulli table")
    v = data_for(machine, 2)
    for layer, words in ((2, "visible layers"), (True, "visible layers"), (0, "discrete units")):
        with pytest.raises(ValueError, match=f"layer: expected .*{words}"):
            hm.tasks.predict(machine, v, layer)
    with pytest.raises(ValueError, match="X: expected"):
        hm.tasks.predict(machine, v[:, 1:], 1)
    wide = hm.BoltzmannMachine([Bernoulli(2), Bernoulli(40), Bernoulli(40)], [(0, 2), (1, 2)], [0, 1])
    v = data_for(wide, 2)
    with pytest.raises(ValueError, match=r"machine: expected .*2\^35"):
        hm.tasks.predict(wide, v, 1)
    assert hm.tasks.predict(wide, v, 1, "gibbs", sweeps=4).shape == (2, 40, 2)


def test_rows_without_a_label_are_exact_beside_rows_that_lack_pixels() -> None:
    """Semi-supervised rows: ten states are enumerated, 2^30 are not, and neither keeps the other from it."""
    machine = hm.BoltzmannMachine(
        [Bernoulli(30), Categorical(1, 10), Bernoulli(20)], edges=[(0, 2), (1, 2)], visible=[0, 1]
    ).double()
    v = data_for(machine, 9)
    v[2:6, 30:] = torch.nan
    v[6:8, :3] = torch.nan
    v[8] = torch.nan
    generator = torch.Generator().manual_seed(0)
    hamiltonian = machine.hamiltonian()
    request = hm.learning.ExpectationRequest(
        hamiltonian, v, generator, hm.machine.Statistics(hamiltonian), False
    )
    assert [(len(part.v), part.exact) for part in request.split_by_missing()] == [
        (2, True),
        (4, True),
        (3, False),
    ]
    assert abs(sum(part.weight for part in request.split_by_missing()) - 1) < 1e-12
    found = gradient(Rule("", hm.learning.ClampedChains(), hm.learning.FreeChains(), "biased"), machine, v)
    assert all(bool(part.isfinite().all()) for part in found.values())
