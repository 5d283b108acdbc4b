"""Frames with columns that only their own library knows, sheets, and damaged descriptions of columns."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import harmonium as hm
from harmonium.data import encoder_from_dict, read
from harmonium.data.frame import frame_of
from harmonium.tables import Table

from .command_line import CommandLine

pytestmark = pytest.mark.usefixtures("short_fits")

ROWS = 120
RANDOM = np.random.default_rng(0)
TIMES = pandas.Series(pandas.to_datetime(RANDOM.integers(10**9, 15 * 10**8, ROWS), unit="s"))
COLUMNS: dict[str, Callable[[], object]] = {
    "empty text": lambda: pandas.Series(["a", "b", ""] * (ROWS // 3)),
    "strings": lambda: pandas.Series(["u", "v", "w"] * (ROWS // 3), dtype="string"),
    "nullable whole numbers": lambda: pandas.Series(RANDOM.integers(0, 90, ROWS), dtype="Int64"),
    "nullable booleans": lambda: pandas.Series([True, False, False] * (ROWS // 3), dtype="boolean"),
}
IN_WORDS: dict[str, tuple[Callable[[], object], str]] = {  # what comes back otherwise, and as what
    "intervals": (lambda: pandas.cut(pandas.Series(RANDOM.uniform(0, 100, ROWS)), 4), "category"),
    "quarters": (lambda: TIMES.dt.to_period("Q"), "datetime64[us]"),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.mostly_nightly(2)
def test_cells_come_back_as_they_were(name: str) -> None:
    column = COLUMNS[name]()
    assert isinstance(column, pandas.Series)
    frame = pandas.DataFrame({"x": RANDOM.normal(size=ROWS), "column": column})
    holes = frame.copy()
    holes["column"] = holes["column"].where(pandas.Series(RANDOM.random(ROWS) > 0.1)).astype(column.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rbm = hm.RBM(2, random_state=0).fit(holes)
    full, given = rbm.impute(holes), holes["column"].notna()
    assert full["column"].dtype == frame["column"].dtype and full["column"].notna().all()
    assert (full["column"][given] == frame["column"][given]).all()
    kinds = set(map(type, frame["column"].tolist()))
    assert set(map(type, full["column"].tolist())) == kinds
    assert set(map(type, rbm.sample(3)["column"].tolist())) <= kinds
    again = hm.tables.Codec.of(rbm.machine_).encoder
    assert isinstance(again, Table) and (again.encode(frame) == rbm.encoder_.encode(frame)).all()


@pytest.mark.parametrize("name", IN_WORDS)
def test_cells_of_pandas_alone_come_back_as_they_are_read(name: str) -> None:
    make, dtype = IN_WORDS[name]
    frame = pandas.DataFrame({"x": RANDOM.normal(size=ROWS), "column": make()})
    rbm = hm.RBM(2, random_state=0).fit(frame)
    assert str(rbm.sample(3)["column"].dtype) == dtype
    assert (rbm.encoder_.encode(frame) == rbm.encoder_.encode(rbm.impute(frame))).all()


@pytest.mark.parametrize("dtype", ["string[pyarrow]", "int64[pyarrow]", "table"])
def test_columns_of_pyarrow(dtype: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    cells = RANDOM.integers(0, 90, ROWS) if dtype.startswith("int") else RANDOM.choice(["u", "v", "w"], ROWS)
    frame = pandas.DataFrame({"x": RANDOM.normal(size=ROWS), "column": cells})
    X = pyarrow.Table.from_pandas(frame) if dtype == "table" else frame.astype({"column": dtype})
    full = hm.RBM(2, random_state=0).fit(X).impute(X)
    assert type(full) is type(X)
    assert full["column"].to_numpy().tolist() == cells.tolist()


@pytest.mark.parametrize("kind", ["Datetime", "Date", "Duration"])
def test_dates_that_python_has_not_are_refused_in_a_line(cli: CommandLine, tmp_path: Path, kind: str) -> None:
    polars = pytest.importorskip("polars")
    largest, dtype = {
        "Datetime": (2**62, polars.Datetime("us")),
        "Date": (2**30, polars.Date),
        "Duration": (2**62, polars.Duration("ms")),
    }[kind]
    whole = polars.Int32 if kind == "Date" else polars.Int64
    frame = polars.DataFrame(
        {"x": [1.5, 2.5, 3.5], "when": polars.Series([1, None, largest], dtype=whole).cast(dtype)}
    )
    for suffix, write in ((".parquet", frame.write_parquet), (".feather", frame.write_ipc)):
        write(tmp_path / f"x{suffix}")
        refused = cli.refuse("data", tmp_path / f"x{suffix}")
        assert "in column 'when', received" in refused and "expected" in refused
    with pytest.raises(ValueError, match="in column 'when'"):
        Table.fit(frame)


@pytest.mark.parametrize("big", [1e300, -1e200])
def test_numbers_without_a_square_are_refused_by_name(big: float) -> None:
    frame = pandas.DataFrame(RANDOM.normal(size=(ROWS, 3)), columns=list("xyz"))
    frame.loc[3, "y"] = big
    with pytest.raises(
        ValueError, match=r"column 'y': expected numbers of at most 1e\+150, received .* at row 3"
    ):
        hm.RBM(2).fit(frame)
    with pytest.raises(ValueError, match="others in column 1"):
        hm.RBM(2).fit(frame.to_numpy())
    hm.RBM(2, visible={"y": "ignore"}).fit(frame)


def test_a_sheet_is_a_table(cli: CommandLine, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["age", "city", "since", "member", "note"])
    for i, when in enumerate(TIMES[:60].dt.floor("D").dt.to_pydatetime()):
        sheet.append([20 + i % 40, ["Ulm", "Rom", None][i % 3], when, i % 2 == 0, None])
    sheet.append([])
    book.save(tmp_path / "x.xlsx")
    found = read(tmp_path / "x.xlsx")
    assert found.names == ("age", "city", "since", "member", "note") and len(found.samples) == 60
    table = Table.fit(found.frame(), {"note": "ignore"})
    assert list(table.kinds.values()) == ["gaussian", "bernoulli", "gaussian", "bernoulli", "ignore"]
    cli.succeed("train", tmp_path / "x.xlsx", tmp_path / "run", "--hidden", 2)
    cli.succeed("impute", tmp_path / "run", tmp_path / "x.xlsx", "--out", tmp_path / "full.csv")
    assert read(tmp_path / "full.csv").frame().columns[1].missing.sum() == 0


def test_a_sheet_needs_openpyxl(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    pytest.importorskip("openpyxl").Workbook().save(tmp_path / "x.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    refused = cli.refuse("data", tmp_path / "x.xlsx", status=1)
    assert "pip install 'harmonium[xlsx]'" in refused
    (tmp_path / "y.xlsx").write_text("a,b\n1,2\n")
    assert "cannot be read as a spreadsheet: File is not a zip file" in cli.refuse(
        "data", tmp_path / "y.xlsx"
    )


TABLE = "x,city\n" + "1.5,Ulm\n2,Rom\n3,Bern\n" * 4


@pytest.mark.parametrize(
    ("name", "kinds", "reason"),
    [
        ("k.toml", "a = " + "[" * 5000, "is no TOML"),
        ("k.toml", 'city = { kind = "categorical", values = ["Ulm", "Rom", {}] }', "values: expected"),
        ("k.toml", 'x = { kind = "truncated_gaussian", low = 1' + "0" * 400 + " }", "low: expected a finite"),
        ("k.toml", "x = 3", "expected a kind for each column"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_damaged_kinds_are_refused(
    cli: CommandLine, tmp_path: Path, name: str, kinds: str, reason: str
) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / name).write_text(kinds)
    run = tmp_path / "run"
    assert reason in cli.refuse("train", tmp_path / "t.csv", run, "--kinds", tmp_path / name)


def test_a_count_has_a_largest_number_that_is_exact() -> None:
    with pytest.raises(ValueError, match=r"largest: expected a whole number below 2\^53, received 1"):
        Table.fit(np.array([[1.0], [2.0]]), {0: {"kind": "binomial", "largest": 10**400}})


@pytest.mark.parametrize(("field", "value"), [("dtype", {}), ("dtype", None), ("name", [1]), ("name", None)])
def test_damaged_columns_of_a_machine_are_refused(field: str, value: Any) -> None:
    description = Table.fit(frame_of(np.array([["a", "1.5"], ["b", "2"]]))).to_dict()
    description["all_columns"][0][field] = value
    with pytest.raises((TypeError, ValueError), match=f"{field}: expected"):
        encoder_from_dict(description)


def test_a_file_on_which_polars_gives_up_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars ends with an exception that is none of Python's ``Exception``."""
    polars = pytest.importorskip("polars")
    pytest.importorskip("narwhals")
    path = tmp_path / "t.feather"
    polars.DataFrame({"x": [1.5, 2.5]}).write_ipc(path)

    def give_up(*_: Any, **__: Any) -> None:
        raise polars.exceptions.PanicException("index out of bounds")

    monkeypatch.setattr(polars, "scan_ipc", give_up)
    with pytest.raises(ValueError, match=r"t\.feather: cannot be read as a table: polars cannot follow"):
        read(path)


def test_text_that_points_outside_of_a_feather_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow itself follows any offset: a damaged one ended the process."""
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    table = pa.table({"word": pa.array(["a", "b"], pa.large_string())})
    with pa.OSFile(str(tmp_path / "x.feather"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    content = (tmp_path / "x.feather").read_bytes()
    before, after = (np.array([0, x, 2 * x], np.int64).tobytes() for x in (1, 1 << 36))
    assert content.count(before) == 1
    (tmp_path / "x.feather").write_bytes(content.replace(before, after))
    with pytest.raises(ValueError, match=r"x\.feather: cannot be read as a table"):
        read(tmp_path / "x.feather")
