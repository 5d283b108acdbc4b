"""The command line on CSV files with names, text and empty cells."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

import harmonium as hm
from harmonium.data import encoder_from_dict, read

from .command_line import CommandLine

NAMES = ["age", "height", "city", "member"]
CITIES = ["Ulm", "Rom", "Bern"]


def write(path: Path, rows: list[list[object]], names: list[str] = NAMES) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    rows: list[list[object]] = []
    for group in random.integers(0, 3, 60):
        member = "yes" if random.random() < 0.2 + 0.3 * group else "no"
        rows.append(
            [20 * group + random.integers(18, 30), round(170 + random.normal(), 2), CITIES[group], member]
        )
    for row, column in ((0, 0), (1, 2), (2, 3), (3, 1)):
        rows[row][column] = "" if column else "NA"
    return write(tmp_path / "table.csv", rows)


def test_a_table_is_read(table: Path) -> None:
    found = read(table)
    assert found.names == tuple(NAMES) and found.samples.shape == (60, 4)
    assert found.samples[0, 0] is None and found.samples[1, 2] is None
    assert type(found.samples[1, 0]) is int and type(found.samples[0, 1]) is float
    sheet = found.sheet()
    assert [cells.dtype for cells in sheet.columns] == ["int64", "float64", "str", "str"]


def test_trained_on_sampled_and_imputed_with_names_kept(
    cli: CommandLine, table: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    result = cli.train(table, run)
    assert result["layers"] == ["Gaussian(2)", "Categorical(1, 3)", "Bernoulli(1)", "Bernoulli(5)"]
    cli.succeed("sample", run, "--number", 7, "--sweeps", 5, "--out", tmp_path / "rows.csv")
    header, *rows = rows_of(tmp_path / "rows.csv")
    assert header == NAMES and len(rows) == 7
    assert all(
        row[2] in CITIES and row[3] in ("yes", "no") and row[0].lstrip("-").isdecimal() for row in rows
    )
    for value in ("mode", "mean", "draw"):
        out = tmp_path / f"{value}.csv"
        done = cli.succeed("impute", run, table, "--out", out, "--sweeps", 5, "--value", value, "--json").json
        assert done["missing"] == pytest.approx(4 / 240)
        for given, full in zip(rows_of(table), rows_of(out), strict=True):
            assert all(cell in ("", "NA") or cell == other for cell, other in zip(given, full, strict=True))
            assert "" not in full and "NA" not in full
    again = encoder_from_dict(hm.load(run / "machine.safetensors").metadata["encoder"])
    assert again.names == tuple(NAMES)
    sampled = again.decode(np.zeros((2, again.width)))
    assert sampled.shape == (2, 4) and sampled[0, 2] == "Bern"
    cli.succeed("train", table, run, "--resume", *("--hidden", 5, "--updates", 30, "--threads", 1))


def test_values_may_be_hidden(cli: CommandLine, table: Path, tmp_path: Path) -> None:
    cli.train(table, tmp_path / "run")
    out = tmp_path / "full.csv"
    arguments = ("--missing", "random:0.5", "--sweeps", 5, "--json")
    assert cli.succeed("impute", tmp_path / "run", table, "--out", out, *arguments).json["missing"] > 0.4
    assert "" not in [cell for row in rows_of(out) for cell in row]


def test_numbers_keep_their_names_and_fill_holes(cli: CommandLine, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    numbers = [[f"{x:.3f}", f"{x + y:.3f}"] for x, y in random.normal(size=(40, 2))]
    whole = write(tmp_path / "whole.csv", numbers, ["east", "north"])
    run = tmp_path / "run"
    assert cli.train(whole, run)["layers"][0] == "Gaussian(2)"
    cli.succeed("sample", run, "--number", 3, "--sweeps", 5, "--out", tmp_path / "rows.csv")
    assert rows_of(tmp_path / "rows.csv")[0] == ["east", "north"]
    holes = write(tmp_path / "holes.csv", [["", "1.5"], ["0.5", "0.25"]], ["east", "north"])
    cli.succeed("impute", run, holes, "--out", tmp_path / "full.csv", "--sweeps", 5)
    header, first, second = rows_of(tmp_path / "full.csv")
    assert header == ["east", "north"] and second == ["0.5", "0.25"]
    assert float(first[0]) != 0 and first[1] == "1.5"


def test_a_table_is_described(cli: CommandLine, table: Path, tmp_path: Path) -> None:
    found = cli.succeed("data", table, "--json").json
    assert found["rows"] == 60 and found["table"][2] == {
        "column": "city",
        "kind": "categorical",
        "missing": 1,
    }
    assert "table" in str(found) and "city" in cli.succeed("data", table).stdout
    assert "expected numbers in column 'city'" in cli.refuse("data", table, "--out", tmp_path / "x.npy")


def test_kinds_of_numbers_beside_each_other(cli: CommandLine, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = [[f"{x:.3f}", int(x > 0)] for x in random.normal(size=40)]
    data = write(tmp_path / "x.csv", rows, ["x", "sign"])
    assert cli.train(data, tmp_path / "run")["layers"][:2] == ["Gaussian(1)", "Bernoulli(1)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "age,city\n31,Ulm\nx31,Rom\n",
            "line 3, column 1: expected a number, received 'x31'; a missing cell is",
        ),
        ("age;city\n31;Ulm\n", "cells are separated by commas"),
        ("age,city\n31\n", "line 2: expected 2 columns, received 1"),
        ("age,age\n31,a\n32,b\n33,a\n", "expected different names"),
        ("age,when\n" + "".join(f"{i},2020-01-{i:02}\n" for i in range(10, 32)), "'when'.*text that repeats"),
    ],
)
def test_files_that_are_refused(cli: CommandLine, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    answer = cli.refuse("train", tmp_path / "x.csv", tmp_path / "run", "--hidden", 3, "--updates", 2)
    assert re.search(message, answer), answer


def test_what_does_not_fit_a_table_is_refused(cli: CommandLine, table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    cli.train(table, run)
    other = write(tmp_path / "other.csv", [[30, 170.5, "Oslo", "yes"]])
    assert "column 'city': expected one of 'Bern', 'Rom', 'Ulm' as in fit, received 'Oslo'" in cli.refuse(
        "impute", run, other, "--out", tmp_path / "x.csv"
    )
    fewer = write(tmp_path / "fewer.csv", [[30, "Ulm"]], ["age", "city"])
    assert "lacks 'height', 'member'" in cli.refuse("impute", run, fewer, "--out", tmp_path / "x.csv")
    assert "a .csv file takes text" in cli.refuse("sample", run, "--sweeps", 2, "--out", tmp_path / "x.npy")
    assert "no missing cell, received one in row 0; harmonium impute" in cli.refuse(
        "sample", run, "--sweeps", 2, "--start", "data", "--out", tmp_path / "x.csv"
    )
    assert "binarise: expected none for a table" in cli.refuse(
        "train", table, tmp_path / "other", "--hidden", 3, "--binarise", "threshold"
    )
