"""One number given the rest of a row: mean and quantiles of one distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import harmonium as hm

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
GROUP = RANDOM.integers(0, 3, 600)
TABLE = pandas.DataFrame({"city": np.array(["Ulm", "Rom", "Bern"])[GROUP], "x": RANDOM.normal(size=600)})
Y = 3.0 * GROUP + 2.0 * TABLE["x"].to_numpy() + 0.5 * RANDOM.normal(size=600)
TRAIN, TEST = slice(0, 400), slice(400, 600)


@pytest.fixture(scope="module")
def regressor() -> hm.RBMRegressor:
    return hm.RBMRegressor(random_state=0).fit(TABLE[TRAIN], Y[TRAIN])


def test_targets_are_told_to_their_noise_and_quantiles_hold_their_share(regressor: hm.RBMRegressor) -> None:
    assert regressor.score(TABLE[TEST], Y[TEST]) > 0.95
    low, middle, high = regressor.predict_quantiles(TABLE[TEST], random_state=1).T
    assert (low <= middle).all() and (middle <= high).all()  # equal where both end at the range seen
    inside = ((Y[TEST] > low) & (Y[TEST] < high)).mean()
    assert 0.82 < inside < 0.97  # 0.9 +- three standard errors of 200 rows, and some for what was learned


@pytest.mark.nightly
def test_arrays_holes_and_names() -> None:
    X = np.column_stack([GROUP, TABLE["x"]]).astype(float)
    X[::7, 1] = np.nan
    fitted = hm.RBMRegressor(random_state=0).fit(X[TRAIN], Y[TRAIN])
    assert fitted.target_ == 2 and fitted.predict(X[TEST]).shape == (200,)
    named = hm.RBMRegressor(random_state=0).fit(TABLE[TRAIN].rename(columns={"x": "y"}), Y[TRAIN])
    assert named.target_ == "yy" and list(named.feature_names_in_) == ["city", "y"]


def test_a_refused_target_names_its_row_and_leaves_the_regressor(regressor: hm.RBMRegressor) -> None:
    before = regressor.predict(TABLE[TEST])
    wrong = Y[TRAIN].copy()
    wrong[5] = np.nan
    with pytest.raises(ValueError, match=r"y: expected finite numbers, received others .*NaN"):
        regressor.fit(TABLE[TRAIN], wrong)
    with pytest.raises(ValueError, match="quantiles"):
        regressor.predict_quantiles(TABLE[TEST], [1.5])
    np.testing.assert_array_equal(regressor.predict(TABLE[TEST]), before)


@pytest.mark.nightly
def test_weights_of_classes_are_weights_of_their_rows() -> None:
    label = np.where(RANDOM.random(600) < 0.1, "rare", "usual")
    label = np.where(Y > 6, label, "usual")
    options = {"n_hidden": 4, "method": "chains", "epochs": 5, "random_state": 0}
    weighted = hm.RBMClassifier(**options, class_weight={"rare": 4.0, "usual": 1.0}).fit(TABLE, label)
    rows = np.where(label == "rare", 4.0, 1.0)
    same = hm.RBMClassifier(**options).fit(TABLE, label, sample_weight=rows)
    np.testing.assert_array_equal(weighted.predict_proba(TABLE), same.predict_proba(TABLE))
    balanced = hm.RBMClassifier(class_weight="balanced", random_state=0).fit(TABLE, label)
    plain = hm.RBMClassifier(random_state=0).fit(TABLE, label)
    assert balanced.predict_proba(TABLE)[:, 0].mean() > 3 * plain.predict_proba(TABLE)[:, 0].mean()
    with pytest.raises(ValueError, match="class_weight"):
        hm.RBMClassifier(**options, class_weight={"usul": 1.0}).fit(TABLE, label)


@pytest.mark.usefixtures("short_fits")
def test_quantiles_have_the_digits_of_the_target_whatever_the_type_of_the_rows() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    regressor = hm.RBMRegressor(draws=9, random_state=0).fit(X, 1e9 + X[:, 0].astype(float))
    assert (regressor.predict_quantiles(X[:3], [0.5]) % 1 != 0).all()  # float32 has multiples of 64 there
