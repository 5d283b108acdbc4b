"""The table of reading: every awkward file is read rightly, asked about, or refused with what to type."""

from __future__ import annotations

import bz2
import csv
import gzip
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


# A name of the file, its content, and its columns; what is said besides
READ: dict[str, tuple[str, str | bytes, dict[Any, list[Any]], str]] = {
    "numbers and text": ("x.csv", "a,b\n1,u\n2.5,v\n", {"a": [1, 2.5], "b": ["u", "v"]}, ""),
    "missing words": (
        "x.csv",
        "a,b\n1,NA\n,u\nnan,null\n",
        {"a": [1, None, None], "b": [None, "u", None]},
        "",
    ),
    "blanks in quotation marks": (
        "x.csv",
        'a,b\n" ",1\nu,2\n"",3\n',
        {"a": [None, "u", None], "b": [1, 2, 3]},
        "",
    ),
    "the label None": ("x.csv", "a,b\n1,None\n2,u\n", {"a": [1, 2], "b": ["None", "u"]}, ""),
    "spaces around": ("x.csv", 'n,  y\n"B, U",  12\nC ,  8\n', {"n": ["B, U", "C"], "y": [12, 8]}, ""),
    "semicolons": ("x.csv", "a;b\n1;u\n2;v\n", {"a": [1, 2], "b": ["u", "v"]}, ""),
    "tabs by another name": ("x.csv", "a\tb\n1\tu\n2\tv\n", {"a": [1, 2], "b": ["u", "v"]}, ""),
    "bars": ("x.dat", "a|b\n1|u\n2|v\n", {"a": [1, 2], "b": ["u", "v"]}, ""),
    "decimal commas": (
        "x.csv",
        "a;b\n1,5;u\n12,25;v\n",
        {"a": [1.5, 12.25], "b": ["u", "v"]},
        "numbers: a (, before decimals)",
    ),
    "thousands beside decimal commas": (
        "x.csv",
        "a;b\n1.234;2,5\n12.345;3,75\n0;1\n-2000;2\n",
        {"a": [1234, 12345, 0, -2000], "b": [2.5, 3.75, 1, 2]},
        "numbers: b (, before decimals), a (, before decimals)",
    ),
    "thousands by two commas": (
        "x.csv",
        'a,b\n"1,234,567",1\n"12,345",2\n',
        {"a": [1234567, 12345], "b": [1, 2]},
        "numbers: a",
    ),
    "dollars": ("x.csv", 'a,b\n"$1,000.50",1\n-$3,2\n', {"a": [1000.5, -3], "b": [1, 2]}, "numbers: a"),
    "euros": ("x.csv", "a;b\n1.234,50 €;1\n7,25 €;2\n", {"a": [1234.5, 7.25], "b": [1, 2]}, "numbers: a"),
    "hard spaces between thousands": (
        "x.csv",
        "a;b\n1\u00a0234,5;1\n12\u202f345,75 €;2\n",
        {"a": [1234.5, 12345.75], "b": [1, 2]},
        "numbers: a (€)",
    ),
    "apostrophes between thousands": (
        "x.csv",
        "a,b\n1'234,1\n12’500,2\n500,3\n",
        {"a": [1234, 12500, 500], "b": [1, 2, 3]},
        "numbers: a (. before decimals)",
    ),
    "per cent": ("x.csv", "a,b\n12.5%,1\n0%,2\n", {"a": [12.5, 0], "b": [1, 2]}, "numbers: a (%)"),
    "ISO dates": ("x.csv", "a,b\n2024-03-01,1\n,2\n", {"a": [day("2024-03-01"), None], "b": [1, 2]}, "ISO"),
    "ISO dates and times": (
        "x.csv",
        "a,b\n2024-03-01 10:30,1\n2024-03-02,2\n",
        {"a": [day("2024-03-01 10:30"), day("2024-03-02")], "b": [1, 2]},
        "times: a (ISO)",
    ),
    "a zone": (
        "x.csv",
        "a,b\n2024-03-01T10:30:00Z,1\n2024-03-01T10:30:00+02:00,2\n",
        {
            "a": [day("2024-03-01 10:30").replace(tzinfo=UTC), day("2024-03-01 08:30").replace(tzinfo=UTC)],
            "b": [1, 2],
        },
        "times: a (ISO)",
    ),
    "a day above 12": (
        "x.csv",
        "a,b\n01/02/2024,1\n14/02/2024,2\n",
        {"a": [day("2024-02-01"), day("2024-02-14")], "b": [1, 2]},
        "times: a (%d/%m/%Y)",
    ),
    "day and month by another column": (
        "x.csv",
        "a,b\n01/02/2024,1/14/2024\n02/02/2024,1/2/2024\n",
        {"a": [day("2024-01-02"), day("2024-02-02")], "b": [day("2024-01-14"), day("2024-01-02")]},
        "times: a (%m/%d/%Y), b (%m/%d/%Y)",
    ),
    "days with points": ("x.csv", "a,b\n01.02.2024,1\n", {"a": [day("2024-02-01")], "b": [1]}, "%d.%m.%Y"),
    "months by name": (
        "x.csv",
        "a,b\nJan 5 2024,1\nFeb 14 2024,2\n",
        {"a": [day("2024-01-05"), day("2024-02-14")], "b": [1, 2]},
        "%b",
    ),
    "times of day": (
        "x.csv",
        "a,b\n9:05 PM,1\n12:30 AM,2\n",
        {"a": [time(21, 5), time(0, 30)], "b": [1, 2]},
        "%I",
    ),
    "codes with a zero": (
        "x.csv",
        "zip,x\n00123,1\n123,2\n",
        {"zip": ["00123", "123"], "x": [1, 2]},
        "text: zip",
    ),
    "codes with points": (
        "x.csv",
        "icd,x\n007.1,1\n250.00,2\n",
        {"icd": ["007.1", "250.00"], "x": [1, 2]},
        "text: icd",
    ),
    "names longer than float64": (
        "x.csv",
        "id,x\n9007199254740993,1\n1,2\n",
        {"id": ["9007199254740993", "1"], "x": [1, 2]},
        "text: id (numbers from 2^53",
    ),
    "digits of Python alone": ("x.csv", "a,b\n1_0,１\nx,2\n", {"a": ["1_0", "x"], "b": ["１", "2"]}, ""),
    "a mark of UTF-8": ("x.csv", "\ufeffa,b\n1,é\n", {"a": [1], "b": ["é"]}, ""),
    "a mark of UTF-16": ("x.csv", "a,b\n1,é\n".encode("utf-16"), {"a": [1], "b": ["é"]}, ""),
    "gzip": ("x.csv.gz", gzip.compress(b"a,b\n1,u\n"), {"a": [1], "b": ["u"]}, ""),
    "bzip2": ("x.tsv.bz2", bz2.compress(b"a\tb\n1\tu\n"), {"a": [1], "b": ["u"]}, ""),
    "xz": ("x.csv.xz", lzma.compress(b"a,b\n1,u\n"), {"a": [1], "b": ["u"]}, ""),
    "empty lines": ("x.csv", "\n\na,b\n\n1,u\n   \n2,v\n\n", {"a": [1, 2], "b": ["u", "v"]}, ""),
    "a row of missing cells": ("x.csv", "a,b\n1,u\n,\n2,v\n", {"a": [1, None, 2], "b": ["u", None, "v"]}, ""),
    "ends of other systems": ("x.csv", "a,b\r\n1,u\r\n2,v\r\n", {"a": [1, 2], "b": ["u", "v"]}, ""),
    "a cell of two lines": ("x.csv", 'a,b\n1,"u\nv"\n', {"a": [1], "b": ["u\nv"]}, ""),
    "a column without a name": ("x.csv", ",a\n0,1\n1,2\n", {"": [0, 1], "a": [1, 2]}, ""),
    "booleans": ("x.csv", "a,b\nTrue,1\nFalse,2\n,3\n", {"a": [True, False, None], "b": [1, 2, 3]}, ""),
    "data from the first line": (
        "x.data",
        "5.1,3,setosa\n4.9,3,setosa\n5,2,virginica\n",
        {"column 1": [5.1, 4.9, 5], "column 2": [3, 3, 2], "column 3": ["setosa", "setosa", "virginica"]},
        "",
    ),
    "numbers from the first line": ("x.csv", "3,5\n4,4\n1,7\n", {0: [3, 4, 1], 1: [5, 4, 7]}, ""),
    "labels from the first line": (
        "x.csv",
        "yes,no\nno,no\nyes,yes\n",
        {"column 1": ["yes", "no", "yes"], "column 2": ["no", "no", "yes"]},
        "the first line, yes, no, is read as data; --read header=0 if it is not",
    ),
    "years among the names": (
        "x.csv",
        "country,2019\nFrance,0\nSpain,1\n",
        {"country": ["France", "Spain"], "2019": [0, 1]},
        "the first line, country, 2019, is read as the names of columns; --read header=none if it is not",
    ),
    "names that are numbers": (
        "x.csv",
        "0,1,2\n5,6,7\n",
        {0: [0, 5], 1: [1, 6], 2: [2, 7]},
        "the first line, 0, 1, 2, is read as data; --read header=0",
    ),
    "commas in names, semicolons between cells": (
        "x.csv",
        '"a, kg";b, m\n1,5;2\n2,25;3\n4;5\n',
        {"a, kg": [1.5, 2.25, 4], "b, m": [2, 3, 5]},
        "numbers: a, kg (, before decimals)",
    ),
    "as many commas as semicolons": (
        "x.csv",
        "a,b;c\n1,2;3\n4,5;6\n",
        {"a": [1, 4], "b;c": ["2;3", "5;6"]},
        "cells are separated by ','; --read 'sep=;' if ';' does that",
    ),
    "dates from the first line": (
        "x.csv",
        "2024-01-01,u\n2024-01-02,v\n",
        {"column 1": [day("2024-01-01"), day("2024-01-02")], "column 2": ["u", "v"]},
        "the first line, 2024-01-01, u, is read as data",
    ),
    "three decimals behind a zero": (
        "x.csv",
        "a;b\n1,5;0.234\n2,75;0.345\n",
        {"a": [1.5, 2.75], "b": [0.234, 0.345]},
        "numbers: a (, before decimals)",
    ),
    "points that may part thousands": (
        "x.csv",
        "a;b\n1.234;1\n900;2\n",
        {"a": [1.234, 900], "b": [1, 2]},
        "does a comma or a point come before decimals in '1.234'? It is read as a point; --read decimal=.",
    ),
    "names of rows with marks between thousands": (
        "x.csv",
        'a,b\n"9,007,199,254,740,993",1\n',
        {"a": ["9,007,199,254,740,993"], "b": [1]},
        "",
    ),
    "shares beside per cent": ("x.csv", "a,b\n5%,1\n0.7,2\n", {"a": ["5%", "0.7"], "b": [1, 2]}, ""),
    "zero beside per cent": ("x.csv", "a,b\n5%,1\n0,2\n", {"a": [5, 0], "b": [1, 2]}, "numbers: a (%)"),
    "years of two digits": (
        "x.csv",
        "a,b\n05/01/68,1\n13/02/75,2\n",
        {"a": ["05/01/68", "13/02/75"], "b": [1, 2]},
        "",
    ),
    "some moments with a zone": (
        "x.csv",
        "a,b\n2024-03-01T10:30:00Z,1\n2024-03-02T11:30:00,2\n",
        {"a": ["2024-03-01T10:30:00Z", "2024-03-02T11:30:00"], "b": [1, 2]},
        "",
    ),
    "years above 0 and 1": (
        "x.csv",
        "2019,2020\n0,1\n1,0\n0,0\n",
        {0: [2019, 0, 1, 0], 1: [2020, 1, 0, 0]},
        "the first line, 2019, 2020, is read as data; --read header=0",
    ),
}


@pytest.mark.parametrize("name", READ)
def test_what_has_one_reading_is_read(tmp_path: Path, name: str) -> None:
    file, content, expected, said = READ[name]
    found, told = load(tmp_path / file, content)
    assert columns(found) == expected
    assert said in told and bool(said) == bool(told), told


# A file, what is asked, the argument that answers, and what it makes of the first column
ASKED: dict[str, tuple[str, str, dict[str, Any], list[Any]]] = {
    "day or month": (
        "a,b\n01/02/2024,1\n03/04/2024,2\n",
        "does the day or the month come first in '01/02/2024'? --read dayfirst=true or --read dayfirst=false",
        {"dayfirst": False},
        [day("2024-01-02"), day("2024-03-04")],
    ),
    "decimals or thousands": (
        "a;b\n1,234;x\n12,345;y\n",
        "a: does a comma or a point come before decimals in '1,234'? --read decimal=. or --read decimal=,",
        {"decimal": "."},
        [1234, 12345],
    ),
    "decimals, not thousands": (
        "a;b\n1,234;x\n12,345;y\n",
        "does a comma or a point come before decimals",
        {"decimal": ","},
        [1.234, 12.345],
    ),
    "euros with one mark": (
        "a,b\n€1.234,1\n€2.500,2\n",
        "come before decimals in '€1.234'",
        {"decimal": ","},
        [1234, 2500],
    ),
    "a word among numbers": (
        "a,b\n" + "".join(f"{x},{x % 3}\n" for x in range(20)) + "?,1\n",
        "20 of 21 cells are numbers, others are '?'; --read 'na_values=?' takes '?' as missing",
        {"na_values": "?"},
        [*range(20), None],
    ),
    "92 % numbers": (
        "a,b\n" + "".join(f"{x},{x % 3}\n" for x in range(23)) + "5 ft 2,1\n186cm,2\n",
        "23 of 25 cells are numbers, others are '5 ft 2', '186cm'; --read 'na_values=5 ft 2' --read",
        {"na_values": ["5 ft 2", "186cm"]},
        [*range(23), None, None],
    ),
    "a word among dollars": (
        "a,b\n" + "".join(f"${x}.50,1\n" for x in range(9)) + "free,2\n",
        "9 of 10 cells are numbers, others are 'free'; --read na_values=free",
        {"na_values": "free"},
        [*(x + 0.5 for x in range(9)), None],
    ),
    "a currency by its letters": (
        'a,b\nUSD 5,1\n"USD 1,007.5",2\n',
        "a: numbers beside 'USD' as text, such as 'USD 5'; --read 'dtype={\"a\": \"float\"}'",
        {"dtype": {"a": "float"}},
        [5, 1007.5],
    ),
    "units": (
        "a;b\n5,5 kg;1\n12 kg;2\n",
        "a: numbers beside 'kg' as text, such as '5,5 kg'; --read 'dtype={\"a\": \"float\"}'",
        {"dtype": {"a": "float"}},
        [5.5, 12],
    ),
    "spaces between thousands": (
        "a;b\n1 234,5;1\n12 345,25;2\n",
        "numbers with spaces as text, such as '1 234,5'; --read 'thousands= ' --read decimal=, reads them",
        {"thousands": " ", "decimal": ","},
        [1234.5, 12345.25],
    ),
    "spaces between thousands alone": (
        "a,b\n1 234,1\n900,2\n",
        "numbers with spaces as text, such as '1 234'; --read 'thousands= ' reads them as numbers",
        {"thousands": " "},
        [1234, 900],
    ),
    "amounts in brackets": (
        "a,b\n(1.50),1\n2.25,2\n",
        "a: numbers beside '()' as text, such as '(1.50)'; --read 'dtype={\"a\": \"float\"}'",
        {"dtype": {"a": "float"}},
        [-1.5, 2.25],
    ),
    "the last day for none": (
        "a,b\n31.12.9999,1\n01.03.2024,2\n31.12.9999,3\n",
        "a: 1 of 3 cells are times, others are '31.12.9999'; --read na_values=31.12.9999 takes",
        {"na_values": "31.12.9999"},
        [None, day("2024-03-01"), None],
    ),
    "days without marks": (
        "when,b\n20240301,1\n20231231,2\n,3\n",
        "when: numbers that are days, such as 20240301; --read 'parse_dates=[\"when\"]' reads dates",
        {"parse_dates": ["when"]},
        [day("2024-03-01"), day("2023-12-31"), None],
    ),
    "nines for missing": (
        "a,b\n" + "".join(f"{x},1\n" for x in range(20)) + "-99,2\n-99.0,3\n",
        "a: -99 in 2 cells, far from the others, 0 to 19; --read na_values=-99",
        {"na_values": -99},
        [*range(20), None, None],
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_has_two_readings_is_asked_about(tmp_path: Path, name: str) -> None:
    content, question, answer, cells = ASKED[name]
    found, told = load(tmp_path / "x.csv", content)
    first = found.frame().columns[0]
    assert question in told and (first.form is None)
    found, told = load(tmp_path / "x.csv", content, **answer)
    assert next(iter(columns(found).values())) == cells and "--read" not in told


REFUSED: dict[str, tuple[str, str | bytes, str, dict[str, Any]]] = {
    "comments": ("x.csv", "# by a logger\n# v2\nt,v\n0,1\n1,2\n", "--read comment='#'", {"comment": "#"}),
    "spaces": ("x.dat", "age weight\n31 60\n", r"--read sep='\s+'", {"sep": r"\s+"}),
    "another encoding": (
        "x.csv",
        "a,b\n1,Köln\n".encode("latin-1"),
        "--read encoding=latin-1",
        {"encoding": "latin-1"},
    ),
    "a long line": (
        "x.csv",
        "a,b\n1,2\n1,2,3\n",
        "line 3: expected 2 columns, received 3",
        {"on_bad_lines": "skip"},
    ),
    "a table in .txt": (
        "x.csv.txt",
        "a,b\n1,2\n",
        "a table's name ends in .csv or .tsv",
        {"alphabet": "12ab,"},
    ),
    "a title": ("x.csv", "My table\na,b\n1,2\n", "--read skiprows=1 passes", {"skiprows": 1}),
    "a comment between rows": ("x.csv", "a,b\n1,2\n# x\n3,4\n", "--read comment='#'", {"comment": "#"}),
    "names of rows behind a comment": (
        "x.csv",
        "# x\na,b\nr,1,2\ns,1,2\n",
        "--read comment='#'",
        {"comment": "#", "index_col": 0},
    ),
    "names of rows": (
        "x.csv",
        "a,b\nr,1,2\n",
        "line 2: expected 2 columns, received 3; if each line begins",
        {"names": ["", "a", "b"]},
    ),
    "a short line": (
        "x.csv",
        "1,2\n3\n",
        "line 2: expected 2 columns, received 1; --read on_bad_lines=warn fills up",
        {"on_bad_lines": "warn", "header": None},
    ),
    "a last line of another kind": (
        "x.csv",
        "a,b\n1,2\n3,4\nSource: us\n",
        "skipfooter=1 drops the last",
        {"skipfooter": 1},
    ),
    "an open quotation": (
        "x.csv",
        'a,b\n1,"2\n',
        "unexpected end of data; a quotation mark within",
        {"quoting": 3},
    ),
    "text behind a quotation": ("x.csv", '1,2\n1,"2"3\n', "line 2: ',' expected after '\"'", {"quoting": 3}),
    "two columns of a name": (
        "x.csv",
        "a, a\nx,1\ny,0\n",
        "different names, received 'a' twice",
        {"names": ["a", "b"]},
    ),
    "one column of text": (
        "x.csv",
        "city\nUlm\nRom\n",
        "--read dtype=string one column of text",
        {"dtype": "string"},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_what_to_type(tmp_path: Path, name: str) -> None:
    file, content, reason, answer = REFUSED[name]
    with pytest.raises(ValueError) as caught:
        load(tmp_path / file, content)
    assert reason in str(caught.value) and file in str(caught.value)
    assert len(load(tmp_path / file, content, **answer)[0].samples)


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
    given = [
        "sep=;",
        "decimal=,",
        "header=none",
        "skiprows=2",
        "dayfirst=true",
        "na_values=?",
        "na_values=-99",
    ]
    expected = {
        "sep": ";",
        "decimal": ",",
        "header": None,
        "skiprows": 2,
        "dayfirst": True,
        "na_values": ["?", -99],
    }
    assert parse_arguments(given) == expected
    assert parse_arguments(['dtype={"zip": "string"}', "comment=#"]) == {
        "dtype": {"zip": "string"},
        "comment": "#",
    }
    with pytest.raises(
        ValueError, match="read: expected an argument of pandas such as decimal=, received 'sep'"
    ):
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
        ("a,b\n1 234,x\n2,y\n", {"thousands": " "}, [1234, 2]),
        ("a,b\n20240301,x\n20240302,y\n", {"parse_dates": ["a"]}, [day("2024-03-01"), day("2024-03-02")]),
        ("a b\n1 x\n2 y\n", {"sep": r"\s+"}, [1, 2]),
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
    assert (
        "is read as the names of columns; --read header=none"
        in load(tmp_path / "x.csv", content, **argument)[1]
    )
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


def test_points_between_thousands_are_kept_for_the_next_file(tmp_path: Path) -> None:
    earlier = load(tmp_path / "x.csv", "a,b\n1.234,u\n", decimal=",")[0].read
    assert columns(load(tmp_path / "y.csv", "a,b\n5.678,u\n", like=earlier)[0])["a"] == [5678]


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
    "sklearn/datasets/data/wine_data.csv": (
        "line 2: .*--read skiprows=1",
        {"skiprows": 1, "header": None},
        (178, 14),
    ),
    "sklearn/datasets/data/linnerud_exercise.csv": (r"--read sep='\\s\+'", {"sep": r"\s+"}, (20, 3)),
    "sklearn/datasets/data/diabetes_data_raw.csv.gz": (
        r"--read sep",
        {"sep": r"\s+", "header": None},
        (442, 10),
    ),
    "sklearn/datasets/data/diabetes_target.csv.gz": ("", {}, (442, 1)),
    "sklearn/datasets/data/digits.csv.gz": ("", {}, (1797, 65)),
    "matplotlib/mpl-data/sample_data/msft.csv": (r"read as times: Date \(%d-%b-%y\)", {}, (65, 7)),
    "matplotlib/mpl-data/sample_data/Stocks.csv": ("--read comment='#'", {"comment": "#"}, (524, 11)),
    "matplotlib/mpl-data/sample_data/data_x_x2_x3.csv": (
        "--read sep",
        {"sep": r"\s+", "header": None},
        (11, 3),
    ),
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
