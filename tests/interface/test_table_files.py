"""The table of reading: every awkward file is read rightly, asked about, or refused with what to type."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import warnings
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import harmonium as hm
from harmonium.data import DataSet, as_types, parse_arguments, question_of, read
from harmonium.data.readings import readings_of

from .command_line import CommandLine

pytestmark = pytest.mark.usefixtures("short_fits")


def load(path: Path, content: str | bytes, **options: Any) -> tuple[DataSet, str]:
    """A file of some content as it is read, and all that is said: warnings, notes and questions."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = read(path, labels_apart=False, **options)
    questions = [
        f"{cells.name}: {question_of(cells)}" for cells in found.frame().columns if question_of(cells)
    ]
    return found, "; ".join([*(str(each.message) for each in caught), *found.notes, *questions])


def columns(found: DataSet) -> dict[Any, list[Any]]:
    """The cells of each column, None where one is missing."""
    return {
        cells.name: [
            None if hole else x for x, hole in zip(cells.values.tolist(), cells.missing, strict=True)
        ]
        for cells in found.frame().columns
    }


def day(text: str) -> datetime:
    return datetime.fromisoformat(text)


def beside_numbers(cells: list[str], separator: str = ",") -> str:
    """A column a of cells, and a column b of 1, 2, ... beside it."""
    file = io.StringIO()
    csv.writer(file, delimiter=separator).writerows(
        [["a", "b"], *((cell, i) for i, cell in enumerate(cells, 1))]
    )
    return file.getvalue()


# What separates cells, a column of them, and what they are read as; what is said besides
COLUMN: dict[str, tuple[str, list[str], list[Any], str]] = {
    "missing words": (",", ["NA", "", "nan", "null", "u"], [None, None, None, None, "u"], ""),
    "the label None": (",", ["None", "u"], ["None", "u"], ""),
    "decimal commas": (";", ["1,5", "12,25"], [1.5, 12.25], "numbers: a (, before decimals)"),
    "two commas": (",", ["1,234,567", "12,345"], [1234567, 12345], "numbers: a"),
    "dollars": (",", ["$1,000.50", "-$3"], [1000.5, -3], "numbers: a"),
    "euros": (";", ["1.234,50 €", "7,25 €"], [1234.5, 7.25], "numbers: a"),
    "hard spaces": (";", ["1\u00a0234,5", "12\u202f345,75 €"], [1234.5, 12345.75], "numbers: a (€)"),
    "apostrophes": (",", ["1'234", "12’500", "500"], [1234, 12500, 500], "numbers: a (. before decimals)"),
    "per cent": (",", ["12.5%", "0%"], [12.5, 0], "numbers: a (%)"),
    "zero beside per cent": (",", ["5%", "0"], [5, 0], "numbers: a (%)"),
    "shares beside per cent": (",", ["5%", "0.7"], ["5%", "0.7"], ""),
    "ISO dates": (",", ["2024-03-01", ""], [day("2024-03-01"), None], "ISO"),
    "moments": (
        ",", ["2024-03-01 10:30", "2024-03-02"], [day("2024-03-01 10:30"), day("2024-03-02")],
        "times: a (ISO)",
    ),
    "a zone": (
        ",", ["2024-03-01T10:30:00Z", "2024-03-01T10:30:00+02:00"],
        [day(f"2024-03-01 {hour}:30").replace(tzinfo=UTC) for hour in ("10", "08")], "times: a (ISO)",
    ),
    "some zones": (",", MIXED := ["2024-03-01T10:30:00Z", "2024-03-02T11:30:00"], [*MIXED], ""),
    "a day above 12": (
        ",", ["01/02/2024", "14/02/2024"], [day("2024-02-01"), day("2024-02-14")],
        "times: a (%d/%m/%Y)",
    ),
    "days with points": (",", ["01.02.2024"], [day("2024-02-01")], "%d.%m.%Y"),
    "names of months": (",", ["Jan 5 2024", "Feb 14 2024"], [day("2024-01-05"), day("2024-02-14")], "%b"),
    "years of two digits": (",", ["05/01/68", "13/02/75"], ["05/01/68", "13/02/75"], ""),
    "times of day": (",", ["9:05 PM", "12:30 AM"], [time(21, 5), time(0, 30)], "%I"),
    "codes with a zero": (",", ["00123", "123"], ["00123", "123"], "text: a"),
    "codes with points": (",", ["007.1", "250.00"], ["007.1", "250.00"], "text: a"),
    "long names": (",", ["9007199254740993", "1"], ["9007199254740993", "1"], "text: a (numbers from 2^53"),
    "long names with marks": (",", ["9,007,199,254,740,993"], ["9,007,199,254,740,993"], ""),
    "digits of Python alone": (",", ["1_0", "１"], ["1_0", "１"], ""),
    "booleans": (",", ["True", "False", ""], [True, False, None], ""),
    "points that may part thousands": (
        ";", ["1.234", "900"], [1.234, 900],
        "does a comma or a point come before decimals in '1.234'? It is read as a point; --read decimal=.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMN)
def test_a_column_of_one_reading_is_read(tmp_path: Path, name: str) -> None:
    separator, cells, expected, said = COLUMN[name]
    found, told = load(tmp_path / "x.csv", beside_numbers(cells, separator))
    assert columns(found) == {"a": expected, "b": [*range(1, 1 + len(cells))]}
    assert said in told and bool(said) == bool(told), told


U_AND_V = {"a": [1, 2], "b": ["u", "v"]}
# A name of the file, its content, and its columns; what is said besides
READ: dict[str, tuple[str, str | bytes, dict[Any, list[Any]], str]] = {
    "blanks in quotation marks": ("x.csv", 'a,b\n" ",1\nu,2\n', {"a": [None, "u"], "b": [1, 2]}, ""),
    "spaces around": ("x.csv", 'n,  y\n"B, U",  12\nC ,  8\n', {"n": ["B, U", "C"], "y": [12, 8]}, ""),
    "semicolons": ("x.csv", "a;b\n1;u\n2;v\n", U_AND_V, ""),
    "tabs by another name": ("x.csv", "a\tb\n1\tu\n2\tv\n", U_AND_V, ""),
    "bars": ("x.dat", "a|b\n1|u\n2|v\n", U_AND_V, ""),
    "thousands beside decimal commas": (
        "x.csv", "a;b\n1.234;2,5\n12.345;3,75\n-2000;2\n",
        {"a": [1234, 12345, -2000], "b": [2.5, 3.75, 2]},
        "numbers: b (, before decimals), a (, before decimals)",
    ),
    "three decimals behind a zero": (
        "x.csv", "a;b\n1,5;0.234\n2,75;0.345\n", {"a": [1.5, 2.75], "b": [0.234, 0.345]},
        "numbers: a (, before decimals)",
    ),
    "day and month by another column": (
        "x.csv", "a,b\n01/02/2024,1/14/2024\n", {"a": [day("2024-01-02")], "b": [day("2024-01-14")]},
        "times: a (%m/%d/%Y), b (%m/%d/%Y)",
    ),
    "a mark of UTF-8": ("x.csv", "\ufeffa,b\n1,é\n", {"a": [1], "b": ["é"]}, ""),
    "a mark of UTF-16": ("x.csv", "a,b\n1,é\n".encode("utf-16"), {"a": [1], "b": ["é"]}, ""),
    "gzip": ("x.csv.gz", gzip.compress(b"a,b\n1,u\n2,v\n"), U_AND_V, ""),
    "bzip2": ("x.tsv.bz2", bz2.compress(b"a\tb\n1\tu\n2\tv\n"), U_AND_V, ""),
    "xz": ("x.csv.xz", lzma.compress(b"a,b\n1,u\n2,v\n"), U_AND_V, ""),
    "empty lines": ("x.csv", "\n\na,b\n\n1,u\n   \n2,v\n\n", U_AND_V, ""),
    "a row of missing cells": ("x.csv", "a,b\n1,u\n,\n2,v\n", {"a": [1, None, 2], "b": ["u", None, "v"]}, ""),
    "ends of other systems": ("x.csv", "a,b\r\n1,u\r\n2,v\r\n", U_AND_V, ""),
    "a cell of two lines": ("x.csv", 'a,b\n1,"u\nv"\n', {"a": [1], "b": ["u\nv"]}, ""),
    "a column without a name": ("x.csv", ",a\n0,1\n1,2\n", {"": [0, 1], "a": [1, 2]}, ""),
    "data from the first line": (
        "x.data", "5.1,setosa\n4.9,setosa\n",
        {"column 1": [5.1, 4.9], "column 2": ["setosa", "setosa"]}, "",
    ),
    "numbers from the first line": ("x.csv", "3,5\n4,4\n1,7\n", {0: [3, 4, 1], 1: [5, 4, 7]}, ""),
    "labels from the first line": (
        "x.csv", "yes,no\nno,no\nyes,yes\n",
        {"column 1": ["yes", "no", "yes"], "column 2": ["no", "no", "yes"]},
        "the first line, yes, no, is read as data; --read header=0 if it is not",
    ),
    "dates from the first line": (
        "x.csv", "2024-01-01,u\n2024-01-02,v\n",
        {"column 1": [day("2024-01-01"), day("2024-01-02")], "column 2": ["u", "v"]},
        "the first line, 2024-01-01, u, is read as data",
    ),
    "years among the names": (
        "x.csv", "country,2019\nFrance,0\nSpain,1\n", {"country": ["France", "Spain"], "2019": [0, 1]},
        "the first line, country, 2019, is read as the names of columns; --read header=none if it is not",
    ),
    "names that are numbers": (
        "x.csv", "0,1,2\n5,6,7\n", {0: [0, 5], 1: [1, 6], 2: [2, 7]},
        "the first line, 0, 1, 2, is read as data; --read header=0",
    ),
    "commas in names, semicolons between cells": (
        "x.csv", '"a, kg";b, m\n1,5;2\n2,25;3\n', {"a, kg": [1.5, 2.25], "b, m": [2, 3]},
        "numbers: a, kg (, before decimals)",
    ),
    "as many commas as semicolons": (
        "x.csv", "a,b;c\n1,2;3\n4,5;6\n", {"a": [1, 4], "b;c": ["2;3", "5;6"]},
        "cells are separated by ','; --read 'sep=;' if ';' does that",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_has_one_reading_is_read(tmp_path: Path, name: str) -> None:
    file, content, expected, said = READ[name]
    found, told = load(tmp_path / file, content)
    assert columns(found) == expected
    assert said in told and bool(said) == bool(told), told


COMMA_OR_POINT = "a: does a comma or a point come before decimals in '1,234'? --read decimal=. or"
COUNT = [*range(20)]
# What separates cells, a column of them, what is asked, the argument that answers, and what it makes of them
ASKED: dict[str, tuple[str, list[str], str, dict[str, Any], list[Any]]] = {
    "day or month": (
        ",", ["01/02/2024", "03/04/2024"],
        "does the day or the month come first in '01/02/2024'? --read dayfirst=true or --read dayfirst=false",
        {"dayfirst": False}, [day("2024-01-02"), day("2024-03-04")],
    ),
    "thousands": (";", ["1,234", "12,345"], COMMA_OR_POINT, {"decimal": "."}, [1234, 12345]),
    "decimals": (";", ["1,234", "12,345"], COMMA_OR_POINT, {"decimal": ","}, [1.234, 12.345]),
    "euros": (",", ["€1.234", "€2.500"], "decimals in '€1.234'", {"decimal": ","}, [1234, 2500]),
    "a word among numbers": (
        ",", [*map(str, COUNT), "?"],
        "20 of 21 cells are numbers, others are '?'; --read 'na_values=?' takes '?' as missing",
        {"na_values": "?"}, [*COUNT, None],
    ),
    "two words among numbers": (
        ",", [*map(str, COUNT), "5 ft 2", "186cm"],
        "20 of 22 cells are numbers, others are '5 ft 2', '186cm'; --read 'na_values=5 ft 2' --read",
        {"na_values": ["5 ft 2", "186cm"]}, [*COUNT, None, None],
    ),
    "a word among dollars": (
        ",", [*(f"${x}.50" for x in range(9)), "free"],
        "9 of 10 cells are numbers, others are 'free'; --read na_values=free",
        {"na_values": "free"}, [*(x + 0.5 for x in range(9)), None],
    ),
    "a currency by its letters": (
        ",", ["USD 5", "USD 1,007.5"],
        "a: numbers beside 'USD' as text, such as 'USD 5'; --read 'dtype={\"a\": \"float\"}'",
        {"dtype": {"a": "float"}}, [5, 1007.5],
    ),
    "units": (";", ["5,5 kg", "12 kg"], "numbers beside 'kg' as text", {"dtype": {"a": "float"}}, [5.5, 12]),
    "brackets": (",", ["(1.50)", "2.25"], "beside '()' as text", {"dtype": {"a": "float"}}, [-1.5, 2.25]),
    "spaces between thousands": (
        ";", ["1 234,5", "12 345,25"],
        "numbers with spaces as text, such as '1 234,5'; --read 'thousands= ' --read decimal=, reads them",
        {"thousands": " ", "decimal": ","}, [1234.5, 12345.25],
    ),
    "spaces between thousands alone": (
        ",", ["1 234", "900"],
        "numbers with spaces as text, such as '1 234'; --read 'thousands= ' reads them as numbers",
        {"thousands": " "}, [1234, 900],
    ),
    "the last day for none": (
        ",", ["31.12.9999", "01.03.2024", "31.12.9999"],
        "a: 1 of 3 cells are times, others are '31.12.9999'; --read na_values=31.12.9999 takes",
        {"na_values": "31.12.9999"}, [None, day("2024-03-01"), None],
    ),
    "days without marks": (
        ",", ["20240301", "20231231", ""],
        "a: numbers that are days, such as 20240301; --read 'parse_dates=[\"a\"]' reads dates",
        {"parse_dates": ["a"]}, [day("2024-03-01"), day("2023-12-31"), None],
    ),
    "nines for missing": (
        ",", [*map(str, COUNT), "-99", "-99.0"],
        "a: -99 in 2 cells, far from the others, 0 to 19; --read na_values=-99",
        {"na_values": -99}, [*COUNT, None, None],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_what_has_two_readings_is_asked_about(tmp_path: Path, name: str) -> None:
    separator, cells, question, answer, expected = ASKED[name]
    content = beside_numbers(cells, separator)
    found, told = load(tmp_path / "x.csv", content)
    assert question in told and (found.frame().columns[0].form is None)
    found, told = load(tmp_path / "x.csv", content, **answer)
    assert columns(found)["a"] == expected and "--read" not in told


# What a file holds, the reason why it is refused, and the argument that answers
REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "comments": ("# by a logger\n# v2\nt,v\n0,1\n1,2\n", "--read comment='#'", {"comment": "#"}),
    "spaces": ("age weight\n31 60\n", r"--read sep='\s+'", {"sep": r"\s+"}),
    "another encoding": ("a,b\n1,K\xf6ln\n", "--read encoding=latin-1", {"encoding": "latin-1"}),
    "a long line": (
        "a,b\n1,2\n1,2,3\n", "line 3: expected 2 columns, received 3", {"on_bad_lines": "skip"},
    ),
    "a title": ("My table\na,b\n1,2\n", "--read skiprows=1 passes", {"skiprows": 1}),
    "a comment between rows": ("a,b\n1,2\n# x\n3,4\n", "--read comment='#'", {"comment": "#"}),
    "names of rows": (
        "a,b\nr,1,2\n",
        "line 2: expected 2 columns, received 3; if each line begins",
        {"names": ["", "a", "b"]},
    ),
    "a short line": (
        "1,2\n3\n",
        "line 2: expected 2 columns, received 1; --read on_bad_lines=warn fills up",
        {"on_bad_lines": "warn", "header": None},
    ),
    "a last line of another kind": (
        "a,b\n1,2\n3,4\nSource: us\n", "skipfooter=1 drops the last", {"skipfooter": 1},
    ),
    "an open quotation": (
        'a,b\n1,"2\n', "unexpected end of data; a quotation mark within", {"quoting": 3},
    ),
    "text behind a quotation": ('1,2\n1,"2"3\n', "line 2: ',' expected after '\"'", {"quoting": 3}),
    "two columns of a name": (
        "a, a\nx,1\ny,0\n", "different names, received 'a' twice", {"names": ["a", "b"]},
    ),
    "one column of text": (
        "city\nUlm\nRom\n", "--read dtype=string one column of text", {"dtype": "string"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_what_to_type(tmp_path: Path, name: str) -> None:
    content, reason, answer = REFUSED[name]
    with pytest.raises(ValueError, match=r"x\.csv") as caught:
        load(tmp_path / "x.csv", content.encode("latin-1"))
    assert reason in str(caught.value)
    assert len(load(tmp_path / "x.csv", content.encode("latin-1"), **answer)[0].samples)


def test_a_table_in_txt_is_no_alignment(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"x\.csv\.txt.*a table's name ends in \.csv or \.tsv"):
        load(tmp_path / "x.csv.txt", "a,b\n1,2\n")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("a,b\n", "expected at least one row below the names"),
        ("\n\n", "expected at least one row, received none"),
        ("a,b\n1,2\n3,1\0\n", "line 3: expected text, received the character NUL"),
        ("a,b\n1e999,2\n3,1\n", "expected finite numbers in column 'a', received infinity at row 0"),
    ],
)
def test_files_that_hold_no_table(tmp_path: Path, content: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=r"x\.csv: cannot be read as a table") as caught:
        load(tmp_path / "x.csv", content)
    assert reason in str(caught.value)


def write(path: Path, cells: dict[str, list[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(cells), *zip(*cells.values(), strict=True)])
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# Layouts of times, beside Python's own
# --------------------------------------------------------------------------------

RANDOM = np.random.default_rng(1)
MOMENTS = [
    datetime(1970, 1, 1) + timedelta(seconds=int(s)) for s in np.random.default_rng(0).integers(0, 2**31, 60)
]


@pytest.mark.parametrize(
    "layout",
    [
        *("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y-%m", "%d/%m/%y", "%d-%b-%Y"),
        *("%b %d %Y", "%B %d, %Y", "%H:%M", "%H:%M:%S", "%m/%d/%Y %H:%M", "%m/%d/%Y %I:%M:%S %p"),
    ],
)
def test_dates_and_times_are_read_as_python_does(layout: str) -> None:
    cells = [moment.strftime(layout) for moment in MOMENTS]
    (found,) = readings_of(cells)
    expected = [datetime.strptime(cell, layout) for cell in cells]
    whole = "%d" in layout or "%m" in layout
    assert found.how == ("ISO" if layout == "%H:%M:%S" else layout) and [*found.values] == (
        expected if whole else [x.time() for x in expected]
    )


@pytest.mark.parametrize(
    "cells",
    [
        *(["£3", "$5"], ["1,00", "1,000.5"], ["1.5", "2"], ["24:00", "23:59"], ["30/02/2020", "01/02/2020"]),
        *(["A1", "B2"], ["3,5", "-,5"], ["--1"], ["2024-13-01"], ["007", "1,5"], ["+-$3"], ["(-3)"]),
        *(["B 12", "C 7"], ["5 kg", "7 cm"], ["9999-12-31"], ["1\u00a023", "4"], ["5'11", "6'02"]),
    ],
)
def test_text_without_a_reading_stays_text(cells: list[str]) -> None:
    assert readings_of(cells) == []


def test_text_of_a_frame_is_asked_about_and_read_when_told() -> None:
    frame = pandas.DataFrame(
        {"cost": ["$1,200.50", None, "$5"], "on": ["1/2/2024", "3/4/2024", None], "n": [1, 2, 3]}
    )
    typed = as_types(frame, dayfirst=True)
    assert typed["cost"].tolist()[::2] == [1200.5, 5] and typed["on"][0] == pandas.Timestamp("2024-02-01")
    assert as_types(frame)["on"].equals(frame["on"]) and typed["n"].equals(frame["n"])
    asked = [question_of(cells) for cells in hm.data.frame_of(frame).columns]
    assert asked[0] == "numbers as text, such as '$1,200.50'; hm.data.as_types(frame) reads them"
    assert (
        str(asked[1]).startswith("does the day or the month come first in '1/2/2024'?") and asked[2] is None
    )


def test_far_numbers_are_asked_about_where_they_are_codes() -> None:
    def asks(*far: float) -> bool:
        frame = hm.data.frame_of(pandas.DataFrame({"x": np.append(np.arange(60) % 21, far).astype(float)}))
        return question_of(frame.columns[0]) is not None

    assert asks(99, 99) and asks(-99, -99) and asks(-9, -9, 999999, 999999) == asks(999999, 999999)
    assert not asks(99) and not asks(98, 98) and not asks(39, 39) and not asks(-9, -9) and not asks()


# Arguments, and files of other kinds
# --------------------------------------------------------------------------------


def test_arguments_as_they_are_typed() -> None:
    given = ["sep=;", "header=none", "skiprows=2", "dayfirst=true", "na_values=?", "na_values=-99"]
    expected = {"sep": ";", "header": None, "skiprows": 2, "dayfirst": True, "na_values": ["?", -99]}
    assert parse_arguments(given) == expected
    assert parse_arguments(['dtype={"zip": "string"}']) == {"dtype": {"zip": "string"}}
    with pytest.raises(ValueError, match="read: expected an argument of pandas such as decimal=, rec"):
        parse_arguments(["sep"])


@pytest.mark.parametrize(
    ("content", "argument", "cells"),
    [
        ("a,b\n1,x\n2,y\n3,z\n", {"skiprows": [1]}, [2, 3]),
        ("a,b\n1,x\n2,y\n", {"nrows": 1}, [1]),
        ("a;b\n1,5;x\n2,5;y\n4;Total\n", {"skipfooter": 1}, [1.5, 2.5]),
        ("r,a\nx,1\ny,2\n", {"index_col": "r"}, [1, 2]),
        ("a,b\n1,x\n2,y\n", {"usecols": ["b"], "dtype": "string"}, ["x", "y"]),
        ("a,b\n00123,x\n2,y\n", {"dtype": {"a": "Int64"}}, [123, 2]),
        ("a,b\n?,x\n2,?\n", {"na_values": {"a": "?"}}, [None, 2]),
    ],
)
def test_arguments_of_pandas_are_handed_through(
    tmp_path: Path, content: str, argument: dict[str, Any], cells: list[Any]
) -> None:
    found, _ = load(tmp_path / "x.csv", content, **argument)
    assert next(iter(columns(found).values())) == cells


@pytest.mark.parametrize(
    ("content", "argument"),
    [
        ("# logger\n1,2\n3,4\n", {"comment": "#"}),
        ("5 6\n1 2\n", {"sep": r"\s+"}),
        ("x\nyes,no\nno,no\nyes,yes\n", {"skiprows": 1}),
    ],
)
def test_a_first_line_of_data_behind_an_argument_is_questioned(
    tmp_path: Path, content: str, argument: dict[str, Any]
) -> None:
    _, told = load(tmp_path / "x.csv", content, **argument)
    assert "is read as the names of columns; --read header=none" in told
    found, said = load(tmp_path / "x.csv", content, **argument, header=None)
    assert len(found.samples) == content.count("\n") - ("sep" not in argument) and not said


@pytest.mark.parametrize("header", [0, None])
def test_lines_are_counted_where_the_first_line_is_known(tmp_path: Path, header: int | None) -> None:
    with pytest.raises(ValueError, match="line 3: expected 3 columns, received 2"):
        load(tmp_path / "x.csv", "1,2,3\n4,5,6\n7,8\n", header=header)


def test_a_cell_more_than_names_is_no_name_of_a_row_in_silence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected 2 cells in each line.*--read index_col=0"):
        load(tmp_path / "x.csv", "# x\na,b\nr,1,2\ns,1,2\n", comment="#")


@pytest.mark.parametrize("first", ["sep=;", "# a logger; 2024", "2024;;2025", "km;kg", "A table;"])
def test_a_second_line_of_names_is_questioned(tmp_path: Path, first: str) -> None:
    rest = "a;b" + ";c" * (first.count(";") - 1) + "\n" + ("1;2" + ";3" * (first.count(";") - 1) + "\n") * 3
    assert "cells are numbers, others are 'a'" in load(tmp_path / "x.csv", f"{first}\n{rest}")[1]
    found, told = load(tmp_path / "x.csv", f"{first}\n{rest}", header=1)
    assert columns(found)["a"] == [1, 1, 1] and not told


def test_what_a_file_tells_is_kept_for_the_next(tmp_path: Path) -> None:
    for content, told in (
        ("a;b\n1,5;1\n2;2\n", {"decimal": ","}),
        ("a;b\n1,5;1.5\n2;2.5\n", {}),
        ("a;b\n1,5;1.5\n2;1e3\n", {}),
        ('a,b\n"1,234,567",14/02/2024\n2,1/2/2024\n', {"decimal": ".", "dayfirst": True}),
        ("a,b\n2024-01-01,x\n", {}),
    ):
        assert load(tmp_path / "x.csv", content)[0].read == told


@pytest.mark.parametrize(
    ("content", "cells"),
    [
        ("a;b\n1,234;u\n", [1.234]),
        ("a;b\n1.234;u\n", [1234]),
        ('a,b\n"1,234",u\n', [1.234]),
        ("a,b\n1.234,u\n", [1.234]),  # as tables are written here
    ],
)
def test_decimal_commas_of_an_earlier_file_stand_where_cells_have_place(
    tmp_path: Path, content: str, cells: list[float]
) -> None:
    earlier = load(tmp_path / "x.csv", "a;b\n1,234;u\n", decimal=",")[0].read
    assert columns(load(tmp_path / "y.csv", content, like=earlier)[0])["a"] == cells
    told = load(tmp_path / "y.csv", "a,b\n1.234,u\n", like=earlier, decimal=",")[0]
    assert columns(told)["a"] == [1234]


def test_a_table_without_names_is_written_with_those_that_it_is_read_with(tmp_path: Path) -> None:
    for content in ("5.1,u\n4.9,v\n", "column 1,column 2\n5.1,u\n4.9,v\n"):
        found = load(tmp_path / "x.csv", content, like={"header": None})[0]
        assert columns(found) == {"column 1": [5.1, 4.9], "column 2": ["u", "v"]}


def test_an_argument_that_pandas_has_not(tmp_path: Path, cli: CommandLine) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    assert "unexpected keyword argument 'decimals'" in cli.refuse(
        "data", tmp_path / "x.csv", "--read", "decimals=,"
    )


def test_a_sheet_of_several(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    with pandas.ExcelWriter(tmp_path / "x.xlsx") as book:
        for name, low in (("one", 0), ("two", 5)):
            frame = pandas.DataFrame(
                {"n": [low, low + 1], "on": pandas.to_datetime(["2024-03-01", "2024-03-02"])}
            )
            frame.to_excel(book, sheet_name=name, index=False, startrow=1, startcol=1)
    found = read(tmp_path / "x.xlsx")
    assert columns(found) == {"n": [0, 1], "on": [day("2024-03-01"), day("2024-03-02")]}
    assert found.notes[0] == "read is the sheet 'one'; --read sheet_name=NAME reads 'two'"
    assert columns(read(tmp_path / "x.xlsx", sheet_name="two"))["n"] == [5, 6]
    with pytest.raises(
        ValueError, match="sheet_name: expected the name or the number of one sheet, received"
    ):
        read(tmp_path / "x.xlsx", sheet_name=None)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".feather"])
def test_columns_are_written_in_their_own_types(cli: CommandLine, tmp_path: Path, suffix: str) -> None:
    content = "n,x,city,on,at,flag\n" + "".join(
        f"{i % 7},{i / 4},{'UR'[i % 2]},2024-03-{1 + i % 28:02d},{i % 24:02d}:30,{i % 3 == 0}\n"
        for i in range(60)
    )
    (tmp_path / "x.csv").write_text(content + ",,,,,\n")
    cli.succeed("data", tmp_path / "x.csv", "--out", tmp_path / f"y{suffix}")
    first, second = columns(read(tmp_path / "x.csv")), columns(read(tmp_path / f"y{suffix}"))
    assert first == second and isinstance(first["on"][0], datetime) and first["at"][0] == time(0, 30)


# Published tables that are installed
# --------------------------------------------------------------------------------


PUBLIC: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    "sklearn/datasets/data/breast_cancer.csv": (
        "line 2: .*--read skiprows=1",
        {"skiprows": 1, "header": None},
        (569, 31),
    ),
    "sklearn/datasets/data/iris.csv": ("--read header=none", {"skiprows": 1, "header": None}, (150, 5)),
    "sklearn/datasets/data/diabetes_data_raw.csv.gz": (
        r"--read sep",
        {"sep": r"\s+", "header": None},
        (442, 10),
    ),
    "sklearn/datasets/data/digits.csv.gz": ("", {}, (1797, 65)),
    "matplotlib/mpl-data/sample_data/msft.csv": (r"read as times: Date \(%d-%b-%y\)", {}, (65, 7)),
    "matplotlib/mpl-data/sample_data/Stocks.csv": ("--read comment='#'", {"comment": "#"}, (524, 11)),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_published_tables_that_are_installed(name: str) -> None:
    said, answer, shape = PUBLIC[name]
    path = Path(pytest.importorskip(name.partition("/")[0]).__file__).parent / name.partition("/")[2]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            told = "; ".join(read(path).notes)
        except ValueError as error:
            told = str(error)
    assert (
        re.search(said, "; ".join([told, *(str(each.message) for each in caught)]))
        if said
        else not (told or caught)
    )
    assert read(path, **answer).samples.shape == shape


# Machines that have learned a table read the next one like it
# --------------------------------------------------------------------------------

WRITTEN = {
    "cost": [f"${x:,.2f}" for x in RANDOM.lognormal(6, 1, 90)],
    "share": [f"{x:.1f}%" for x in RANDOM.uniform(0, 30, 90)],
    "people": [f"{x:,}" for x in RANDOM.integers(100, 10**6, 90)],
    "at": [f"{x // 60:02d}:{x % 60:02d}" for x in RANDOM.integers(0, 1440, 90)],
    "on": [f"{m}/{d}/2024" for m, d in RANDOM.integers([1, 1], [13, 29], (90, 2))],
}


def test_a_file_with_written_numbers_is_learned_filled_in_and_drawn(cli: CommandLine, tmp_path: Path) -> None:
    cells = {name: list(column) for name, column in WRITTEN.items()}
    cells["group"] = list("abc" * 30)
    for i, name in enumerate(cells):
        cells[name][7 * i + 3] = "" if i % 2 else "NA"
    data, run = write(tmp_path / "x.csv", cells), tmp_path / "run"
    answer = cli.succeed("train", data, run, "--hidden", 3, "--json")
    assert answer.json["layers"][0] == "Gaussian(5)" and "warning" not in answer.stderr
    assert "read as numbers: cost ($), share (%), people" in answer.stderr
    cli.succeed("impute", run, data, "--out", tmp_path / "full.csv")
    cli.succeed("sample", run, "--rows", 20, "--out", tmp_path / "drawn.csv")
    given, full, drawn = (
        columns(read(path)) for path in (data, tmp_path / "full.csv", tmp_path / "drawn.csv")
    )
    for name, column in given.items():
        pairs = zip(column, full[name], strict=True)
        assert all(new is not None and (old is None or new == old) for old, new in pairs)
        assert {type(x) for x in drawn[name]} == {type(x) for x in full[name]}
    few = {name: column[:2] for name, column in cells.items()} | {"people": ["500", "700"]}
    cli.succeed("evaluate", run, write(tmp_path / "few.csv", few))  # plain numbers where commas were
    given_cells = ("--given", "cost=1200", "--given", "at=09:30")
    cli.succeed("sample", run, *given_cells, "--rows", 2, "--out", tmp_path / "given.csv")
    assert {(row["cost"], row["at"]) for row in rows_of(tmp_path / "given.csv")} == {("1200.0", "09:30:00")}


def test_the_next_file_is_read_as_the_first(cli: CommandLine, tmp_path: Path) -> None:
    """Its days alone leave open what the days of the training have told."""
    days = [f"{a:02d}/{b:02d}/2020" for a, b in RANDOM.integers(1, 13, (60, 2))]
    numbers = [f"{x:.3f}" for x in RANDOM.normal(size=60)]
    data = write(tmp_path / "x.csv", {"day": days, "x": numbers})
    answer = cli.succeed("train", data, tmp_path / "a", "--hidden", 2)
    assert (
        answer.stderr.count("warning: ") == 1
        and "--read dayfirst=true or --read dayfirst=false" in answer.stderr
    )
    later = write(tmp_path / "later.csv", {"day": ["01/02/2020", ""], "x": ["", "0.5"]})
    for told, first, month in ((("--read", "dayfirst=true"), days, 2), ((), [*days[1:], "04/30/2020"], 1)):
        run = tmp_path / str(month)
        data = write(tmp_path / "x.csv", {"day": first, "x": numbers})
        done = cli.succeed("train", data, run, "--hidden", 2, *told, "--json")
        assert done.json["layers"][0] == "Gaussian(2)" and "warning" not in done.stderr
        assert hm.load(run).metadata["data"]["read"] == {"dayfirst": month == 2}
        again = cli.succeed("train", "--config", run / "run.toml", tmp_path / f"{month}_again", "--json")
        assert again.json["layers"] == done.json["layers"]
        cli.succeed("impute", run, later, "--out", tmp_path / "full.csv", "--overwrite")
        assert columns(read(tmp_path / "full.csv"))["day"][0] == datetime(2020, month, 3 - month)


def test_words_for_missing_cells(cli: CommandLine, tmp_path: Path) -> None:
    ages = [str(x) for x in RANDOM.integers(20, 70, 60)]
    ages[4], ages[9] = "?", "?"
    data, run = write(tmp_path / "x.csv", {"age": ages, "city": ["Ulm", "Rom", "-"] * 20}), tmp_path / "run"
    answer = cli.succeed("train", data, tmp_path / "none", "--hidden", 2)
    assert (
        "58 of 60 cells are numbers, others are '?'; --read 'na_values=?' takes '?' as missing"
        in answer.stderr
    )
    told = ("--read", "na_values=?", "--read", "na_values=-")
    done = cli.succeed("train", data, run, "--hidden", 2, *told, "--json")
    assert done.json["layers"][:2] == ["Gaussian(1)", "Bernoulli(1)"] and "warning" not in done.stderr
    cli.succeed("impute", run, data, "--out", tmp_path / "full.csv")  # the words of training
    full = rows_of(tmp_path / "full.csv")
    assert {row["city"] for row in full} == {"Ulm", "Rom"} and all(row["age"].isdecimal() for row in full)
    listed = cli.succeed("data", data, *told, "--json").json["table"]
    assert [(each["kind"], each["missing"]) for each in listed] == [("gaussian", 2), ("bernoulli", 20)]


def test_text_in_a_column_of_numbers_is_a_cell_without_a_state(cli: CommandLine, tmp_path: Path) -> None:
    x, n = [f"{x:.2f}" for x in RANDOM.normal(50, 5, 60)], ["0", "1", "2"] * 20
    data, run = write(tmp_path / "x.csv", {"x": x, "n": n}), tmp_path / "run"
    cli.succeed("train", data, run, "--hidden", 2)
    later = write(tmp_path / "later.csv", {"x": ["51.5", "tall", "1050.0"], "n": ["two", "1", "2"]})
    told = cli.succeed("impute", run, later, "--out", tmp_path / "y.csv").stderr
    assert "taken as missing: 'tall' in column 'x'" in told
    whole = write(tmp_path / "whole.csv", {"x": ["51.5", "1,050.0"], "n": ["2", "1"]})
    plain = write(tmp_path / "plain.csv", {"x": ["51.5", "1050"], "n": ["2", "1"]})
    found = [cli.succeed("evaluate", run, path, "--json").json["results"][0] for path in (whole, plain)]
    assert found[0]["log_likelihood"] == pytest.approx(found[1]["log_likelihood"])


def test_whole_numbers_of_arrays_are_not_rounded(cli: CommandLine, tmp_path: Path) -> None:
    X = np.arange(40).reshape(20, 2) * 3
    np.save(tmp_path / "x.npy", X)
    cli.train(tmp_path / "x.npy", tmp_path / "run", "--visible", "gaussian")
    X[3, 1] = 2**53 + 1
    np.save(tmp_path / "x.npy", X)
    refused = cli.refuse("impute", tmp_path / "run", tmp_path / "x.npy", "--out", tmp_path / "y.npy")
    assert "expected whole numbers below 2^53 in column 1, received 9007199254740993" in refused


# Rows without any cell


def test_rows_without_any_cell_are_not_scored_nor_learned_from(cli: CommandLine, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    text = "x,city\n" + "".join(f"{random.normal():.2f},{c}\n" for c in ["Ulm", "Rom", "Bern"] * 20)
    whole, blank, run = tmp_path / "whole.csv", tmp_path / "blank.csv", tmp_path / "run"
    whole.write_text(text)
    blank.write_text(text + ",\n" * 60)
    cli.train(whole, run)
    said = (
        "blank.csv: expected at least one value in every row, all of row 60 is missing (NaN); drop such rows"
    )
    assert said in cli.refuse("evaluate", run, blank)
    for place, more in (("other", ("--hidden", 3)), ("another", ("--from", run))):
        answer = cli.succeed("train", blank, tmp_path / place, "--updates", 5, *more)
        assert "blank.csv: nothing is learned from 60 of 120 rows, the first of them row 60" in answer.stderr
    assert said in cli.refuse("train", whole, tmp_path / "other", "--validation", blank, "--overwrite")
    done = cli.succeed("impute", run, blank, "--out", tmp_path / "full.csv", "--sweeps", 2, "--json").json
    assert done["rows"] == 120 and "" not in {
        x for row in rows_of(tmp_path / "full.csv") for x in row.values()
    }


def test_labels_beside_sequences(cli: CommandLine, tmp_path: Path) -> None:
    data, run, out = tmp_path / "x.csv", tmp_path / "run", tmp_path / "y.csv"
    data.write_text("name;sequence;label\n" + "a;ACGU;x\nb;UGCA;y\nc;ACGA;x\n" * 8)
    cli.train(data, run, "--label", "label", "--objective", "joint")
    cli.succeed("sample", run, "--rows", 5, "--sweeps", 2, "--out", out)
    assert out.read_text().splitlines()[0] == "name,sequence,label"
    cli.succeed("data", data, "--out", tmp_path / "z.csv")
    assert (tmp_path / "z.csv").read_text() == data.read_text().replace(";", ",")


@pytest.mark.parametrize("city", ['" Oslo"', '"Oslo "', "\u00a0Oslo", "Oslo\u2009", " Oslo", '" \u00a0Oslo"'])
def test_blanks_at_the_ends_of_a_label_are_dropped(tmp_path: Path, city: str) -> None:
    (tmp_path / "x.csv").write_text(f"city,n\n{city},1\nOslo,2\n", encoding="utf-8")
    assert read(tmp_path / "x.csv").samples[:, 0].tolist() == ["Oslo", "Oslo"]


def test_words_in_columns_that_are_to_be_numbers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,1\nx,2\n")
    with pytest.raises(ValueError, match=r"'x'.*column 'a'; --read na_values=WORD takes a word as missing"):
        read(tmp_path / "x.csv", dtype={"a": "float"})


def test_names_of_lines_may_have_none_above_them(tmp_path: Path) -> None:
    """As R's ``write.table`` writes them."""
    (tmp_path / "x.csv").write_text("a,b\nr1,1,2\nr2,3,4\n")
    read = hm.data.read(tmp_path / "x.csv", index_col=0)
    assert read.names == ("a", "b") and read.samples.tolist() == [[1, 2], [3, 4]]
