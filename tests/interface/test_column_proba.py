"""Probabilities of the values of any column, beside the scores of rows that hold each value."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import harmonium as hm

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)


def table() -> pandas.DataFrame:
    random = np.random.default_rng(0)
    group = random.integers(0, 3, 300)
    rare = np.where(
        random.random(300) < 0.04, random.choice(list("uvwxyz"), 300), np.array(list("abc"))[group]
    )
    return pandas.DataFrame(
        {
            "label": rare,
            "flag": (group > 0) ^ (random.random(300) < 0.1),
            "visits": random.poisson(1 + 2 * group),
            "x": group + random.normal(size=300),
        }
    )


@pytest.fixture(scope="module")
def model() -> hm.RBM:
    return hm.RBM(4, visible={"visits": "binomial"}, random_state=0).fit(table())


@pytest.mark.parametrize("column", ["label", "flag", "visits"])
def test_probabilities_are_those_of_rows_that_hold_each_value(model: hm.RBM, column: str) -> None:
    rows = table()[:20].copy()
    rows.loc[3, "x"] = np.nan
    found = model.column_proba(rows, column)
    scores = np.stack([model.score_samples(rows.assign(**{column: value})) for value in found.values], 1)
    expected = np.exp(scores - np.logaddexp.reduce(scores, 1, keepdims=True))
    if column == "visits":  # whose last state holds the tail beyond it too
        expected, probabilities = expected[:, :-1], found.probabilities[:, :-1]
        np.testing.assert_allclose(probabilities, expected, atol=0.02)
    else:
        np.testing.assert_allclose(found.probabilities, expected, atol=1e-6)
    np.testing.assert_allclose(found.probabilities.sum(1), 1)
    if column == "label":
        assert set(found.values) == set(table()["label"])
        best = np.array(found.values)[found.probabilities.argmax(1)]
        np.testing.assert_array_equal(best, model.predict_column(rows, column))


def test_arrays_and_real_columns(model: hm.RBM) -> None:
    X = (
        hm.data.bars_and_stripes(3)[0]
        if isinstance(hm.data.bars_and_stripes(3), tuple)
        else hm.data.bars_and_stripes(3)
    )
    machine = hm.RBM(4, random_state=0).fit(X)
    found = machine.column_proba(X, 4)
    assert found.values == (0.0, 1.0) and found.probabilities.shape == (len(X), 2)
    scores = np.stack(
        [machine.score_samples(np.c_[X[:, :4], np.full(len(X), v), X[:, 5:]]) for v in (0, 1)], 1
    )
    expected = np.exp(scores - np.logaddexp.reduce(scores, 1, keepdims=True))
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
    with pytest.raises(ValueError, match="column: expected one of labels or counts, received one of real"):
        model.column_proba(table(), "x")
