"""Some columns given others, against enumeration; and small frames: weights, labels and types of columns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.data import bars_and_stripes
from harmonium.estimators import DBM, RBM
from harmonium.likelihood import exact_log_likelihood

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
BITS = bars_and_stripes(3).astype(np.float64)
GROUP = RANDOM.integers(0, 3, 120)
FRAME = pandas.DataFrame(
    {
        "height": RANDOM.normal(170.0 + 10 * GROUP, 3.0),
        "city": np.array(["Ulm", "Rom", "Bern"])[GROUP],
        "member": RANDOM.random(120) < 0.1 + 0.4 * GROUP,
    }
)


def small(kind=RBM, **settings):
    sizes = (4, 3) if kind is DBM else 4
    return kind(
        sizes, **{"method": "chains", "epochs": 60, "learning_rate": 0.3, "random_state": 0, **settings}
    )


@pytest.fixture(scope="module")
def rbm():
    return small(epochs=50).fit(FRAME)


def conditional_by_hand(estimator, rows: np.ndarray, given: list[int]) -> np.ndarray:
    """ln p(row) - ln p(its given cells), both from all states."""
    machine = estimator._fitted.double()
    every = np.array(list(itertools.product([0.0, 1.0], repeat=rows.shape[1])))
    log_p = exact_log_likelihood(machine, torch.from_numpy(every)).numpy()
    agrees = (rows[:, None, given] == every[None, :, given]).all(2)
    whole = (rows[:, None, :] == every[None]).all(2)
    return np.log(whole @ np.exp(log_p)) - np.log(agrees @ np.exp(log_p))


def test_scores_of_some_cells_are_those_of_enumeration() -> None:
    """ln p(rest | given) = ln p(row) - ln p(given), the score of rows that show what is given alone."""
    estimator = small().fit(BITS)
    for given in ([0], [1, 2, 5], list(range(8))):
        expected = conditional_by_hand(estimator, BITS, given)
        alone = np.where(np.isin(np.arange(9), given), BITS, np.nan)
        found = estimator.score_samples(BITS) - estimator.score_samples(alone)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_draws_keep_what_is_given_and_follow_the_rest() -> None:
    rbm = small(epochs=300).fit(BITS)
    every = np.array(list(itertools.product([0.0, 1.0], repeat=9)))
    held = (every[:, 0] == 1) & (every[:, 4] == 0)
    p = np.exp(rbm.score_samples(every[held]))
    p /= p.sum()
    drawn = rbm.sample(4000, given={0: 1, 4: 0}, sweeps=30, random_state=1)
    assert (drawn[:, 0] == 1).all() and (drawn[:, 4] == 0).all()
    # A mean of 4000 draws is within 0.04 of its expectation but for a chance below 1e-5 each.
    np.testing.assert_allclose(drawn.mean(0), p @ every[held], atol=0.04)
    row = np.full((2, 9), np.nan)
    row[0, 2], row[1, 2] = 0, 1
    assert rbm.sample(3, given=row, sweeps=2)[:, 2].tolist() == [0, 0, 0, 1, 1, 1]


def test_a_column_given_the_others(rbm) -> None:
    hidden = FRAME.assign(city=None)
    told = rbm.impute(hidden)["city"]
    by_value = [rbm.score_samples(FRAME.assign(city=c)) for c in ("Bern", "Rom", "Ulm")]
    assert told.tolist() == np.array(["Bern", "Rom", "Ulm"])[np.argmax(by_value, 0)].tolist()
    agreement = (rbm.impute(hidden, method="gibbs", sweeps=60)["city"] == told).mean()
    assert agreement > 0.8 and (told == FRAME["city"]).mean() > 0.6
    height = rbm.impute(FRAME.assign(height=np.nan), value="mean", sweeps=60)["height"]
    assert np.corrcoef(height, FRAME["height"])[0, 1] > 0.5


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda r: r.sample(given={"town": "Ulm"}), "given: expected columns among 'height'.*'town'"),
        (
            lambda r: r.sample(given={"city": "Oslo"}),
            "column 'city': expected one of 'Bern'.*received 'Oslo'",
        ),
        (
            lambda r: r.sample(given={"city": ["Ulm"] * 2, "height": [1.0] * 3}),
            "given: expected one cell or 3",
        ),
    ],
    ids=range(3),
)
def test_what_cannot_be_given(rbm, use, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        use(rbm)


random = np.random.default_rng(0)
PEOPLE = pandas.DataFrame(
    {
        "age": random.normal(40, 8, 60).round(1),
        "grade": np.array(["low", "mid", "high"])[random.integers(0, 3, 60)],
        "member": random.random(60) < 0.5,
    }
)
SMALL = {"n_hidden": 4, "method": "chains", "max_updates": 8, "random_state": 0}


def test_a_column_of_labels_that_is_lost_altogether_is_filled_with_labels() -> None:
    rbm = hm.RBM(**SMALL).fit(PEOPLE)
    for name in ("grade", "member"):
        lost = PEOPLE.head(4).assign(**{name: np.nan})
        assert lost[name].dtype == np.float64
        full = rbm.impute(lost)[name]
        assert full.isin(PEOPLE[name].unique()).all() and full.dtype == PEOPLE[name].dtype


def test_a_category_of_rows_that_do_not_count_is_none() -> None:
    frame = PEOPLE.assign(grade=np.r_[["other"], PEOPLE["grade"][1:]])
    rbm = hm.RBM(**SMALL).fit(frame, sample_weight=np.r_[0.0, np.ones(59)])
    assert set(rbm.sample(50, random_state=0)["grade"]) <= {"low", "mid", "high"}


def test_weights_of_a_table_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="weights: expected"):
        hm.tables.Table.fit(PEOPLE, weights=np.ones(59))
    one = np.zeros(60)
    one[3] = 2.0
    assert hm.tables.Table.fit(PEOPLE, {"age": "gaussian"}, weights=one).columns[0].mean == PEOPLE["age"][3]


def test_names_of_two_levels_are_refused_with_what_to_do() -> None:
    frame = PEOPLE.set_axis(pandas.MultiIndex.from_product([["a"], PEOPLE.columns]), axis=1)
    with pytest.raises(ValueError, match=r"names of 2 levels such as \('a', 'age'\); X.columns = "):
        hm.RBM(**SMALL).fit(frame)


def test_a_row_without_its_label_has_no_score() -> None:
    y = np.array(["a", "b"] * 30, dtype=object)
    classifier = hm.RBMClassifier(**SMALL).fit(PEOPLE, y)
    assert classifier.score(PEOPLE, y, sample_weight=np.r_[1, np.zeros(59)]) in (0, 1)
    y[[4, 7]] = None
    with pytest.raises(ValueError, match=r"y: .* received none for row 4 \(2 rows have none\)"):
        classifier.score(PEOPLE, y)
    with pytest.raises((TypeError, ValueError)):
        classifier.score(PEOPLE, [1, 0] * 30)  # numbers, where the classes are text
    with pytest.raises(ValueError, match=r"label: expected the classes \['a', 'b'\], received 'Old'"):
        classifier.sample(label="Old")


def test_rows_that_do_not_count_teach_a_classifier_nothing() -> None:
    y = np.array(["a", "b", None] * 20, dtype=object)
    frame = PEOPLE.assign(grade=np.r_[["other"], PEOPLE["grade"][1:]])
    weights = np.r_[0.0, np.ones(59)]
    weighted = hm.RBMClassifier(**SMALL).fit(frame, y, sample_weight=weights)
    dropped = hm.RBMClassifier(**SMALL).fit(frame[1:], y[1:], sample_weight=weights[1:])
    assert (weighted.predict_proba(PEOPLE) == dropped.predict_proba(PEOPLE)).all()


LONG = 10**17 + np.arange(60) % 3


@pytest.mark.parametrize("dtype", ["int64", "uint64", "Int64", object])
def test_whole_numbers_that_float64_does_not_keep_are_refused(dtype) -> None:
    with pytest.raises(ValueError, match=r"below 2\^53 in column 'id', received 10000000000000000\d; drop"):
        hm.RBM(**SMALL).fit(PEOPLE.assign(id=pandas.Series(LONG.tolist()).astype(dtype)))
    with pytest.raises(ValueError, match=r"y: expected whole numbers below 2\^53"):
        hm.RBMClassifier(**SMALL).fit(PEOPLE, pandas.Series(LONG.tolist()).astype(dtype))


def test_labels_are_text_numbers_or_booleans() -> None:
    with pytest.raises(TypeError, match=r"y: expected text, numbers or booleans, received .*astype\(str\)"):
        hm.RBMClassifier(**SMALL).fit(
            PEOPLE, pandas.Series(pandas.to_datetime(["2020-01-01", "2021-01-01"] * 30))
        )


@pytest.mark.parametrize("dtype", ["boolean", "Int64", "category"])
def test_labels_may_be_a_frame_of_one_column(dtype: str) -> None:
    y = pandas.Series([1, 0] * 30).astype(dtype)
    y[3] = pandas.NA
    of_series = hm.RBMClassifier(**SMALL).fit(PEOPLE, y).classes_
    of_frame = hm.RBMClassifier(**SMALL).fit(PEOPLE, y.to_frame("label")).classes_
    assert of_frame.dtype == of_series.dtype and list(of_frame) == list(of_series)


@pytest.mark.parametrize("dtype", [object, "U1", "uint8", "float32", "bool"])
def test_classes_keep_their_dtype_in_a_file(dtype, tmp_path) -> None:
    y = np.array(["a", "b"] * 30 if dtype in (object, "U1") else [1, 0] * 30).astype(dtype)
    classifier = hm.RBMClassifier(**SMALL).fit(PEOPLE, y)
    classifier.save(tmp_path / "c.safetensors")
    loaded = hm.RBMClassifier.load(tmp_path / "c.safetensors")
    assert loaded.classes_.dtype == classifier.classes_.dtype
    assert list(loaded.predict(PEOPLE)) == list(classifier.predict(PEOPLE))


def test_booleans_and_their_names_in_a_text_file_are_the_same_values() -> None:
    booleans = pandas.DataFrame({"x": [0.5, 1.5, 2.5, 3.0], "b": [True, False, True, False]})
    names = booleans.assign(b=booleans["b"].astype(str))
    for fitted, other in ((booleans, names), (names, booleans)):
        table = hm.tables.Table.fit(fitted)
        assert np.array_equal(table.encode(other), table.encode(fitted))
        assert table.decode(table.encode(other))["b"].tolist() == fitted["b"].tolist()
