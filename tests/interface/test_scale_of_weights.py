"""Only the ratios of weights count: w, 1000 w and w/1000 give one machine, of every kind of unit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from covering import covering_product

import harmonium as hm
from harmonium.data import Rows, Standardise
from harmonium.estimators import DBM, RBM, RBMClassifier, RBMOutlier
from harmonium.layers import Layer
from harmonium.machine import BoltzmannMachine, fitted_layer, init_from_data_, init_visible_biases_
from harmonium.tables import Table

pytestmark = pytest.mark.nightly

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
WEIGHTS = {
    "whole": np.arange(30) % 4,
    "whole without one": 2 + np.arange(30) % 2,
    "real": RANDOM.random(30) + 0.01,
}
RARE = (RANDOM.random((30, 3)) < 0.05).astype(float)
KINDS = {
    "bernoulli": RARE,
    "spin": 2 * RARE - 1,
    "categorical": RANDOM.integers(0, 3, (30, 3)).astype(float),
    "binomial": RANDOM.binomial(4, 0.1, (30, 3)).astype(float),
    "gaussian": RANDOM.normal(size=(30, 3)) * 5 + 100,
    "natural_gaussian": RANDOM.normal(size=(30, 3)),
    "standardised_gaussian": RANDOM.normal(size=(30, 3)),
    "relu": RANDOM.exponential(size=(30, 3)),
    "double_relu": RANDOM.normal(size=(30, 3)),
    "truncated_gaussian": RANDOM.random((30, 3)),
    "truncated_gauss_bernoulli": RANDOM.random((30, 3)) * (RANDOM.random((30, 3)) < 0.8),
}
LABEL = np.array(["rare"] + ["often"] * 29)
every_weight = pytest.mark.parametrize("weights", WEIGHTS)


def alike(one: BoltzmannMachine, other: BoltzmannMachine) -> None:
    pairs = zip(one.named_parameters(), other.named_parameters(), strict=True)
    for (name, left), (_, right) in pairs:
        torch.testing.assert_close(left.detach(), right.detach(), rtol=1e-8, atol=1e-8, msg=name)


def fitted(kind: type, X: Any, weights: Any, **settings: Any) -> Any:
    made = kind(
        (3, 2) if kind is DBM else 3,
        **{"dtype": "float64", "max_updates": 5, "learning_rate": 0.05, "random_state": 0, **settings},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made.fit(X, LABEL, sample_weight=weights)


def test_every_kind_of_unit_is_here() -> None:
    assert set(KINDS) == set(Layer.registry) - {"test"}


@pytest.mark.parametrize(
    ("visible", "method", "weights"), covering_product(KINDS, ["chains", "auto"], WEIGHTS)
)
def test_scaled_weights_fit_one_machine(visible: str, method: str, weights: str, short_fits: None) -> None:
    X, w = KINDS[visible], WEIGHTS[weights]
    made = [fitted(RBM, X, scale * w, visible=visible, method=method) for scale in (1, 1000, 1e-3)]
    for other in made[1:]:
        alike(made[0].machine_, other.machine_)


@every_weight
@pytest.mark.parametrize("kind", [RBM, DBM, RBMClassifier, RBMOutlier])
def test_scaled_weights_fit_one_estimator(kind: type, weights: str, short_fits: None) -> None:
    """On a table of several kinds, with what an estimator finds beside its machine."""
    frame = pandas.DataFrame(
        {"size": KINDS["gaussian"][:, 0], "rare": RARE[:, 0] > 0, "visits": KINDS["binomial"][:, 0]}
    )
    settings = {"visible": {"visits": "binomial"}}
    if kind is DBM:
        frame, settings = RARE, {}
    made = [fitted(kind, frame, scale * WEIGHTS[weights], **settings) for scale in (1, 1000, 1e-3)]
    for other in made[1:]:
        alike(made[0].machine_, other.machine_)
        np.testing.assert_allclose(other.score_samples(frame), made[0].score_samples(frame), atol=1e-7)
        if kind is RBMOutlier:
            assert other.offset_ == pytest.approx(made[0].offset_, abs=1e-7)


@every_weight
@pytest.mark.parametrize("visible", KINDS)
def test_scaled_weights_start_one_machine(visible: str, weights: str) -> None:
    """The functions that an estimator starts with, by themselves."""
    rows = Rows.of(KINDS[visible], torch.float64)
    layer, encoder = hm.tables.visible_for(rows, visible)
    states = torch.as_tensor(np.asarray(encoder.encode(KINDS[visible]))).double()
    for start in (init_visible_biases_, lambda m, v, w: init_from_data_(m, v, 0, w)):
        made = []
        for scale in (1, 1000, 1e-3):
            machine = BoltzmannMachine([type(layer)(**layer.config()), hm.Bernoulli(2)]).double()
            start(machine, Rows.of(states, torch.float64), scale * WEIGHTS[weights])
            made.append(machine)
        for other in made[1:]:
            pairs = zip(made[0].layers[0].parameters(), other.layers[0].parameters(), strict=True)
            for left, right in pairs:
                torch.testing.assert_close(left.detach(), right.detach(), rtol=1e-8, atol=1e-8)


@every_weight
def test_scaled_weights_make_one_code(weights: str) -> None:
    X, w = KINDS["gaussian"], WEIGHTS[weights]
    tables = [Table.fit(X, weights=scale * w) for scale in (1, 1000, 1e-3)]
    scales = [Standardise.fit(X, weights=torch.as_tensor(scale * w)) for scale in (1.0, 1000.0, 1e-3)]
    for j, column in enumerate(tables[0].columns):
        for other in (table.columns[j] for table in tables[1:]):
            assert (other.mean, other.scale) == pytest.approx((column.mean, column.scale), rel=1e-12)
    for other in scales[1:]:
        assert other.mean == pytest.approx(scales[0].mean, rel=1e-12)
        assert other.scale == pytest.approx(scales[0].scale, rel=1e-12)


@every_weight
def test_scaled_weights_anneal_from_one_base(weights: str) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)]).double()
    X = torch.from_numpy(RARE)
    found = [
        hm.likelihood.ais(machine, 10, 1, data=X, weights=torch.as_tensor(scale * WEIGHTS[weights])).value
        for scale in (1.0, 1000.0, 1e-3)
    ]
    assert found == pytest.approx([found[0]] * 3, abs=1e-9)


@pytest.mark.parametrize("weights", [[1e-300, 1.0, 1.0], [1.0, 1e17, 3e16], [5e-324, 1.0, 2.0]])
def test_weights_far_apart_leave_finite_parameters(weights: list[float]) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(2), hm.Bernoulli(2)]).double()
    init_visible_biases_(machine, np.array([[0.0, 1.0]] * 3), weights)
    assert bool(machine.layers[0].bias.isfinite().all())


def test_whole_multiples_of_the_least_are_repetitions() -> None:
    """What is smoothed counts so many rows."""
    X, w = KINDS["bernoulli"], WEIGHTS["whole"]
    one, other = (hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)]).double() for _ in range(2))
    init_visible_biases_(one, X, 0.25 * w)
    init_visible_biases_(other, X.repeat(w, 0))
    alike_layers = zip(one.layers[0].parameters(), other.layers[0].parameters(), strict=True)
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in alike_layers)
    layer = fitted_layer(hm.Bernoulli(3).double(), torch.from_numpy(X), torch.from_numpy(w).double())
    repeated = fitted_layer(hm.Bernoulli(3).double(), torch.from_numpy(X.repeat(w, 0)))
    assert torch.allclose(layer.bias, repeated.bias, atol=1e-12)


@every_weight
def test_weighted_columns_keep_the_codes_of_their_kind(weights: str) -> None:
    """Halves of 0 and 1 for spins, the range of an interval: no means and deviations."""
    w = WEIGHTS[weights]
    assert fitted(RBM, RARE, w, visible="spin").encoder_ == Standardise(0.5, 0.5)
    X = 3 * KINDS["truncated_gaussian"]
    made = fitted(RBM, X, w, visible="truncated_gaussian").encoder_
    X = X[w > 0]
    assert made == Standardise(float(X.min()), float(X.max()) - float(X.min()))
