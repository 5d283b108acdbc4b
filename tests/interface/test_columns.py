"""Columns as they are: what is left out, blank rows, new cells, order, skew, times, zeros, rare labels."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import harmonium as hm
from harmonium.data import Series, build, encoder_from_dict
from harmonium.tables import ColumnCodec as Column, Labels, Line, Logarithm, Quantiles, Table

pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.usefixtures("short_fits")
ROWS = 300
RANDOM = np.random.default_rng(7)
GROUP = RANDOM.integers(0, 2, ROWS)
START = pandas.Timestamp("2024-01-01")
FRAME = pandas.DataFrame(
    {
        "id": [f"u{i}" for i in range(ROWS)],
        "number": RANDOM.permutation(ROWS) + 1,
        "one": 3.5,
        "empty": np.nan,
        "opinion": np.clip(np.round(RANDOM.normal(3 + GROUP, 1)), 1, 5).astype(int),
        "income": np.exp(RANDOM.normal(8 + GROUP, 1.2)),
        "visits": RANDOM.poisson(3 + 12 * GROUP).astype(float),
        "rain": np.where(RANDOM.random(ROWS) < 0.5, 0.0, RANDOM.gamma(1.0, 5.0, ROWS)),
        "even": RANDOM.random(ROWS) * 7 - 3,
        "kind": np.where(GROUP == 1, "a", "b"),
    }
)
LEFT_OUT = ["id", "number", "one", "empty"]
SMALL: dict[str, Any] = {"n_hidden": 4, "method": "chains", "max_updates": 30, "random_state": 0}


def holed(frame: Any = FRAME) -> Any:
    return frame.mask(np.random.default_rng(1).random(frame.shape) < 0.1)


def learned() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hm.RBM(**SMALL).fit(holed())


@pytest.fixture(scope="module")
def rbm() -> Any:
    return learned()


def cells_of(values: Any, name: str = "x") -> Series:
    array = np.array(values, dtype=object if isinstance(values[0], str) else float)
    return Series(name, array, "object" if array.dtype == object else "float64")


# Columns that are left out
# --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        np.arange(60.0) + 20,  # ages that happen to be in order
        np.arange(1959, 2019),  # a row for every year
        RANDOM.integers(0, 1000, 60),
        [f"c{i % 30}" for i in range(60)],
    ],
)
def test_what_only_looks_like_row_numbers_is_learned(values: Any) -> None:
    assert Table.fit(pandas.DataFrame({"x": values})).unlearned_columns == ()


def test_columns_left_out_come_back(rbm: Any, tmp_path: Path) -> None:
    frame = holed()
    full = rbm.impute(frame, sweeps=5)
    assert list(full.columns) == list(frame.columns)
    pandas.testing.assert_frame_equal(full[["id", "number", "empty"]], frame[["id", "number", "empty"]])
    assert (full["one"] == 3.5).all() and full.drop(columns=LEFT_OUT).notna().all().all()
    drawn = rbm.sample(5, sweeps=5)
    assert list(drawn.columns) == list(FRAME.columns)
    assert drawn[["id", "number", "empty"]].isna().all().all() and (drawn["one"] == 3.5).all()
    assert np.isfinite(rbm.score_samples(drawn)).all() and rbm.transform(drawn).shape == (5, 4)
    with pytest.raises(ValueError, match="received 'id'"):
        rbm.sample(2, given={"id": "u1"})
    rbm.save(tmp_path / "machine")
    again = hm.RBM.load(tmp_path / "machine")
    assert again.encoder_ == rbm.encoder_ and again.n_features_in_ == len(FRAME.columns)
    other = frame.assign(id="nobody", number=0, one=9.0)
    np.testing.assert_array_equal(rbm.score_samples(other), rbm.score_samples(frame))
    assert (rbm.impute(other, sweeps=5)["one"] == 9.0).all()


# Rows without any cell, and cells without a state
# --------------------------------------------------------------------------------


def test_blank_rows_of_an_array_are_not_learned() -> None:
    X = (RANDOM.random((60, 4)) < 0.5).astype(float)
    expected = hm.RBM(**SMALL).fit(X)
    with pytest.warns(UserWarning, match="nothing is learned from 2 of 62 rows"):
        found = hm.RBM(**SMALL).fit(np.insert(X, [3, 7], np.nan, axis=0))
    np.testing.assert_array_equal(found.score_samples(X), expected.score_samples(X))


def test_cells_without_a_state_are_improbable_and_new_labels_tell_nothing_of_others(rbm: Any) -> None:
    new = FRAME.iloc[:4].copy()
    new["kind"], new["opinion"] = ["a", "x", "b", "a"], [1, 2, 17, 4]
    with pytest.warns(UserWarning, match="as missing: 'x' in column 'kind'") as said:
        scores = rbm.score_samples(new)
    assert len(said) == 1
    holes, largest = new.mask(new == "x"), new.replace({"opinion": {17: FRAME["opinion"].max()}})
    kind = next(column for column in rbm.encoder_.columns if column.name == "kind")
    rest = rbm.score_samples(holes)
    np.testing.assert_allclose(scores[1], rest[1] + np.log(1 / (kind.seen + 1)), rtol=1e-12)
    np.testing.assert_array_equal(np.delete(scores, 1), np.delete(rest, 1))
    assert scores[2] < rbm.score_samples(largest.mask(new == "x"))[2] - 1
    with pytest.warns(UserWarning, match="as missing"):
        full = rbm.impute(new.assign(income=np.nan), sweeps=5)
    assert full["kind"].tolist() == ["a", "x", "b", "a"] and full["opinion"].tolist() == [1, 2, 17, 4]
    assert full["income"].notna().all()  # told by the rest; what was given stays
    typed, given = Table.fit(FRAME.astype({"kind": "category"})), new.astype({"kind": "category"})
    with pytest.warns(UserWarning, match="as missing"):
        back = build(typed.filled(given, typed.encode(given)))["kind"]
    assert back.tolist() == ["a", "x", "b", "a"] and back.cat.categories.tolist() == ["a", "b", "x"]


# Numbers
# --------------------------------------------------------------------------------


def test_few_whole_numbers_know_their_order_and_take_what_lies_between() -> None:
    column = Column.fit(cells_of([1.0, 2, 3, 5, 7] * 10))
    assert column.kind == "binomial" and column.n_states == 7
    cells = cells_of([1.0, 4, 6, 7, 8, 0, 2.5])
    np.testing.assert_array_equal(column.encode(cells)[:, 0], [0, 3, 5, 6, 6, 0, 2])  # or the nearest
    states = column.encode(cells, beyond="line")[:, 0]
    np.testing.assert_array_equal(states, [0, 3, 5, 6, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(column.decode(np.array([[0.0], [3.4], [6.0]])), [1, 4, 7])
    spaced = Column.fit(cells_of([-50.0, 0, 100, 150] * 10))
    assert spaced.n_states == 5 and spaced.decode(np.array([[2.2]])).tolist() == [50]
    ranks = Column.fit(cells_of([0.5, 1, 5000] * 10))
    assert ranks.kind == "binomial" and ranks.encode(cells_of([5000.0, 0.5]))[:, 0].tolist() == [2, 0]
    assert ranks.decode(np.array([[1.2], [1.6]])).tolist() == [1000.8, 3000.4]  # means between ranks
    assert ranks.decode(np.array([[1.0], [2.0]]), drawn="cells").tolist() == [1, 5000]
    assert np.isnan(ranks.encode(cells_of([2.0]), beyond="line")).all()
    assert ranks.encode(cells_of([2.0, 4000.0]))[:, 0].tolist() == [1, 2]
    asked = Column.fit(cells_of([1.0, 2, 3] * 10), {"kind": "binomial", "largest": 9})
    assert asked.n_states == 10 and asked.encode(cells_of([0.0]))[0, 0] == 0


@pytest.mark.parametrize(
    "made", [(Logarithm, hm.Gaussian), (Quantiles, hm.Gaussian), (Quantiles, hm.TruncatedGaussBernoulli)]
)
def test_curves_go_there_and_back_and_have_the_slopes_of_differences(made: Any) -> None:
    positive = np.exp(np.random.default_rng(2).normal(1, 1, 200))
    kind, unit = made
    coding = kind(name="x", kind=unit.kind, **kind.fields_of(cells_of(positive), unit, None))
    beyond = positive.max() * (2 if unit.gaussian else 1)
    new = np.unique([*positive[::7], positive.min() / 2, beyond])
    states = coding.states_of(new)
    np.testing.assert_allclose(coding.cells_of(states), new)
    step = 1e-7 * new
    slopes = np.log((states - coding.states_of(new - step)) / step)
    inside = np.abs(slopes - coding.log_slopes_of(states)) < 1e-3
    assert inside.mean() > 0.8  # all but those at a point, where the slope changes
    assert np.all(np.diff(states) > 0)
    assert np.isnan(coding.states_of(np.array([np.nan]))).all()


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda r: r.normal(100, 5, 500), Line),
        (lambda r: np.exp(r.normal(3, 1, 500)), Logarithm),
        (lambda r: r.random(500), Quantiles),
        (lambda r: -np.exp(r.normal(3, 1, 500)), Quantiles),
        (lambda r: np.round(r.normal(100, 5, 500)), Line),
        (lambda r: np.where(r.random(500) < 0.3, 100.0, r.normal(100, 5, 500)), Quantiles),
    ],
)
def test_the_transform_is_the_likeliest(draw: Any, expected: type) -> None:
    for seed in range(5):
        column = Column.fit(cells_of(draw(np.random.default_rng(seed))))
        assert column.kind == "gaussian" and type(column) is expected
    plain = Column.fit(cells_of(draw(np.random.default_rng(0))), "gaussian")
    assert type(plain) is Line


def test_numbers_of_many_cells_are_values_by_themselves() -> None:
    """Others go there and back, the probabilities of all add to 1, and draws have as many of them."""
    rng = np.random.default_rng(4)
    x = np.round(rng.normal(0, 900, 3000), 2)
    x[rng.random(3000) < 0.45], x[rng.random(3000) < 0.2] = 0.0, 250.0
    coding = Column.fit(cells_of(x))
    assert isinstance(coding, Quantiles) and [*coding.common] == [0.0, 250.0]
    assert encoder_from_dict(json.loads(json.dumps(coding.to_dict()))) == coding
    new = np.unique([*x, -0.01, 0.01, 249.99, 250.01, 9e3])
    states = coding.states_of(new)
    assert np.all(np.diff(states) > 0)
    np.testing.assert_allclose(coding.cells_of(states), new, rtol=1e-9, atol=1e-9)
    normal = coding.cells_of(rng.standard_normal(100_000))
    for number in coding.common:
        assert np.mean(normal == number) == pytest.approx(np.mean(x == number), abs=0.006)
    # The density of the others, integrated between the points, and the probabilities of the common ones.
    grid = np.unique(np.concatenate([np.linspace(-9e3, 9e3, 200_001), np.array(coding.points)]))
    middles = (grid[1:] + grid[:-1]) / 2
    density = np.exp(coding.log_slopes_of(s := coding.states_of(middles)) - s**2 / 2) / np.sqrt(2 * np.pi)
    at = coding.states_of(np.array([*coding.common]))
    masses = np.exp(coding.log_slopes_of(at) - at**2 / 2) / np.sqrt(2 * np.pi)
    assert (density * np.diff(grid)).sum() + masses.sum() == pytest.approx(1, abs=2e-3)  # the gaps
    few = Column.fit(cells_of(np.where(rng.random(300) < 0.5, 3.5, np.resize(np.arange(19) + 0.25, 300))))
    assert not getattr(few, "common", ())
    small = np.append(np.arange(30) % 29 + 0.5, [7.5] * 6)  # by chance
    assert not getattr(Column.fit(cells_of(small)), "common", ())


def test_densities_and_probabilities_of_a_column_add_to_1_also_after_training() -> None:
    """Also where its states are far from normal; zeros are drawn as often as seen."""
    rng = np.random.default_rng(6)
    group = rng.random(2000) < 0.4
    paid = np.round(np.where(group, 0, rng.normal(0, 50, 2000)), 2)
    frame = pandas.DataFrame({"paid": paid, "who": np.where(group, "a", "b")})
    model = hm.RBM(3, random_state=0).fit(frame)
    grid = np.unique(np.round(np.linspace(-500, 500, 40_001), 3))
    grid = grid[grid != 0]
    whole = np.exp(model.score_samples(pandas.DataFrame({"paid": [*grid, 0.0], "who": None})))
    at_zero, density = whole[-1], whole[:-1]
    assert np.trapezoid(density, grid) + at_zero == pytest.approx(1, abs=0.02)
    assert at_zero == pytest.approx(0.4, abs=0.04)
    drawn = model.sample(4000, random_state=1)
    assert (drawn["paid"] == 0).mean() == pytest.approx(0.4, abs=0.06)


def test_numbers_beside_zeros_keep_their_long_tail() -> None:
    """Uniform states decode to the mean and deviation of a skewed column, also where one number is common."""
    rng = np.random.default_rng(7)
    skewed = np.exp(rng.normal(3, 1.2, 2000))
    for positive in (skewed, np.minimum(skewed, 60), np.maximum(np.round(skewed), 12)):
        x = np.where(rng.random(2000) < 0.3, 0.0, positive)
        coding = Column.fit(cells_of(x))
        assert isinstance(coding, Quantiles) and np.all(np.diff(coding.states_of(np.unique(x))) > 0)
        uniform = np.linspace(0, coding.states[-1], 20_001)[1:]
        decoded, seen = coding.cells_of(uniform), x[x > 0]
        assert decoded.mean() == pytest.approx(seen.mean(), rel=0.1)
        assert decoded.std() == pytest.approx(seen.std(), rel=0.2)


def test_knots_that_rounding_alone_would_part_are_one() -> None:
    rng = np.random.default_rng(0)
    ties = ([3.0] * 160 + [*rng.random(40) + 1], [1.0] * 60 + [*1 + 9 * rng.random(40)],
            [3.0] * 40 + [*2 * rng.random(160)])  # fmt: skip
    for positive in ties:
        x = np.array([0.0] * 100 + positive)
        coding = Column.fit(cells_of(x), {"kind": "truncated_gauss_bernoulli", "transform": "quantile"})
        assert np.diff(coding.points).min() > 1e-6 and np.diff(coding.states).min() > 1e-6
        assert np.log(np.diff(coding.states) / np.diff(coding.points)).max() < 12


def test_a_transform_is_asked_for_by_name() -> None:
    values = cells_of(np.exp(RANDOM.normal(size=40)))
    for name, coding in (("none", Line), ("log", Logarithm), ("quantile", Quantiles)):
        found = Column.fit(values, {"kind": "gaussian", "transform": name})
        assert type(found) is coding
    with pytest.raises(ValueError, match="transform: expected one of auto, log, none, quantile"):
        Column.fit(values, {"kind": "gaussian", "transform": "root"})
    with pytest.raises(ValueError, match='expected positive numbers, or whole ones from 0, for "log"'):
        Column.fit(cells_of([-1.0, 2.5, 3]), {"kind": "gaussian", "transform": "log"})


# Dates and times
# --------------------------------------------------------------------------------

DAYS = pandas.to_timedelta(RANDOM.integers(0, 400, 120), "D")
SECONDS = pandas.to_timedelta(RANDOM.integers(0, 10**7, 120), "s")
TIMES: dict[str, Any] = {
    "days": START + DAYS,
    "seconds": START + SECONDS,
    "zone": START.tz_localize("Europe/Berlin") + SECONDS,
    "date": pandas.Series((START + DAYS).date, dtype=object),
    "length": SECONDS,
    "clock": pandas.Series((START + SECONDS).time, dtype=object),
}


@pytest.mark.parametrize("name", TIMES)
def test_dates_and_times_come_back_as_their_own_type(name: str) -> None:
    frame = pandas.DataFrame({"when": TIMES[name], "x": RANDOM.normal(size=120)})
    frame.loc[[3, 8], "when"] = None
    table = encoder_from_dict(json.loads(json.dumps(Table.fit(frame).to_dict())))
    assert table.kinds["when"] == "gaussian"
    states = table.encode(frame)
    np.testing.assert_array_equal(np.isnan(states[:, 0]), frame["when"].isna())
    back = table.decode(states)["when"]
    assert back.dtype == frame["when"].dtype and (back.dropna() == frame["when"].dropna()).all()
    full = build(table.filled(frame, np.nan_to_num(states)))["when"]
    assert full.dtype == frame["when"].dtype and full.notna().all()
    pandas.testing.assert_series_equal(full.drop([3, 8]), frame["when"].drop([3, 8]))
    if name == "days":
        assert str(full[3]).removesuffix("00:00:00").strip() == str(full[3])[:10]  # a whole day
    with pytest.warns(UserWarning, match="as missing: 'soon' in column 'when'"):
        assert np.isnan(table.encode(frame.assign(when="soon"))[:, 0]).all()


def test_dates_of_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.from_pandas(pandas.DataFrame({"seconds": TIMES["seconds"], "x": RANDOM.normal(size=120)}))
    frame = frame.with_columns(
        polars.col("seconds").dt.date().alias("day"),
        polars.col("seconds").dt.time().alias("clock"),
        polars.col("seconds").dt.replace_time_zone("UTC").alias("zone"),
        (polars.col("seconds") - START.to_pydatetime()).alias("length"),
    )
    table = Table.fit(frame)
    back = table.decode(table.encode(frame))
    assert back.schema == frame.schema
    assert back.drop("x").equals(frame.drop("x"))
    assert table.decode(np.full((1, 6), np.nan)).schema == frame.schema


def test_counts_come_back_from_their_logarithms_and_from_steps() -> None:
    frame = pandas.DataFrame({"n": np.arange(60) % 9, "tens": np.arange(60) % 4 * 10})
    kinds: dict[str | int, Any] = {
        "n": {"kind": "gaussian", "transform": "log"}, "tens": {"kind": "binomial", "step": 10}
    }  # fmt: skip
    table = hm.tables.Table.fit(frame, kinds)
    states = table.encode(frame)
    pandas.testing.assert_frame_equal(table.decode(states), frame)
    logarithms = np.log(frame["n"] + 0.5)
    np.testing.assert_allclose(states[:, 0], (logarithms - logarithms.mean()) / logarithms.std(ddof=0))
    np.testing.assert_array_equal(states[:, 1], frame["tens"] / 10)
    with pytest.raises(ValueError, match="expected counts from 0 in steps of 10, received 15"):
        hm.tables.Table.fit(frame.assign(tens=15), kinds)


# Many labels
# --------------------------------------------------------------------------------


def test_rare_labels_share_a_state_with_new_ones() -> None:
    common = [f"c{i}" for i in range(20) for _ in range(10)]
    rare = ["r0"] * 4 + ["r1"] * 2 + ["r2", "r3"]
    column = Column.fit(cells_of([*common, *rare]))
    assert isinstance(column, Labels) and column.shared and column.n_states == 21
    states = column.encode(cells_of(["c0", "r2", "never seen"]))
    assert states[0, 0] == 1 and states[1:, -1].tolist() == [1, 1]
    assert column.decode(states, drawn="rows").tolist() == ["c0", "other", "other"]
    again = Column.from_dict(json.loads(json.dumps(column.to_dict())))
    assert again == column
    assert not Column.fit(cells_of([*common, *rare]), "categorical").shared
    assert not Column.fit(cells_of(common)).shared


# The command
# --------------------------------------------------------------------------------
