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
