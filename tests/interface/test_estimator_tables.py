"""The estimators on tables: frames in, frames out, columns of several kinds, and missing cells."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone

from harmonium.data import Identity
from harmonium.estimators import DBM, RBM
from harmonium.likelihood import exact_log_likelihood, log_likelihood
from harmonium.tables import Codec, Table

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)

ROWS = 90
RANDOM = np.random.default_rng(0)
GROUP = RANDOM.integers(0, 3, ROWS)
FRAME = pandas.DataFrame(
    {
        "age": 20 * GROUP + RANDOM.integers(18, 30, ROWS),
        "height": RANDOM.normal(170.0 + 10 * GROUP, 3.0),
        "member": RANDOM.random(ROWS) < 0.1 + 0.4 * GROUP,
        "city": np.array(["Ulm", "Rom", "Bern"])[GROUP],
        "size": pandas.Categorical(
            np.array(["S", "M", "L"])[GROUP], categories=["S", "M", "L"], ordered=True
        ),
    }
).set_axis([f"row {i}" for i in range(ROWS)])
GAPS = np.random.default_rng(1).random(FRAME.shape) < 0.25
GAPS[GAPS.all(1), 0] = False
HOLED = FRAME.mask(GAPS)


def small(**settings):
    usual = {"epochs": 25, "batch_size": 30, "learning_rate": 0.3, "random_state": 0}
    return RBM(5, method="chains", **{**usual, **settings})


@pytest.fixture(scope="module")
def rbm():
    return small().fit(HOLED)


def test_a_frame_with_holes_is_learnt_from(rbm):
    assert isinstance(rbm.encoder_, Table) and rbm.n_features_in_ == 5
    kinds = ["gaussian", "bernoulli", "categorical", "bernoulli"]
    assert [layer.kind for layer in rbm.machine_.layers] == kinds
    assert list(rbm.feature_names_in_) == list(FRAME)
    assert (
        rbm.score(FRAME) > small(initial_std=0.0, learning_rate=0.0, epochs=1).fit(HOLED).score(FRAME) + 1.0
    )


@pytest.mark.parametrize("value", ["mean", "nearest", "draw"])
def test_holes_are_filled(rbm, value):
    full = rbm.impute(HOLED, value=value, sweeps=20)
    assert full.index.equals(FRAME.index) and (full.dtypes == HOLED.dtypes).all()
    assert not full.isna().any().any()
    given = ~HOLED.isna()
    assert (full.where(given) == HOLED.where(given)).to_numpy()[given.to_numpy()].all()
    if value != "draw":
        hole = HOLED["city"].isna()
        assert (full["city"][hole] == FRAME["city"][hole]).mean() > 0.6  # a third by chance


def test_scores_are_of_what_a_row_shows(rbm):
    """Against enumeration of machine states, with slopes and shares of the cells that are given."""
    table, machine = rbm.encoder_, rbm._fitted.double()
    codec = Codec(table, table.layers)
    states = torch.from_numpy(table.encode(HOLED))
    slopes = (
        np.nansum(table.log_jacobian(states.numpy()), 1) + codec.log_shares(HOLED, machine).sum(1).numpy()
    )
    np.testing.assert_allclose(
        rbm.score_samples(HOLED), exact_log_likelihood(machine, states).numpy() + slopes
    )
    both = rbm.score_samples(FRAME) - codec.log_shares(FRAME, machine).sum(1).numpy()
    states = torch.from_numpy(table.encode(FRAME))
    np.testing.assert_allclose(
        both,
        log_likelihood(machine, states, rbm.log_partition_) + table.log_jacobian(states.numpy()).sum(1),
    )


def test_hidden_means_of_rows_with_holes(rbm):
    whole, holed = rbm.transform(FRAME), rbm.transform(HOLED)
    same = ~GAPS.any(1)
    np.testing.assert_array_equal(holed[same], whole[same])
    assert holed.shape == (ROWS, 5) and (holed[~same] != whole[~same]).any()
    np.testing.assert_allclose(rbm.transform(HOLED.iloc[7:9]), holed[7:9], atol=1e-4)
    frame = clone(rbm).set_params(epochs=2).set_output(transform="pandas").fit(HOLED).transform(HOLED)
    assert list(frame) == [f"rbm{j}" for j in range(5)] and frame.index.equals(FRAME.index)
    assert isinstance(rbm.inverse_transform(rbm.transform(HOLED)), pandas.DataFrame)


def test_columns_may_come_in_the_order_of_fit_only(rbm):
    with pytest.raises(ValueError, match="in the same order as they were in fit"):
        rbm.transform(FRAME[list(FRAME)[::-1]])
    with pytest.raises(ValueError, match="seen at fit time, yet now missing:\n- city"):
        rbm.transform(FRAME.drop(columns="city"))


def test_kinds_by_column():
    rbm = small(visible={"age": "binomial", "height": "truncated_gaussian"}, epochs=2).fit(FRAME)
    kinds = ["binomial", "truncated_gaussian", "bernoulli", "categorical", "categorical"]
    assert list(rbm.encoder_.kinds.values()) == kinds
    rbm = small(visible={1: "binomial"}, epochs=1).fit([[0, 3], [1, 4], [1, 5]])
    assert rbm.encoder_.kinds[1] == "binomial"
    with pytest.raises(ValueError, match=r"^visible: expected columns among 'age'.* received 'ages'"):
        small(visible={"ages": "gaussian"}).fit(FRAME)


def test_new_categories_are_missing(rbm):
    frame = FRAME.iloc[:3].assign(city=["Ulm", "Oslo", "Bern"])
    with pytest.warns(UserWarning, match="taken as missing: 'Oslo' in column 'city'"):
        assert rbm.impute(frame, sweeps=5)["city"].iloc[1] == "Oslo"  # what was given stays
    holed = frame.assign(city=["Ulm", None, "Bern"])
    with pytest.warns(UserWarning, match="taken as missing"):
        scores = rbm.score_samples(frame)
    cities = HOLED["city"].dropna()
    unseen = 1 / (len(cities) + 1)  # every city stands in several rows
    assert cities.value_counts().min() > 1
    expected = rbm.score_samples(holed) + np.array([0, np.log(unseen), 0])
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({name: HOLED[name].tolist() for name in FRAME}, strict=False)
    frame = frame.with_columns(polars.col("age", "height").fill_nan(None))
    frame = frame.with_columns(
        polars.when(polars.col(name).is_in(["nan"])).then(None).otherwise(polars.col(name)).alias(name)
        for name in ("city", "size")
    )
    rbm = small(epochs=2).fit(frame)
    assert isinstance(rbm.sample(2, sweeps=2), polars.DataFrame)
    full = rbm.impute(frame, sweeps=5)
    assert full.schema == frame.schema and sum(full.null_count().row(0)) == 0
    out = rbm.set_output(transform="polars").transform(frame)
    assert isinstance(out, polars.DataFrame)
    with pytest.raises(TypeError, match=r"received LazyFrame; \.collect\(\) it"):
        small().fit(frame.lazy())


def test_a_deep_machine_on_a_table():
    deep = DBM((4, 3), epochs=5, batch_size=30, random_state=0).fit(HOLED)
    assert deep.transform(HOLED).shape == (ROWS, 7)
    assert deep.impute(HOLED, sweeps=5).notna().all().all()
    states = deep.encoder_.encode(HOLED)
    exact = exact_log_likelihood(deep._fitted.double(), torch.from_numpy(states))
    slopes = np.nansum(deep.encoder_.log_jacobian(states), 1)
    assert (deep.score_samples(HOLED) <= exact.numpy() + slopes + 1e-8).all()


# Arrays
# --------------------------------------------------------------------------------


def test_one_kind_of_column_is_as_ever():
    pictures = (RANDOM.random((30, 6)) < 0.5).astype(float)
    assert isinstance(small(epochs=1).fit(pictures).encoder_, Identity)
    grey = RANDOM.integers(0, 17, (30, 6)).astype(float)
    grey[:, 0] = grey[:, 0] > 8  # a pixel that is 0 or 1 in every picture
    machine = small(epochs=1).fit(grey).machine_
    assert [layer.kind for layer in machine.layers] == ["gaussian", "bernoulli"]
    objects = pictures.astype(object)
    objects[0, 0], objects[1, 1], objects[2, 2] = None, np.nan, pandas.NA
    assert not np.isnan(small(epochs=1).fit(objects).impute(objects, sweeps=2)).any()
    columns = small(epochs=1).fit(np.column_stack([FRAME["height"], FRAME["member"]]))
    assert columns.encoder_.kinds == {0: "gaussian", 1: "bernoulli"}
    rows = columns.sample(10, sweeps=2)
    assert isinstance(rows, np.ndarray) and set(rows[:, 1]) <= {0.0, 1.0}
    framed = small().fit(pandas.DataFrame(pictures)).machine_
    for one, other in zip(framed.parameters(), small().fit(pictures).machine_.parameters(), strict=True):
        assert torch.equal(one, other)  # nor does a frame of them differ


@pytest.mark.parametrize(
    ("visible", "X"),
    [
        ("auto", RANDOM.normal(size=(40, 4))),
        ("truncated_gaussian", 3 * RANDOM.random((40, 4))),
    ],
    ids=str,
)
def test_arrays_with_holes(visible, X):
    holed = np.where(np.random.default_rng(2).random(X.shape) < 0.2, np.nan, X)
    holed[np.isnan(holed).all(1), 0] = X[np.isnan(holed).all(1), 0]
    rbm = small(visible=visible, epochs=3, clip_norm=0.1).fit(holed)
    assert np.isfinite(rbm.score_samples(holed)).all() and np.isfinite(rbm.transform(holed)).all()
    full = rbm.impute(holed, sweeps=5)
    np.testing.assert_array_equal(full[~np.isnan(holed)], holed[~np.isnan(holed)])
    assert not np.isnan(full).any()
    missing = exact_log_likelihood(rbm._fitted.double(), torch.cat(list(rbm._fitted.states(holed))))
    real = not rbm.machine_.layers[0].discrete
    states = torch.cat(list(rbm._fitted.states(holed))).numpy()
    slopes = np.nansum(rbm.encoder_.log_jacobian(states), 1) if real else 0.0
    np.testing.assert_allclose(rbm.score_samples(holed), missing.numpy() + slopes)


# What a new user tries
# --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (FRAME.mask(FRAME["age"] > 0), ValueError, r"expected a (row|column) to learn from"),
        (FRAME["age"], ValueError, r"received a Series; \.to_frame\(\) makes it a table"),
        (np.full((5, 5), np.nan), ValueError, "every cell of every row is missing"),
    ],
    ids=range(3),
)
def test_data_that_cannot_be_learnt_from_say_why(X, error, message):
    with pytest.raises(error, match=message):
        small().fit(X)


@pytest.mark.filterwarnings("ignore:X has feature names")
def test_text_for_an_estimator_of_numbers():
    rbm = small(epochs=1).fit(np.array([[0.0, 1.0], [1.0, 0.0]]))
    for text in (np.array([["a", "1"]]), [["a", 1.0]], pandas.DataFrame({"x": ["a"], "y": [1.0]})):
        with pytest.raises(ValueError, match=r"X: expected numbers in column (0|'x'), received 'a'"):
            rbm.transform(text)


def test_missing_cells_with_too_many_states_to_sum_over():
    X = RANDOM.normal(size=(40, 3))
    rbm = small(epochs=1, log_partition="ais", ais_temperatures=5).set_params(n_hidden=40).fit(X)
    with pytest.raises(ValueError, match=r"X: expected rows whose missing cells .* impute\(X\)"):
        rbm.score_samples(np.where(np.eye(40, 3) > 0, np.nan, X))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_drawn_whole_numbers_fit_their_type(library: str) -> None:
    frame, random = pytest.importorskip(library).DataFrame, np.random.default_rng(0)
    table = frame({"small": random.integers(0, 60, 200).astype(np.uint8), "real": random.normal(size=200)})
    rbm = RBM(2, visible="gaussian", method="chains", max_updates=5, random_state=0).fit(table)
    drawn = np.asarray(rbm.sample(500, method="gibbs", sweeps=1, random_state=1)["small"])
    assert drawn.dtype == np.uint8 and drawn.min() == 0 and drawn.max() < 120
