"""Intervals of missing cells: of all kinds of columns, by estimators and by the command."""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import harmonium as hm

from .command_line import CommandLine
from .conftest import shorten

torch.set_num_threads(1)
pytestmark = [
    pytest.mark.filterwarnings("ignore:X. nothing is learned"),
    pytest.mark.usefixtures("short_fits"),
]


def table(rows: int = 240) -> pd.DataFrame:
    """A date, a skewed number, a count, a bit of numbers and a label that hang together."""
    random = np.random.default_rng(0)
    z = random.normal(size=rows)
    return pd.DataFrame(
        {
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta((20 * z + 100).round(), unit="D"),
            "income": np.exp(z + 0.3 * random.normal(size=rows)).round(4),
            "visits": random.poisson(np.exp(z / 2)),
            "member": (z + random.normal(size=rows) > 0).astype(int),
            "grade": np.where(z > 0.5, "high", np.where(random.random(rows) < 0.5, "low", "middle")),
        }
    )


def holes(rows: int = 240) -> pd.DataFrame:
    return table(rows).mask(np.random.default_rng(1).random((rows, 5)) < 0.2)


@pytest.fixture(scope="module")
def rbm() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        return hm.RBM(random_state=0).fit(holes())


def test_every_missing_cell_has_an_interval_or_a_set(rbm: Any) -> None:
    lacking = holes()
    cells = rbm.intervals(lacking, 0.8)
    names = list(lacking.columns)
    places = [(int(i), names[j]) for i, j in zip(*np.nonzero(lacking.isna().to_numpy()), strict=True)]
    assert [(cell.row, cell.column) for cell in cells] == places
    full = rbm.impute(lacking)
    for cell in cells:
        if cell.column in ("member", "grade"):
            known = set(table()[cell.column])
            assert (
                cell.value in cell.labels
                and set(cell.labels) <= known
                and np.isnan([cell.low, cell.high]).all()
            )
            assert cell.value == full[cell.column][cell.row]
        else:
            assert cell.labels == () and cell.low <= cell.value <= cell.high
            seen = lacking[cell.column].dropna()
            assert seen.min() <= cell.low and cell.high <= seen.max()
    assert isinstance(next(cell for cell in cells if cell.column == "day").low, datetime)
    assert rbm.intervals(table()) == []
    frame = pd.DataFrame(cells)
    assert list(frame.columns) == ["row", "column", "value", "low", "high", "labels"]


def test_arrays_have_intervals_by_number() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(220, 1)) + 0.5 * random.normal(size=(220, 3))
    lacking = np.where(random.random(x.shape) < 0.1, np.nan, x)
    cells = hm.RBMImputer(random_state=0).fit(lacking).intervals(lacking)
    assert [(cell.row, cell.column) for cell in cells] == [*zip(*np.nonzero(np.isnan(lacking)), strict=True)]
    assert np.mean([cell.low <= x[cell.row, cell.column] <= cell.high for cell in cells]) > 0.75


def test_a_machine_without_held_out_rows_has_none(rbm: Any) -> None:
    few = hm.RBM(random_state=0).fit(holes(190))
    chains = hm.RBM(random_state=0, method="chains", max_updates=3).fit(holes())
    for learner in (few, chains):
        with pytest.raises(ValueError, match=r"interval: expected .*a table of 200 rows"):
            learner.intervals(holes())
    for interval in (0.0, 0.995, -1.0):
        with pytest.raises(ValueError, match="interval: expected"):
            rbm.intervals(holes(), interval)
    with pytest.raises(TypeError, match="interval: expected a number"):
        rbm.intervals(holes(), "wide")


def test_they_go_where_a_machine_learns_on(rbm: Any, tmp_path: Path) -> None:
    labels = pd.DataFrame({"a": [*"xyz"] * 80, "b": [*"uuw"] * 80})
    learner = hm.RBM(random_state=0).fit(labels)
    assert "intervals" in learner.machine_.metadata
    learner.partial_fit(labels)
    assert "intervals" not in learner.machine_.metadata
    machine = hm.RBM(random_state=0).fit(labels).machine_
    rows = hm.tables.Codec.of(machine).rows(labels)
    again = {"rule": hm.rules.cd(1), "updates": 1, "seed": 0, "progress": False}
    (tmp_path / "run.toml").write_text("of another run")
    with pytest.raises((ValueError, FileExistsError)):
        hm.train(machine, rows, **again, run_dir=tmp_path)
    assert "intervals" in machine.metadata  # as nothing was learned
    hm.train(machine, rows, **again)
    assert "intervals" not in machine.metadata


def test_the_command_writes_them_beside_the_table(cli: CommandLine, tmp_path: Path) -> None:
    holes().to_csv(tmp_path / "holes.csv", index=False)
    cli.succeed("train", tmp_path / "holes.csv", tmp_path / "run", "--threads", 1)
    target = ("impute", tmp_path / "run", tmp_path / "holes.csv", "--out", tmp_path / "full.csv")
    told = cli.succeed(*target, "--interval", 0.9, "--json").json
    assert told["intervals"] == str(tmp_path / "full-intervals.csv")
    lines = [*csv.DictReader((tmp_path / "full-intervals.csv").open())]
    assert len(lines) == int(holes().isna().sum().sum())
    for line in lines:
        assert (line["low"] == "") == (line["high"] == "") == (line["labels"] != "")
    (tmp_path / "full.csv").unlink()
    assert "full-intervals.csv" in cli.refuse(*target, "--interval", 0.9)
    assert "interval" in cli.refuse(*target, "--interval", 1.5)
