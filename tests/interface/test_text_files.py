"""Text files: which line holds the names of columns, what is a number, and cells that come back as given."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import harmonium as hm
from harmonium.data import DataSet, read

from .command_line import CommandLine

pytestmark = pytest.mark.usefixtures("short_fits")


def read_text(path: Path, text: str) -> tuple[DataSet, list[str]]:
    """A file of a text, and what its reader warned of."""
    path.write_text(text, encoding="utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = read(path, labels_apart=False)
    return found, [str(each.message) for each in caught]


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


# Which line holds the names of columns


@pytest.mark.parametrize(
    ("text", "names", "said"),
    [
        ("a,b\n1,2\n", ("a", "b"), None),
        ("a,b\n1,x\n", ("a", "b"), None),
        (",a\n0,1\n1,2\n", ("", "a"), None),
        ("country,2019,2020\nFrance,0,1\nSpain,1,0\n", ("country", "2019", "2020"), "with '2019'"),
        ("year,1,2\n2019,0,1\n2020,1,1\n", ("year", "1", "2"), "with '1'"),
        ("label,0,1\n3,0,0\n4,1,0\n", ("label", "0", "1"), "with '0'"),
        ("1,x\n3,4\n", ("1", "x"), "with '1'"),
        ("Ann,1.5\nBo,2.5\n", ("Ann", "1.5"), "with '1.5'"),
    ],
)
def test_a_first_line_of_names(tmp_path: Path, text: str, names: tuple[str, ...], said: str | None) -> None:
    found, warned = read_text(tmp_path / "x.csv", text)
    assert found.names == names and len(found.samples) == text.count("\n") - 1
    expected = [] if said is None else [f"{said}, is read as the names of columns; if it is data, put"]
    assert len(warned) == len(expected) and all(x in y for x, y in zip(expected, warned, strict=True))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5.1,3,setosa\n4.9,3,setosa\n5,2,virginica\n", None),
        ("3,5\n4,4\n1,7\n5,9\n2,1\n", None),
        ("0,1\n1,1\n1,0\n", None),
        ("0.5,2\n1,1\n1,0\n", None),
        (",1\n2,3\n", None),
        ("NA,NA\n2,3\n", None),
        ("yes,no\nno,no\nyes,yes\n", "as 'yes' stands in its column again"),
        ("Ann,0\nBo,1\nCy,0\n", "as '0' stands in its column again"),
        ("2019,2020\n0,1\n1,0\n0,0\n", "the first line, 2019, 2020, is read as data"),
        ("2019,2020\n0,1\n1,\n0,0\n", "the first line, 2019, 2020, is read as data"),
        ("2,1\n0,1\n1,0\n", "the first line, 2, 1, is read as data"),
        ("4,5,6,7\n1,2,3,9\n", "the first line, 4, 5, 6, …, is read as data"),
    ],
)
def test_a_first_line_of_data(tmp_path: Path, text: str, said: str | None) -> None:
    found, warned = read_text(tmp_path / "x.csv", text)
    assert len(found.samples) == text.count("\n")
    assert len(warned) == (said is not None) and all(str(said) in each for each in warned)


def test_a_header_of_years_is_no_row_of_data(cli: CommandLine, tmp_path: Path) -> None:
    lines = [f"{city},{i % 2},{i // 2 % 2}" for i, city in enumerate(["Ulm", "Rom", "Bern"] * 20)]
    data = tmp_path / "x.csv"
    data.write_text("\n".join(["country,2019,2020", *lines]) + "\n")
    answer = cli.succeed("train", data, tmp_path / "run", "--hidden", 3, "--json")
    assert answer.json["layers"][:2] == ["Categorical(1, 3)", "Bernoulli(2)"] and answer.json["rows"] == 60
    assert answer.stderr.count("warning: ") == 1 and "read as the names of columns" in answer.stderr


# What is a number


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("id,x\n9007199254740993,1\n1,2\n", ["9007199254740993", "1"]),
        ("9007199254740993,1\n1,2\n", ["9007199254740993", "1"]),
        ("id,x\n9007199254740993,\n1,2\n", ["9007199254740993", "1"]),
        ("id,x\n-9007199254740993,1\nnan,2\n", ["-9007199254740993", None]),
        ("id,city\n9007199254740992,Ulm\n1,Rom\n", ["9007199254740992", "1"]),
    ],
)
def test_whole_numbers_that_would_be_rounded_are_text(
    tmp_path: Path, text: str, cells: list[str | None]
) -> None:
    found, warned = read_text(tmp_path / "x.csv", text)
    assert found.samples[:, 0].tolist() == cells
    assert len(warned) == 1 and "read as text, as whole numbers from 2^53 on would be rounded" in warned[0]


def test_large_real_numbers_are_read(tmp_path: Path) -> None:
    found, _ = read_text(tmp_path / "x.csv", "a,b\n1e20,9007199254740991\n-1e300,nan\n")
    assert found.samples[:, 0].tolist() == [1e20, -1e300] and found.samples[0, 1] == 2**53 - 1


def test_a_number_with_a_zero_in_front_is_text(tmp_path: Path) -> None:
    found, warned = read_text(tmp_path / "x.csv", "zip,x\n00123,1\n123, 2\n,3\n")
    assert found.samples.tolist() == [["00123", 1], ["123", 2], [None, 3]]
    assert len(warned) == 1 and "column 'zip' is read as text" in warned[0]
    found, warned = read_text(tmp_path / "x.csv", "0.5,0,-0.1,0e1\n0.25,0,-01,0\n")
    assert found.samples.tolist() == [[0.5, 0, -0.1, 0], [0.25, 0, -1, 0]] and not warned


@pytest.mark.parametrize(
    "text", ["zip,x\n00123,1\n1.5,2\n", "zip,x\n-3,1\n00123,2\n", "icd,x\n007.1,1\n250.00,2\n"]
)
def test_a_column_with_text_such_as_00123_is_text(tmp_path: Path, text: str) -> None:
    found, warned = read_text(tmp_path / "x.csv", text)
    assert found.samples[:, 0].tolist() == [line.partition(",")[0] for line in text.split("\n")[1:-1]]
    assert len(warned) == 1 and "is read as text, as numbers with a zero in front" in warned[0]


def test_a_single_column_of_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="column 1: expected a number, received '00123'"):
        read_text(tmp_path / "x.csv", "zip\n00123\n123\n")


def test_codes_are_categories_in_files_without_a_zero_too(cli: CommandLine, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = [[str(random.choice(["00123", "123", "77"])), f"{random.normal():.2f}"] for _ in range(60)]
    table, few, run = tmp_path / "table.csv", tmp_path / "few.csv", tmp_path / "run"
    table.write_text("zip,x\n" + "".join(f"{a},{b}\n" for a, b in rows))
    assert cli.train(table, run)["layers"][:2] == ["Categorical(1, 3)", "Gaussian(1)"]
    for head, names in (("zip,x\n", ["zip", "x"]), ("", ["column 1", "column 2"])):
        few.write_text(head + "123,0.50\n77,1.5\n")
        if not head:
            table.write_text("".join(f"{a},{b}\n" for a, b in rows))
            cli.train(table, run, "--overwrite")
        out = tmp_path / "out.csv"
        cli.succeed("impute", run, few, "--out", out, "--sweeps", 2, "--overwrite")
        assert rows_of(out) == [names, ["123", "0.50"], ["77", "1.5"]]


# Cells come back as they were given


CELLS = [
    ["2.50", "+4", "1e3", " Ulm ", "007"],
    ["0.0", "-0", ".5", "Rom", "12"],
    ["-1.", "5", "1E+01", 'B"e,rn', "007"],
    ["3.1415926535897932384", "4", "-0.10", "Rom ", "12"],
]


@pytest.mark.mostly_nightly(2)
@pytest.mark.parametrize("ends", [".csv", ".tsv"])
@pytest.mark.parametrize("named", [True, False])
def test_impute_gives_every_given_cell_back_as_it_was(
    cli: CommandLine, tmp_path: Path, named: bool, ends: str
) -> None:
    names = ["a", "b", "c", "city", "code"] if named else [f"column {j + 1}" for j in range(5)]
    rows = [list(row) for row in CELLS * 10]
    for i, j in ((0, 0), (1, 1), (5, 2), (9, 3), (12, 4)):
        rows[i][j] = ("", "NA")[i % 2]
    data, run = tmp_path / f"data{ends}", tmp_path / "run"
    with data.open("w", newline="") as file:
        csv.writer(file, delimiter="," if ends == ".csv" else "\t").writerows([names] * named + rows)
    cli.train(data, run, *("--label", names[4]) * (ends == ".tsv"))
    cli.succeed("impute", run, data, "--out", tmp_path / "full.csv", "--sweeps", 3)
    header, *full = rows_of(tmp_path / "full.csv")
    assert header == names and len(full) == len(rows)
    for row, found in zip(rows, full, strict=True):
        for cell, new in zip(row, found, strict=True):
            assert new == cell if cell not in ("", "NA") else new not in ("", "NA")


@pytest.mark.parametrize("text", ["a,a,b\n0,1,1\n1,0,0\n", "a, a\nx,1\ny,0\n", "b,,\n0,1,1\n"])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, text: str) -> None:
    """Else a look-up by name finds the first of them for both, and ``impute`` writes it twice."""
    with pytest.raises(ValueError, match=r"different names, received '.*' twice; rename one"):
        read_text(tmp_path / "rows.csv", text)


@pytest.mark.parametrize("word", ["", "NA", "nan", "NaN", "-nan"])
def test_a_missing_cell_is_no_number_among_text(tmp_path: Path, word: str) -> None:
    found, said = read_text(tmp_path / "a.csv", f"city,n\nUlm,1\n{word},2\nRom,3\n")
    assert found.samples.tolist() == [["Ulm", 1], [None, 2], ["Rom", 3]] and not said
    found, said = read_text(tmp_path / "b.csv", f"m,Ulm\nf,{word}\nm,Rom\n")
    assert found.samples.tolist() == [["m", "Ulm"], ["f", None], ["m", "Rom"]]
    assert len(said) == 1 and "is read as data, as 'm' stands in its column again" in said[0]


def test_numbers_alone_come_back_as_they_were(cli: CommandLine, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    text = "".join(f"{x:.3f},{x + y:.2e}\n" for x, y in random.normal(size=(50, 2)))
    data, out = tmp_path / "x.csv", tmp_path / "full.csv"
    data.write_text(text)
    cli.train(data, tmp_path / "run")
    cli.succeed("impute", tmp_path / "run", data, "--out", out, "--sweeps", 2)
    assert out.read_text() == text
    data.write_text("".join(f"{x},{y}\n" for x, y in random.integers(0, 2, (50, 2))))
    cli.train(data, tmp_path / "run", "--overwrite")
    cli.succeed("impute", tmp_path / "run", data, "--out", out, "--missing", "random:0.5", "--overwrite")
    assert {cell for row in rows_of(out) for cell in row} == {"0", "1"}


def test_conversion_keeps_cells_and_the_place_of_labels(cli: CommandLine, tmp_path: Path) -> None:
    text = "x\tLabel\tcity\n2.50\t007\t Ulm\nNA\t12\tRom\n"
    (tmp_path / "x.tsv").write_text(text)
    cli.succeed("data", tmp_path / "x.tsv", "--out", tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == text.replace("\t", ",")


def test_whole_numbers_of_arrays_are_not_rounded(cli: CommandLine, tmp_path: Path) -> None:
    X = np.arange(40).reshape(20, 2) * 3
    np.save(tmp_path / "x.npy", X)
    cli.train(tmp_path / "x.npy", tmp_path / "run", "--visible", "gaussian")
    X[3, 1] = 2**53 + 1
    np.save(tmp_path / "x.npy", X)
    refused = cli.refuse("impute", tmp_path / "run", tmp_path / "x.npy", "--out", tmp_path / "y.npy")
    assert "expected whole numbers below 2^53 in column 1, received 9007199254740993" in refused


def test_an_estimator_gives_text_back_as_it_was() -> None:
    cells = [[f"{i / 4:.2f}", ("0" if i % 2 else "") + "12", "ab"[i % 2]] for i in range(40)]
    X = np.array(cells)
    X[0, 0] = X[1, 2] = ""
    full = hm.RBM(3, max_updates=5, random_state=0).fit(X).impute(X, sweeps=2)
    assert (full == X)[X != ""].all() and "" not in full


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
    assert done["rows"] == 120 and json.dumps(rows_of(tmp_path / "full.csv")).count('""') == 0


def test_a_row_of_its_label_alone_is_scored(cli: CommandLine, tmp_path: Path) -> None:
    data, run = tmp_path / "x.csv", tmp_path / "run"
    data.write_text("x,y,kind\n" + "0,1,a\n1,0,b\n1,1,a\n" * 10 + ",,b\n")
    cli.train(data, run, "--label", "kind", "--objective", "joint")
    (found,) = cli.succeed("evaluate", run, data, "--json").json["results"]
    assert found["rows"] == 31 and found["log_likelihood"] < 0


# The marks of a file are those of what is written


def table_of(rows: int, separator: str, decimal: str) -> str:
    """A table whose numbers have two decimals, whole numbers and text."""
    random = np.random.default_rng(7)
    lines = [["x", "y", "n", "city"]]
    for x, n in zip(random.normal(size=rows), random.integers(0, 900, rows), strict=True):
        lines.append([f"{x:.2f}", f"{3 * x + random.normal():.2f}", str(n), ["Ulm", "Rom"][int(x > 0)]])
    return "".join(separator.join(line).replace(".", decimal) + "\n" for line in lines)


@pytest.mark.mostly_nightly(2)
@pytest.mark.parametrize(
    ("separator", "decimal"), [(";", ","), ("\t", "."), (";", "."), ("|", ","), (",", ".")]
)
def test_what_is_written_has_the_marks_of_what_was_read(
    cli: CommandLine, tmp_path: Path, separator: str, decimal: str
) -> None:
    """A reader told of these marks alone finds numbers in every column of numbers, and nothing else."""
    pandas = pytest.importorskip("pandas")
    data, run = tmp_path / "x.csv", tmp_path / "run"
    text = table_of(60, separator, decimal)
    lines = text.splitlines()
    lines[3] = separator.join(["", *lines[3].split(separator)[1:]])
    data.write_text("\n".join(lines) + "\n")
    cli.train(data, run)
    commands = {
        "impute": (data,),
        "score": (data, "--why", 2),
        "predict": (data, "--column", "city", "--probabilities"),
        "mean": (data, "--column", "x"),
        "sample": ("--rows", 20),
    }
    for name, more in commands.items():
        out = tmp_path / f"{name}.csv"
        cli.succeed("predict" if name == "mean" else name, run, *more, "--out", out)
        found = pandas.read_csv(out, sep=separator, decimal=decimal)
        texts = {"city"} | {c for c in found if c.startswith(("cell_", "value_", "expected_"))}
        assert all(found[c].dtype.kind in "if" for c in found if c not in texts), (name, found.dtypes)
    full = (tmp_path / "impute.csv").read_text().splitlines()
    assert [a == b for a, b in zip(full, lines, strict=True)] == [i != 3 for i in range(61)]
    assert full[3].endswith(lines[3]) and decimal in full[3].split(separator)[0]
    scores = pandas.read_csv(tmp_path / "score.csv", sep=separator, decimal=decimal, dtype=str)
    given = pandas.read_csv(data, sep=separator, decimal=decimal)
    for row, (column, value) in enumerate(zip(scores["cell_1"], scores["value_1"], strict=True)):
        cell = given[column][row]
        assert value == cell or float(value.replace(decimal, ".")) == cell


def test_the_ending_of_a_file_decides_what_separates_its_cells(cli: CommandLine, tmp_path: Path) -> None:
    whole = table_of(30, ";", ",")
    (tmp_path / "x.csv").write_text(whole)
    cli.succeed("data", tmp_path / "x.csv", "--out", tmp_path / "y.csv")
    assert (tmp_path / "y.csv").read_text() == whole
    cli.succeed("data", tmp_path / "x.csv", "--out", tmp_path / "y.tsv")
    assert (tmp_path / "y.tsv").read_text() == whole.replace(";", "\t")
    cli.succeed("data", tmp_path / "y.tsv", "--out", tmp_path / "z.csv")
    assert (tmp_path / "z.csv").read_text() == whole


@pytest.mark.parametrize(
    ("text", "decimal"),
    [
        ("a;b\n1,5;x\n2,25;y\n", ","),
        ("a;b\n1,5;x\nunknown;y\n", ","),
        ("a;b\n1,500;x\n2,250;y\n", "."),  # thousands
        ("a;b\n1.5;x,5\n2.5;y\n", "."),
        ("a;b\n1.5;1,25\n2.5;2,75\n", "."),
        ("a;b\n$1.500,25;1\n$2,75;2\n", ","),
        ('a,b\n"1,5",2\n"2,75",3\n', ","),
    ],
)
def test_the_decimal_mark_of_a_file(tmp_path: Path, text: str, decimal: str) -> None:
    found, _ = read_text(tmp_path / "x.csv", text)
    assert found.dialect == (text[1], decimal)


def test_labels_beside_sequences_keep_their_marks(cli: CommandLine, tmp_path: Path) -> None:
    data, run, out = tmp_path / "x.csv", tmp_path / "run", tmp_path / "y.csv"
    data.write_text("name;sequence;label\n" + "a;ACGU;x\nb;UGCA;y\nc;ACGA;x\n" * 8)
    cli.train(data, run, "--label", "label", "--objective", "joint")
    cli.succeed("sample", run, "--rows", 5, "--sweeps", 2, "--out", out)
    assert out.read_text().splitlines()[0] == "name;sequence;label"
    cli.succeed("data", data, "--out", tmp_path / "z.csv")
    assert (tmp_path / "z.csv").read_text() == data.read_text()
