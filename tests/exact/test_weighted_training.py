"""Weights of rows through training: whole weights are repeated rows, weight 0 is no row, batches add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.data import Rows
from harmonium.machine import init_from_data_, init_visible_biases_

from .graphs import data_for, make

WEIGHTS = np.array([2.0, 0.0, 1.0, 3.0, 1.0])
REPEATED = [0, 0, 2, 3, 3, 3, 4]
MACHINES = ["two visible kinds", "a Gaussian and a Bernoulli table", "label on top of a deep machine"]
RULES = {
    "exact": lambda: hm.rules.exact(),
    "cd": lambda: hm.rules.cd(),
    "pcd": lambda: hm.rules.pcd(chains=4),
    "tempered_pcd": lambda: hm.rules.tempered_pcd(chains=4, replicas=3),
    "noise_cd": lambda: hm.rules.noise_cd(),
    "mean_field_pcd": lambda: hm.rules.mean_field_pcd(chains=4),
    "mean_field": lambda: hm.rules.mean_field(),
    "tap": lambda: hm.rules.tap(),
    "adatap": lambda: hm.rules.adatap(),
    "ucd": lambda: hm.rules.ucd(),
    "ucd_lmi": lambda: hm.rules.ucd_lmi(),
}
every_rule = pytest.mark.parametrize("rule", RULES)


def trained(name: str, rows: torch.Tensor, **settings: Any) -> dict[str, torch.Tensor]:
    """Parameters after a few updates of the machine of that name."""
    machine = make(name, scale=0.3)
    settings = {"rule": hm.rules.exact(), "updates": 5, "learning_rate": 0.1, **settings}
    hm.train(machine, rows, progress=False, **settings)
    return {key: value.detach() for key, value in machine.named_parameters()}


def assert_alike(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor], within: float) -> None:
    for key, value in left.items():
        torch.testing.assert_close(value, right[key], rtol=0, atol=within, msg=key)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"rule": hm.rules.centred(hm.rules.exact())},
        {"momentum": 0.9, "weight_decay": 0.01},
        {"optimizer": "adam", "averaging": 0.9},
    ],
)
def test_whole_weights_train_as_repeated_rows(name: str, settings: dict[str, Any]) -> None:
    v = data_for(make(name), len(WEIGHTS))
    weighted = trained(name, v, weights=WEIGHTS, **settings)
    assert_alike(weighted, trained(name, v[REPEATED], **settings), 1e-10)
    assert_alike(weighted, trained(name, v, weights=list(0.01 * WEIGHTS), **settings), 1e-10)


@pytest.mark.parametrize("batch_size", [2, 100])
@every_rule
def test_rows_of_weight_zero_change_nothing(rule: str, batch_size: int) -> None:
    """Not a bit, also where they are drawn in batches."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)]).double()
    v = torch.randint(2, (7, 4), generator=torch.Generator().manual_seed(0)).double()
    weights = torch.tensor([0, 1.5, 0.5, 0, 2, 1, 0])
    kept = weights > 0
    found = []
    for rows, each in ((v, weights), (v[kept], weights[kept])):
        made = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)]).double()
        made.load_state_dict(machine.state_dict())
        hm.train(
            made,
            rows,
            weights=each,
            rule=RULES[rule](),
            updates=4,
            batch_size=batch_size,
            progress=False,
        )
        found.append(dict(made.named_parameters()))
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


def test_equal_weights_are_none() -> None:
    v = data_for(make(MACHINES[0]), 5)
    weights = np.array([0, 4, 4, 0, 4])
    settings = {"rule": hm.rules.pcd(), "batch_size": 2}
    weighted, plain = (
        trained(MACHINES[0], v, weights=weights, **settings),
        trained(MACHINES[0], v[weights > 0], **settings),
    )
    assert all(torch.equal(weighted[key], plain[key]) for key in plain)


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_batches_add_up_to_the_gradient_of_the_weighted_mean(batch_size: int) -> None:
    """With a vanishing rate, the sum of the updates of whole epochs is the full gradient's."""
    name, rate = MACHINES[0], 1e-7
    v, weights = data_for(make(name), 5), np.array([0.2, 7.0, 1.0, 0.0, 1.3])
    before = dict(make(name, scale=0.3).named_parameters())
    settings = {"weights": weights, "learning_rate": rate, "batch_size": batch_size}
    updates = 4 if batch_size < 4 else 1  # every row comes ``batch_size`` times
    after = trained(name, v, updates=updates, **settings)
    truth = hm.rules.exact().gradient(
        make(name, scale=0.3), v, weights=torch.from_numpy(weights), seed=torch.Generator()
    )
    for key, gradient in truth.parameters.items():
        moved = (after[key] - before[key].detach()) / (rate * updates)
        torch.testing.assert_close(moved, gradient, rtol=0, atol=1e-5, msg=key)


@every_rule
def test_every_rule_weights_its_clamped_phase(rule: str) -> None:
    """On one hidden layer it is exact, so that weights move it by what they move the exact one by."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)]).double()
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(1))
    v = torch.tensor([[1, 0, 0, 1.0]]).repeat(4, 1).double()  # the free phase then starts alike everywhere
    v[0], v[1] = torch.tensor([0, 1, 1, 0.0]), torch.tensor([0, 1, 1, 0.0])
    weights = torch.tensor([1.0, 1.0, 4.0, 2.0])
    made = RULES[rule]()

    def gradient(each: Any) -> dict[str, torch.Tensor]:
        return made.gradient(machine, v, weights=each, seed=torch.Generator().manual_seed(0)).parameters

    def exact(each: Any) -> dict[str, torch.Tensor]:
        return hm.rules.exact().gradient(machine, v, weights=each, seed=torch.Generator()).parameters

    free = gradient(None)["layers.0.bias"] - gradient(weights)["layers.0.bias"]
    clamped = exact(None)["layers.0.bias"] - exact(weights)["layers.0.bias"]
    if rule in ("cd", "mean_field", "tap", "adatap"):  # whose free phase starts from the weighted rows
        assert not torch.allclose(free, torch.zeros_like(free))
    else:
        torch.testing.assert_close(free, clamped, rtol=0, atol=1e-10)
    assert_alike(gradient(None), gradient(torch.full((4,), 3.0)), 1e-12)


# Initialisation and the base of AIS ------------------------------------------------------------------------


@pytest.mark.parametrize("name", MACHINES)
def test_whole_weights_initialise_as_repeated_rows(name: str) -> None:
    v, found = data_for(make(name), len(WEIGHTS)), []
    for rows, weights in ((v, torch.from_numpy(WEIGHTS)), (v[REPEATED], None)):
        machine = make(name)
        init_visible_biases_(machine, Rows.of(rows, torch.float64), weights)
        found.append(dict(machine.named_parameters()))
    assert_alike(*found, 1e-10)


def test_gaussian_units_start_at_rows_of_weight() -> None:
    X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double()
    X[20:] = 100.0
    machine = hm.BoltzmannMachine([hm.Gaussian(3), hm.Bernoulli(4)]).double()
    weights = (torch.arange(50) < 20).double()
    init_from_data_(machine, Rows.of(X, torch.float64), torch.Generator().manual_seed(1), weights)
    seen = hm.BoltzmannMachine([hm.Gaussian(3), hm.Bernoulli(4)]).double()
    init_visible_biases_(seen, Rows.of(X[:20], torch.float64))
    # A quarter of the variance is kept, all else equal to a start without the others.
    variance = [1 / each.hamiltonian().thetas[0][1].detach() for each in (machine, seen)]
    torch.testing.assert_close(variance[0], variance[1] / 4)
    assert float(machine.layers[0].mean.detach().abs().max()) < 5


def test_small_weights_are_not_drowned_by_the_row_of_noise() -> None:
    """Weights that add up to 1 stand for Kish's effective number of rows."""
    v = torch.ones(1000, 2).double()
    machine = hm.BoltzmannMachine([hm.Bernoulli(2), hm.Bernoulli(2)]).double()
    init_visible_biases_(machine, Rows.of(v, torch.float64), torch.full((1000,), 1e-3, dtype=torch.float64))
    assert float(machine.layers[0].bias.detach().min()) > 7


def test_the_base_of_annealing_takes_weights() -> None:
    """With β from 0 to 1 at once the weights show the base: equal to that of repeated rows."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(4)], edges=[(0, 0)]).double()
    v = torch.randint(2, (5, 4), generator=torch.Generator().manual_seed(0)).double()
    settings: dict[str, Any] = {"chains": 20, "temperatures": 1, "reverse": False, "seed": 0}
    weighted = hm.likelihood.ais(machine, data=v, weights=torch.from_numpy(WEIGHTS), **settings)
    repeated = hm.likelihood.ais(machine, data=v[REPEATED], **settings)
    assert weighted.value == pytest.approx(repeated.value, abs=1e-10)
    assert weighted.value != hm.likelihood.ais(machine, data=v, **settings).value
    truth = hm.likelihood.exact_log_partition(machine)
    both = hm.likelihood.ais(machine, data=v, weights=torch.from_numpy(WEIGHTS), chains=50, temperatures=100)
    assert both.lower <= truth <= both.upper
    with pytest.raises(ValueError, match="weights: expected None without data"):
        hm.likelihood.ais(machine, weights=torch.ones(3))
    with pytest.raises(ValueError, match="weights: expected one for each of 5 rows"):
        hm.likelihood.ais(machine, data=v, weights=torch.ones(3))
