"""Sums over missing cells that take long tell their cost beforehand."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.estimators import _fitted
from harmonium.sums import unit_updates, unit_updates_by_row

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
GROUP = RANDOM.integers(0, 3, (40, 1))
WHOLE = pandas.DataFrame((GROUP + RANDOM.integers(0, 2, (40, 9))).astype(str)).rename(columns="c{}".format)
HOLED = WHOLE.mask(RANDOM.random(WHOLE.shape) < 0.3)
short: dict[str, Any] = {"method": "chains", "max_updates": 20, "random_state": 0}


@pytest.fixture(scope="module")
def model() -> hm.RBM:
    return hm.RBM(14, **short).fit(pandas.concat([WHOLE, HOLED]))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes a core for one that makes 1,000 unit updates a second."""
    monkeypatch.setattr(_fitted, "UNIT_UPDATES_PER_SECOND", 1e3)


def test_a_long_sum_tells_its_cost_and_gives_the_same_scores(
    model: hm.RBM, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = model.score_samples(HOLED)
    monkeypatch.setattr(_fitted, "UNIT_UPDATES_PER_SECOND", 1e3)
    with pytest.warns(UserWarning, match=r"rows, which takes about [\d.e+]+ (minutes|hours) on one core"):
        found = model.score_samples(HOLED)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.usefixtures("slow")
def test_sums_that_are_quick_say_nothing(model: hm.RBM) -> None:
    few, deep = hm.RBM(random_state=0).fit(HOLED), hm.DBM((14, 3), max_updates=5, random_state=0).fit(WHOLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few.score_samples(HOLED)  # eight hidden units are listed once
        model.score_samples(WHOLE)  # nothing is left to list
        deep.score_samples(WHOLE)  # a bound


def test_the_cost_of_rows_is_that_of_their_sum(model: hm.RBM) -> None:
    v = torch.cat([*model._require_fitted().states(HOLED)])
    hamiltonian = model.machine_.double().hamiltonian()
    each = unit_updates_by_row(hamiltonian, v)
    assert each.shape == (40,)
    assert float(each.sum()) == unit_updates(hamiltonian, v)
    missing = HOLED.isna().sum(axis=1).to_numpy()
    assert (each.numpy()[missing == 0] == 0).all()
    assert (np.diff(each.numpy()[np.argsort(missing)]) >= 0).all()


@pytest.mark.nightly
def test_a_classifier_and_a_regressor_tell_long_sums_too(monkeypatch: pytest.MonkeyPatch) -> None:
    label, visits = GROUP[:, 0], GROUP[:, 0] + RANDOM.integers(0, 3, 40)
    classifier = hm.RBMClassifier(14, **short).fit(HOLED, label)
    regressor = hm.RBMRegressor(hm.RBM(14, visible={"y": "binomial"}, **short)).fit(HOLED, visits)

    def ask() -> list[np.ndarray]:
        return [
            classifier.score_samples(HOLED),
            classifier.score_samples(HOLED, label),
            regressor.log_density(HOLED, visits),
        ]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = ask()
    monkeypatch.setattr(_fitted, "UNIT_UPDATES_PER_SECOND", 1e3)
    with pytest.warns(UserWarning, match="which takes about") as told:
        found = ask()
    assert len(told) == 4  # the density of the regressor is a difference of two
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
