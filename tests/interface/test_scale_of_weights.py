"""Only the ratios of weights count: w, 1000 w and w/1000 give one machine, of every kind of unit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from covering import covering_product

import harmonium as hm
from harmonium.estimators import DBM, RBM, RBMClassifier, RBMOutlier
from harmonium.layers import Layer
from harmonium.machine import BoltzmannMachine, init_visible_biases_

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


@pytest.mark.parametrize("weights", [[1e-300, 1.0, 1.0], [1.0, 1e17, 3e16], [5e-324, 1.0, 2.0]])
def test_weights_far_apart_leave_finite_parameters(weights: list[float]) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(2), hm.Bernoulli(2)]).double()
    init_visible_biases_(machine, np.array([[0.0, 1.0]] * 3), weights)
    assert bool(machine.layers[0].bias.isfinite().all())
