"""Sums over missing cells that take long tell their cost beforehand and show the rows that are done."""

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
GIVEN = [f"c{i}" for i in range(6)]
short: dict[str, Any] = {"method": "chains", "max_updates": 20, "random_state": 0}


@pytest.fixture(scope="module")
def model() -> hm.RBM:
    return hm.RBM(14, **short).fit(pandas.concat([WHOLE, HOLED]))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes a core for one that makes 1,000 unit updates a second."""
    monkeypatch.setattr(_fitted, "UNIT_UPDATES_PER_SECOND", 1e3)


@pytest.mark.parametrize("given", [None, GIVEN])
def test_a_long_sum_tells_its_cost_and_gives_the_same_scores(
    model: hm.RBM, given: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = model.score_samples(HOLED, given=given)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(_fitted, "UNIT_UPDATES_PER_SECOND", 1e3)
    monkeypatch.setattr(model, "verbose", 1)
    with pytest.warns(UserWarning, match=r"rows, which takes about [\d.e+]+ (minutes|hours) on one core"):
        found = model.score_samples(HOLED, given=given)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert "40/40" in capsys.readouterr().err


@pytest.mark.usefixtures("slow")
def test_sums_that_are_quick_say_nothing(model: hm.RBM, capsys: pytest.CaptureFixture[str]) -> None:
    few, deep = hm.RBM(random_state=0).fit(HOLED), hm.DBM((14, 3), max_updates=5, random_state=0).fit(WHOLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few.score_samples(HOLED)  # eight hidden units are listed once
        model.score_samples(WHOLE)  # nothing is left to list
        deep.score_samples(WHOLE)  # a bound
    assert capsys.readouterr().err == ""


@pytest.mark.nightly
@pytest.mark.usefixtures("slow")
def test_a_row_that_is_refused_is_so_before_others_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = pandas.DataFrame((GROUP + RANDOM.integers(0, 2, (40, 45))).astype(str)).rename(
        columns="c{}".format
    )
    model = hm.RBM(40, **short).fit(wide)
    wide.iloc[:39, 0] = None
    wide.iloc[39, :40] = None  # 3^40 states, or 2^40 of the hidden units
    rows = list[int]()
    score = model._log_density

    def count(machine: Any, v: torch.Tensor, constant: Any) -> torch.Tensor:
        rows.append(len(v))
        return score(machine, v, constant)

    monkeypatch.setattr(model, "_log_density", count)
    model.log_partition_  # noqa: B018 - annealed before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="leave these out"):
            model.score_samples(wide)
    assert rows == [1]


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
def test_a_classifier_and_a_regressor_tell_long_sums_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    label, visits = GROUP[:, 0], GROUP[:, 0] + RANDOM.integers(0, 3, 40)
    classifier = hm.RBMClassifier(14, missing_cells="exact", verbose=0, **short).fit(HOLED, label)
    regressor = hm.RBMRegressor(hm.RBM(14, visible={"y": "binomial"}, **short)).fit(HOLED, visits)

    def ask() -> list[np.ndarray]:
        return [
            classifier.score_samples(HOLED),
            classifier.score_samples(HOLED, label),
            classifier.predict_log_proba(HOLED),
            regressor.log_density(HOLED, visits),
        ]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = ask()
    monkeypatch.setattr(_fitted, "UNIT_UPDATES_PER_SECOND", 1e3)
    classifier.set_params(verbose=1)
    capsys.readouterr()
    with pytest.warns(UserWarning, match="which takes about") as told:
        found = ask()
    assert len(told) == 5  # the density of the regressor is a difference of two
    assert "40/40" in capsys.readouterr().err
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
