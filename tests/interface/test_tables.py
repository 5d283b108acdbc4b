"""Tables: what each kind and type of column becomes, that rows come back, and what is refused."""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext
from decimal import Decimal

import numpy as np
import pytest
import torch

from harmonium.data import build, encoder_from_dict
from harmonium.layers import Bernoulli, Layer
from harmonium.machine import join_layers
from harmonium.tables import Table

pandas = pytest.importorskip("pandas")

ROWS = 60
RANDOM = np.random.default_rng(0)
FRAME = pandas.DataFrame(
    {
        "age": RANDOM.integers(18, 80, ROWS),
        "income": RANDOM.normal(3.0, 2.0, ROWS).astype(np.float32),
        "member": RANDOM.random(ROWS) < 0.5,
        "grade": RANDOM.integers(1, 4, ROWS),
        "city": RANDOM.choice(["Ulm", "Rom", "Bern"], ROWS),
        "answer": RANDOM.choice(["yes", "no"], ROWS),
        "size": pandas.Categorical(RANDOM.choice(["M", "L"], ROWS), categories=["S", "M", "L"], ordered=True),
        "code": pandas.Categorical(RANDOM.choice([3, 5, 7], ROWS)),
        "whole": pandas.array(RANDOM.integers(0, 100, ROWS), dtype="Int64"),
        "flag": pandas.array(RANDOM.random(ROWS) < 0.5, dtype="boolean"),
        "object": pandas.Series(RANDOM.choice(["p", "q", "r"], ROWS), dtype=object),
        "string": pandas.Series(RANDOM.choice(["p", "q", "r"], ROWS), dtype="string"),
        "count": RANDOM.poisson(2.0, ROWS).astype(np.int8),
        "share": RANDOM.random(ROWS),
    }
).set_axis(np.arange(ROWS) + 1000)
KINDS = {
    "age": "gaussian",
    "whole": "gaussian",
    "grade": "categorical",
    "count": "binomial",
    "share": "truncated_gaussian",
    "answer": "spin",
}
TABLE = Table.fit(FRAME, KINDS)
MISSING = [None, np.nan, pandas.NA, pandas.NaT, "", "  "]


def holed(share: float = 0.3):
    """The frame with cells missing from every column."""
    return FRAME.mask(np.random.default_rng(1).random(FRAME.shape) < share)


def test_kinds_are_chosen_by_what_the_columns_hold():
    chosen = dict(Table.fit(FRAME).kinds)
    by_kind = {
        "gaussian": ["age", "income", "whole", "share"],
        "bernoulli": ["member", "answer", "flag"],
        "binomial": ["grade", "count"],
        "categorical": ["city", "size", "code", "object", "string"],
    }
    assert chosen == {name: kind for kind, names in by_kind.items() for name in names}
    assert {**chosen, **KINDS} == TABLE.kinds
    assert set(Table.fit(FRAME[["age", "income"]], "double_relu").kinds.values()) == {"double_relu"}


def test_columns_of_a_kind_make_one_layer_wherever_they_stand():
    assert [(layer.kind, layer.n_units, layer.n_states or 2) for layer in TABLE.layers] == [
        ("gaussian", 3, 2),
        ("bernoulli", 2, 2),
        ("categorical", 6, 3),
        ("spin", 1, 2),
        ("binomial", 1, int(FRAME["count"].max()) + 1),
        ("truncated_gaussian", 1, 2),
    ]
    machine = join_layers(TABLE.layers, [Bernoulli(3), Bernoulli(2)])
    assert machine.visible_width == TABLE.width == TABLE.encode(FRAME).shape[1]
    assert machine.graph.edges == (*((l, 6) for l in range(6)), (6, 7))
    assert TABLE.names == tuple(FRAME) and list(TABLE.decode(TABLE.encode(FRAME))) == list(FRAME)
    array = np.column_stack([FRAME["member"].astype(float), FRAME["income"], FRAME["flag"].astype(float)])
    numbers = Table.fit(array)
    assert [column.name for column in numbers.columns] == [0, 2, 1]
    np.testing.assert_allclose(numbers.decode(numbers.encode(array)), array, atol=1e-6)
    machine.check_rows(torch.from_numpy(TABLE.encode(FRAME)), "X")
    machine.check_rows(torch.from_numpy(TABLE.encode(holed())), "X", missing=True)
    order = TABLE.encode(FRAME[["city", "grade"] + [n for n in FRAME if n not in ("city", "grade")]])
    np.testing.assert_array_equal(order, TABLE.encode(FRAME))  # by name, whatever the order


@pytest.mark.parametrize("kind", Layer.registry)
def test_every_kind_is_a_kind_of_layer_and_goes_there_and_back(kind):
    values = pandas.DataFrame({"x": [0.0, 1.0, 1.0, 0.0], "y": [1, 0, 0, 1]})
    table = Table.fit(values, kind)
    (layer,) = table.layers
    assert type(layer) is Layer.registry[kind]
    states = torch.from_numpy(table.encode(values))
    layer.check_rows(states, "X")
    pandas.testing.assert_frame_equal(table.decode(states), values)


def test_rows_come_back_with_names_dtypes_and_categories():
    back = TABLE.decode(TABLE.encode(FRAME))
    pandas.testing.assert_frame_equal(back.set_index(FRAME.index), FRAME)
    assert list(back["size"].cat.categories) == ["S", "M", "L"] and back["size"].cat.ordered


def test_missing_cells_are_nan_in_the_whole_of_their_unit():
    frame = holed()
    states = TABLE.encode(frame)
    ends = np.cumsum([column.width for column in TABLE.columns])
    names = [column.name for column in TABLE.columns]
    for name, part in zip(names, np.split(states, ends[:-1], axis=1), strict=True):
        np.testing.assert_array_equal(np.isnan(part).all(1), frame[name].isna())
        np.testing.assert_array_equal(np.isnan(part).any(1), frame[name].isna())
    back = TABLE.decode(states)
    np.testing.assert_array_equal(back.isna(), frame.isna())
    assert back["size"].dtype == FRAME["size"].dtype and back["whole"].dtype == "Int64"


@pytest.mark.parametrize("missing", MISSING, ids=repr)
def test_what_is_missing(missing):
    cells = pandas.DataFrame(
        {"t": pandas.Series(["a", missing, "b", "c"], dtype=object), "x": [1.0, 2, 3, 4.5]}
    )
    table = Table.fit(cells)
    if isinstance(missing, str):  # a label in a frame, which has other ways to leave a cell out
        assert table.columns[0].values == (missing, "a", "b", "c")
    else:
        assert table.columns[0].values == ("a", "b", "c")
        assert np.isnan(table.encode(cells)[1, :3]).all()
    array = np.array([["a", 1.5], [missing, 2.5], ["b", missing], ["c", 3.5]], dtype=object)
    table = Table.fit(array)
    np.testing.assert_array_equal(np.isnan(table.encode(array))[:, [0, 3]], [[0, 0], [1, 0], [0, 1], [0, 0]])
    assert table.decode(table.encode(array))[1, 0] is None


def test_fill_leaves_what_was_given_and_the_index():
    frame = holed()
    full = build(TABLE.filled(frame, TABLE.encode(FRAME)))
    assert full.index.equals(FRAME.index) and not full.isna().any().any()
    for name in FRAME:
        assert full[name].astype(FRAME[name].dtype).tolist() == pytest.approx(FRAME[name].tolist()), name


def test_means_become_whole_cells():
    """Never a half-set one-hot group, half a count or a fraction of a year."""
    means = TABLE.encode(FRAME)[:2]
    means[0] = means.mean(0) + np.linspace(-0.1, 0.1, means.shape[1])
    back = TABLE.decode(means)
    assert (back.dtypes == FRAME.dtypes).all()
    for column in TABLE.columns:
        if column.values:
            assert back[column.name][0] in column.values


def test_polars_there_and_back():
    polars = pytest.importorskip("polars")
    testing = pytest.importorskip("polars.testing")
    text = ["x", "y", "z"] * 20
    frame = polars.DataFrame(
        {
            "real": RANDOM.normal(size=ROWS),
            "whole": RANDOM.integers(0, 100, ROWS),
            "text": text,
            "flag": RANDOM.random(ROWS) < 0.5,
            "small": polars.Series(RANDOM.normal(size=ROWS), dtype=polars.Float32),
        }
    ).with_columns(
        polars.col("text").cast(polars.Categorical).alias("category"),
        polars.col("text").cast(polars.Enum(["y", "x", "z"])).alias("enum"),
    )
    table = Table.fit(frame)
    enum = next(column for column in table.columns if column.name == "enum")
    assert enum.values == ("y", "x", "z") and enum.declared
    testing.assert_frame_equal(table.decode(table.encode(frame)), frame)
    gaps = frame.with_columns(polars.when(polars.col("whole") > 50).then(polars.col("text")).alias("text"))
    back = table.decode(table.encode(gaps))
    testing.assert_frame_equal(back, gaps)
    testing.assert_frame_equal(build(table.filled(gaps, table.encode(frame))), frame)
    again = encoder_from_dict(json.loads(json.dumps(table.to_dict())))
    testing.assert_frame_equal(again.decode(table.encode(frame)), frame)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_decimals_are_numbers(library):
    cells = [None if i % 5 == 0 else Decimal(i) / 8 for i in range(40)]
    table = Table.fit(pytest.importorskip(library).DataFrame({"price": cells, "n": [1.5, 0.5] * 20}))
    states = table.encode(pandas.DataFrame({"price": [0.125, Decimal("0.25"), None], "n": [0.5, 0.5, 1.5]}))
    assert dict(table.kinds)["price"] == "gaussian"
    assert np.isnan(states[2, 0]) and states[0, 0] < states[1, 0]


# What it refuses
# --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "city",
            "Oslo",
            "column 'city': expected one of 'Bern', 'Rom', 'Ulm' as in fit, received 'Oslo' at row 2",
        ),
        (
            "grade",
            9,
            r"column 'grade': expected one of 1, 2, 3 as in fit, received 9 at row 2",
        ),
        ("age", "old", r"column 'age': expected a number from \d+ to \d+ as in fit, received 'old' at row 2"),
        ("age", np.inf, "column 'age', received infinity at row 2; a missing value is NaN"),
    ],
)
def test_what_a_column_has_no_state_for(name, value, message):
    frame = FRAME.copy()
    frame[name] = frame[name].astype(object)
    frame.loc[frame.index[2], name] = value
    if value != np.inf:
        label = isinstance(value, str) or name == "grade"
        said = pytest.warns(UserWarning, match=f"taken as missing: .* in column '{name}'")
        with said if label else nullcontext():
            lenient = Table.fit(FRAME, KINDS).encode(frame)
        assert np.isnan(lenient[2]).any() == label  # a number has the state of the nearest
        filled = build(Table.fit(FRAME, KINDS).filled(frame, TABLE.encode(FRAME)))
        assert filled[name].iloc[2] == value  # what was given stays
    with pytest.raises(ValueError, match=message):
        TABLE.encode(frame, strict=True)


def test_columns_must_be_those_of_fit():
    with pytest.raises(ValueError, match="as in fit; the frame lacks 'city'"):
        TABLE.encode(FRAME.drop(columns="city"))
    with pytest.raises(ValueError, match="as in fit; the frame has 'more' beside them"):
        TABLE.encode(FRAME.assign(more=1))
    with pytest.raises(ValueError, match="expected 14 columns, received 2"):
        TABLE.encode(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="different names, received 'age' twice"):
        Table.fit(pandas.concat([FRAME[["age"]], FRAME[["age"]]], axis=1))
    with pytest.raises(ValueError, match=r"expected \(rows, \d+\) states"):
        TABLE.decode(np.zeros((3, 2)))


NAMES = [f"person {i}" for i in range(ROWS)]


def test_numbers_that_are_read_as_text_are_not_taken_for_categories_without_a_word() -> None:
    column = [str(k % 15) if k % 15 else "-" for k in range(200)]
    said = r"'x' is learned as labels: 186 of 200 cells are numbers, others are '-'; --read na_values=- takes"
    with pytest.warns(UserWarning, match=said):
        assert Table.fit(pandas.DataFrame({"x": column})).kinds == {"x": "categorical"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Table.fit(pandas.DataFrame({"x": column}), {"x": "categorical"})
        Table.fit(pandas.DataFrame({"x": [str(k % 15) for k in range(200)]}))  # codes


@pytest.mark.parametrize(
    "ends", [("1 - bad", "5 - great"), ("1 (never)", "5 (always)"), ("1=no", "5=yes"), ("1: nie", "5 immer")]
)
def test_ends_of_a_scale_are_answers(ends: tuple[str, str]) -> None:
    """Words at the ends of a scale are not offered as words for missing cells."""
    first, last = ends
    column = np.resize([first, "2", "3", "4", last, "3", "2", "4"], 200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = Table.fit(pandas.DataFrame({"x": column}))
    assert table.kinds == {"x": "categorical"} and {first, last} <= {*table.columns[0].values}


@pytest.mark.parametrize(
    ("columns", "kinds", "error", "message"),
    [
        (
            {"name": NAMES},
            None,
            ValueError,
            r"expected a column to learn from, received 'name' \(60 different texts in 60 rows\); give",
        ),
        (
            {"x": [np.nan] * 3, "y": [1, 2, 3]},
            {"x": "gaussian"},
            ValueError,
            "'x'.*every cell is missing.*drop it",
        ),
        (
            {"when": [pandas.Timestamp("2020-01-01"), pandas.Timestamp("2020-01-01", tz="UTC")]},
            None,
            TypeError,
            "dates or times of one kind in column 'when'",
        ),
        (
            {"x": ["a", "b", "c"]},
            {"x": "gaussian"},
            ValueError,
            "'x' for \"gaussian\": expected numbers.*'a'",
        ),
        ({"x": [1, 2, 3]}, {"z": "gaussian"}, ValueError, "kinds: expected columns among 'x', received 'z'"),
        ({"x": [1.5, 2, 3]}, {"x": "binomial"}, ValueError, "'x' for .*: expected counts.*received 1.5"),
    ],
)
def test_tables_that_are_refused_say_what_to_do(columns, kinds, error, message):
    with pytest.raises(error, match=message):
        Table.fit(pandas.DataFrame(columns), kinds)


@pytest.mark.parametrize(
    ("cells", "kind", "unseen", "message"),
    [
        (
            ["a", "b"],
            {"kind": "categorical", "values": ["c", "b", "a"]},
            "c",
            "values: expected all that are",
        ),
        ([1, 2], {"kind": "binomial", "largest": 9}, 9, "largest: expected at least 2"),
        (
            [1.0, 2.0],
            {"kind": "truncated_gaussian", "low": 0, "high": 4.5},
            4.5,
            "low, high: expected an interval",
        ),
    ],
)
def test_what_is_known_beyond_the_cells(cells, kind, unseen, message):
    table = Table.fit(pandas.DataFrame({"x": cells}), {"x": kind})
    again = encoder_from_dict(json.loads(json.dumps(table.to_dict())))
    assert again.decode(again.encode(pandas.DataFrame({"x": [unseen]})))["x"].tolist() == [unseen]
    narrow = {"values": cells[:1], "largest": 1, "low": 1.5}
    with pytest.raises(ValueError, match=message):
        Table.fit(pandas.DataFrame({"x": cells}), {"x": {k: narrow.get(k, v) for k, v in kind.items()}})
    with pytest.raises(ValueError, match=r"expected options among .*, received most=3"):
        Table.fit(pandas.DataFrame({"x": cells}), {"x": {**kind, "most": 3}})
