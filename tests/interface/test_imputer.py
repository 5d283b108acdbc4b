"""``RBMImputer``: in pipelines, with frames and several draws."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

import harmonium as hm

pd = pytest.importorskip("pandas")

LEARNER = hm.RBM(4, method="chains", max_updates=50)


def table(rows=80):
    random = np.random.default_rng(0)
    first = random.integers(0, 2, rows)
    return pd.DataFrame(
        {
            "size": first + 0.1 * random.standard_normal(rows),
            "colour": np.where(first, "red", "blue"),
            "weight": 3 - first + 0.1 * random.standard_normal(rows),
        },
        index=np.arange(rows) + 100,
    )


def holed():
    frame = table()
    frame.loc[frame.index[::3], "size"] = np.nan
    frame.loc[frame.index[1::4], "colour"] = None
    return frame


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hm.RBMImputer(LEARNER, random_state=0).fit(holed())


def test_a_frame_comes_back_without_holes_and_else_as_it_was(fitted):
    given = holed()
    filled = fitted.transform(given)
    assert filled.index.equals(given.index)
    assert filled.dtypes.equals(given.dtypes)
    assert not filled.isna().any().any()
    shown = given.notna()
    assert filled.where(shown).equals(given.where(shown))
    truth = table()
    lost = given["colour"].isna()
    assert (filled["colour"] == truth["colour"])[lost].mean() > 0.9


def test_draws_differ_where_cells_are_missing_and_nowhere_else(fitted):
    given = holed()
    drawn = fitted.estimator_.imputations(given, 4)
    assert len(drawn) == 4
    sizes = np.array([each["size"] for each in drawn])
    lost = given["size"].isna().to_numpy()
    assert (sizes.std(0)[lost] > 0).all()
    assert (sizes.std(0)[~lost] == 0).all()
    assert fitted.estimator_.imputations(given, 4)[3].equals(drawn[3])


def test_a_missing_target_is_predicted_by_its_mean_and_the_quantiles_of_draws():
    random = np.random.default_rng(0)
    group, x = random.integers(0, 3, 600), random.normal(size=600)
    y = 3.0 * group + 2.0 * x + 0.5 * random.normal(size=600)
    rows = pd.DataFrame({"city": np.array(["Ulm", "Rom", "Bern"])[group], "x": x, "y": y})
    rbm, holes, truth = hm.RBM(random_state=0).fit(rows[:400]), rows[400:].assign(y=np.nan), y[400:]
    errors = rbm.impute(holes, value="mean")["y"] - truth
    assert errors.var() < 0.05 * truth.var()
    draws = [filled["y"] for filled in rbm.imputations(holes, 200, random_state=1)]
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    inside = ((truth > low) & (truth < high)).mean()
    assert 0.82 < inside < 0.97  # 0.9 +- three standard errors of 200 rows, and some for what was learned


def test_draws_have_the_digits_of_their_column_whatever_the_type_of_the_others():
    X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    rows = pd.DataFrame(X, columns=["a", "b"]).assign(y=1e9 + X[:, 0].astype(float))
    rbm = hm.RBM(1, random_state=0).fit(rows)
    for filled in rbm.imputations(rows[:3].assign(y=np.nan), 9):
        assert (filled["y"] % 1 != 0).all()  # float32 has multiples of 64 there


def test_a_refused_table_leaves_the_imputer_as_it_was(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    bad = holed().assign(weight=np.inf)
    with pytest.raises(ValueError, match="weight"):
        again.fit(bad)
    assert again.transform(holed()).equals(fitted.transform(holed()))


@pytest.mark.parametrize("wrong", [{"value": "best guess"}, {"estimator": hm.RBMClassifier()}])
def test_parameters_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        hm.RBMImputer(**wrong).fit(table())
