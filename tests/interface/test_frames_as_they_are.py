"""Frames with columns that only their own library knows, and sheets: learned, and back as they were."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas
import pytest

import harmonium as hm
from harmonium.data import read
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
    "nullable numbers": lambda: pandas.Series(RANDOM.normal(size=ROWS), dtype="Float64"),
    "nullable booleans": lambda: pandas.Series([True, False, False] * (ROWS // 3), dtype="boolean"),
}
IN_WORDS: dict[str, tuple[Callable[[], object], str]] = {  # what comes back otherwise, and as what
    "intervals": (lambda: pandas.cut(pandas.Series(RANDOM.uniform(0, 100, ROWS)), 4), "category"),
    "quarters": (lambda: TIMES.dt.to_period("Q"), "datetime64[us]"),
    "decimals": (
        lambda: pandas.Series([Decimal(f"{i % 50}.10") for i in range(ROWS)], dtype=object),
        "float64",
    ),
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
