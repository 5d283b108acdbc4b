"""Names of rows, and files as they are published: what is learned of them, and what is left out."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas
import pytest

import harmonium as hm
from harmonium.tables import Table

from .command_line import CommandLine

pytestmark = pytest.mark.usefixtures("short_fits")


def write(path: Path, columns: dict[str, list[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    return path


# Names of rows


def _with(ids: np.ndarray, **columns: np.ndarray) -> pandas.DataFrame:
    return pandas.DataFrame({"id": ids, **columns})


def _kinds(frame: pandas.DataFrame) -> dict[str | int, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Table.fit(frame).kinds


def test_numbers_of_rows_are_left_out_where_they_begin_near_0() -> None:
    """Others may be years or prices, and are learned."""
    random = np.random.default_rng(0)
    data = {"x": random.normal(size=300), "g": random.choice(list("abc"), 300)}
    for ids in (np.arange(300), random.permutation(300) + 1):
        assert _kinds(_with(ids, **data))["id"] == "ignore"
        assert Table.fit(_with(ids, **data), {"id": "gaussian"}).kinds["id"] == "gaussian"
    for ids in (np.arange(300) + 10_001, random.permutation(9 * 10**5)[:300] + 10**5):
        assert _kinds(_with(ids, **data))["id"] == "gaussian"


@pytest.mark.parametrize("seed", range(5))
def test_different_numbers_that_something_depends_on_are_learned(seed: int) -> None:
    random = np.random.default_rng(seed)
    years, noise = np.arange(300) + 1700, random.normal(size=300)
    assert _kinds(_with(years, x=0.02 * years + noise))["id"] == "gaussian"
    assert _kinds(_with(years, x=((years - 1850) / 60) ** 2 + noise))["id"] == "gaussian"
    assert _kinds(_with(years, g=np.where(years > 1800, "new", "old")))["id"] == "gaussian"
    prices = np.unique(random.lognormal(10, 1, 400).astype(int))[:300]  # all different, but not even
    assert _kinds(_with(random.permutation(prices), x=noise))["id"] == "gaussian"


# Files that many begin with


def _titanic(random: np.random.Generator) -> dict[str, list[str]]:
    n = 200
    sex, level = random.choice(["male", "female"], n), random.integers(1, 4, n)
    tickets = [
        f"{random.integers(1000, 400_000)}" if random.random() < 0.74 else f"PC {random.integers(10**4)}"
        for _ in range(n)
    ]
    age = [f"{x:g}" if random.random() < 0.8 else "" for x in np.round(random.normal(30, 12, n).clip(1))]
    return {
        "PassengerId": [str(i + 1) for i in range(n)],
        "Survived": [str(int(random.random() < 0.2 + 0.5 * (x == "female"))) for x in sex],
        "Pclass": [str(x) for x in level],
        "Name": [f'Person {i}, Mr. "B" of {i}' for i in range(n)],
        "Sex": [*sex],
        "Age": age,
        "Ticket": tickets,
        "Fare": [f"{x:.4f}" for x in random.lognormal(4 - level / 2, 0.5)],
        "Cabin": [f"C{i}" if i % 5 == 0 else "" for i in range(n)],
        "Embarked": [*random.choice(["S", "C", "Q", ""], n, p=[0.7, 0.19, 0.1, 0.01])],
    }


def _movies(random: np.random.Generator) -> dict[str, list[str]]:
    n = 150
    days = [datetime(1980, 1, 1) + timedelta(days=int(x)) for x in random.integers(0, 12_000, n)]
    gross = [f"{x}" for x in random.integers(10**5, 10**8, n)]
    gross[3] = gross[70] = "Unknown"
    return {
        "Title": ["300", "1776", "8 1/2", *(f"Film {i}" for i in range(n - 3))],
        "US Gross": gross,
        "Released": [f"{x:%b} {x.day} {x.year}" for x in days],
        "MPAA": [*random.choice(["R", "PG-13", "PG", ""], n)],
        "Minutes": [str(x) if x < 150 else "" for x in random.integers(70, 180, n)],
        "Distributor": [*random.choice([f"House {i}" for i in range(60)], n)],
    }


@pytest.mark.mostly_nightly(2)
@pytest.mark.parametrize(
    ("make", "left_out", "questions"),
    [
        (_titanic, {"PassengerId", "Name", "Ticket", "Cabin"}, 0),
        (_movies, {"Title", "US Gross"}, 1),
    ],
)
def test_files_as_they_are_published_are_learned(
    cli: CommandLine,
    tmp_path: Path,
    make: Callable[[np.random.Generator], dict[str, list[str]]],
    left_out: set[str],
    questions: int,
) -> None:
    data, run = write(tmp_path / "x.csv", make(np.random.default_rng(2))), tmp_path / "run"
    answer = cli.succeed("train", data, run, "--hidden", 2)
    columns = hm.load(run).metadata["encoder"]["all_columns"]
    assert {column["name"] for column in columns if column["kind"] == "ignore"} == left_out
    assert answer.stderr.count("cells are numbers, others are") == questions
    assert answer.stderr.count("nothing is learned from columns") == bool(left_out)
    cli.succeed("impute", run, data, "--out", tmp_path / "full.csv")
    given, full = (hm.data.read(path).frame() for path in (data, tmp_path / "full.csv"))
    for cells, filled in zip(given.columns, full.columns, strict=True):
        assert cells.name == filled.name and cells.dtype in (filled.dtype, "Int64")
        seen = ~cells.missing
        assert cells.values[seen].tolist() == filled.values[seen].tolist()
