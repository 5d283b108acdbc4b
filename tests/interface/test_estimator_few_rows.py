"""Small frames: early stopping, weights, labels and columns of every type, cells given and predicted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import harmonium as hm

random = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": random.normal(40, 8, 60).round(1),
        "grade": np.array(["low", "mid", "high"])[random.integers(0, 3, 60)],
        "member": random.random(60) < 0.5,
    }
)
SMALL = {"n_hidden": 4, "method": "chains", "max_updates": 8, "random_state": 0}


def test_a_column_of_labels_that_is_lost_altogether_is_filled_with_labels() -> None:
    rbm = hm.RBM(**SMALL).fit(FRAME)
    for name in ("grade", "member"):
        lost = FRAME.head(4).assign(**{name: np.nan})
        assert lost[name].dtype == np.float64
        full = rbm.impute(lost)[name]
        assert full.isin(FRAME[name].unique()).all() and full.dtype == FRAME[name].dtype


def test_a_category_of_rows_that_do_not_count_is_none() -> None:
    frame = FRAME.assign(grade=np.r_[["other"], FRAME["grade"][1:]])
    rbm = hm.RBM(**SMALL).fit(frame, sample_weight=np.r_[0.0, np.ones(59)])
    assert set(rbm.sample(50, random_state=0)["grade"]) <= {"low", "mid", "high"}


def test_weights_of_a_table_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="weights: expected"):
        hm.tables.Table.fit(FRAME, weights=np.ones(59))
    one = np.zeros(60)
    one[3] = 2.0
    assert hm.tables.Table.fit(FRAME, {"age": "gaussian"}, weights=one).columns[0].mean == FRAME["age"][3]


def test_labels_of_rows_that_do_not_count_alone_are_refused() -> None:
    y = np.r_[np.array(["a", "b"] * 15, dtype=object), np.full(30, None)]
    with pytest.raises(ValueError, match="y, sample_weight: expected a label in at least one row"):
        hm.RBMClassifier(**SMALL).fit(FRAME, y, sample_weight=np.r_[np.zeros(30), np.ones(30)])


def test_names_of_two_levels_are_refused_with_what_to_do() -> None:
    frame = FRAME.set_axis(pd.MultiIndex.from_product([["a"], FRAME.columns]), axis=1)
    with pytest.raises(ValueError, match=r"names of 2 levels such as \('a', 'age'\); X.columns = "):
        hm.RBM(**SMALL).fit(frame)


def test_a_row_without_its_label_has_no_score() -> None:
    y = np.array(["a", "b"] * 30, dtype=object)
    classifier = hm.RBMClassifier(**SMALL).fit(FRAME, y)
    assert classifier.score(FRAME, y, sample_weight=np.r_[1, np.zeros(59)]) in (0, 1)
    y[[4, 7]] = None
    with pytest.raises(ValueError, match=r"y: .* received none for row 4 \(2 rows have none\)"):
        classifier.score(FRAME, y)
    with pytest.raises((TypeError, ValueError)):
        classifier.score(FRAME, [1, 0] * 30)  # numbers, where the classes are text
    with pytest.raises(ValueError, match=r"label: expected the classes \['a', 'b'\], received 'Old'"):
        classifier.sample(label="Old")


def test_rows_that_do_not_count_teach_a_classifier_nothing() -> None:
    y = np.array(["a", "b", None] * 20, dtype=object)
    frame = FRAME.assign(grade=np.r_[["other"], FRAME["grade"][1:]])
    weights = np.r_[0.0, np.ones(59)]
    weighted = hm.RBMClassifier(**SMALL).fit(frame, y, sample_weight=weights)
    dropped = hm.RBMClassifier(**SMALL).fit(frame[1:], y[1:], sample_weight=weights[1:])
    assert (weighted.predict_proba(FRAME) == dropped.predict_proba(FRAME)).all()


LONG = 10**17 + np.arange(60) % 3


@pytest.mark.parametrize("dtype", ["int64", "uint64", "Int64", object])
def test_whole_numbers_that_float64_does_not_keep_are_refused(dtype) -> None:
    with pytest.raises(ValueError, match=r"below 2\^53 in column 'id', received 10000000000000000\d; drop"):
        hm.RBM(**SMALL).fit(FRAME.assign(id=pd.Series(LONG.tolist()).astype(dtype)))
    with pytest.raises(ValueError, match=r"y: expected whole numbers below 2\^53"):
        hm.RBMClassifier(**SMALL).fit(FRAME, pd.Series(LONG.tolist()).astype(dtype))


def test_labels_are_text_numbers_or_booleans() -> None:
    with pytest.raises(TypeError, match=r"y: expected text, numbers or booleans, received .*astype\(str\)"):
        hm.RBMClassifier(**SMALL).fit(FRAME, pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"] * 30)))


@pytest.mark.parametrize("dtype", ["boolean", "Int64", "category"])
def test_labels_may_be_a_frame_of_one_column(dtype: str) -> None:
    y = pd.Series([1, 0] * 30).astype(dtype)
    y[3] = pd.NA
    of_series = hm.RBMClassifier(**SMALL).fit(FRAME, y).classes_
    of_frame = hm.RBMClassifier(**SMALL).fit(FRAME, y.to_frame("label")).classes_
    assert of_frame.dtype == of_series.dtype and list(of_frame) == list(of_series)


@pytest.mark.parametrize("dtype", [object, "U1", "uint8", "float32", "bool"])
def test_classes_keep_their_dtype_in_a_file(dtype, tmp_path) -> None:
    y = np.array(["a", "b"] * 30 if dtype in (object, "U1") else [1, 0] * 30).astype(dtype)
    classifier = hm.RBMClassifier(**SMALL).fit(FRAME, y)
    classifier.save(tmp_path / "c.safetensors")
    loaded = hm.RBMClassifier.load(tmp_path / "c.safetensors")
    assert loaded.classes_.dtype == classifier.classes_.dtype
    assert list(loaded.predict(FRAME)) == list(classifier.predict(FRAME))


def test_booleans_and_their_names_in_a_text_file_are_the_same_values() -> None:
    booleans = pd.DataFrame({"x": [0.5, 1.5, 2.5, 3.0], "b": [True, False, True, False]})
    names = booleans.assign(b=booleans["b"].astype(str))
    for fitted, other in ((booleans, names), (names, booleans)):
        table = hm.tables.Table.fit(fitted)
        assert np.array_equal(table.encode(other), table.encode(fitted))
        assert table.decode(table.encode(other))["b"].tolist() == fitted["b"].tolist()
