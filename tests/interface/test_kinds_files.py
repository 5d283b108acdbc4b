"""Damaged descriptions of columns: of their kinds in a file, and in a machine's metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harmonium.data import encoder_from_dict, read
from harmonium.data.frame import frame_of
from harmonium.tables import Table

from .command_line import CommandLine

TABLE = "x,city\n" + "1.5,Ulm\n2,Rom\n3,Bern\n" * 4


@pytest.mark.parametrize(
    ("name", "kinds", "reason"),
    [
        ("k.toml", "a = " + "[" * 5000, "is no TOML"),
        ("k.toml", 'city = { kind = "categorical", values = ["Ulm", "Rom", {}] }', "values: expected"),
        ("k.toml", 'x = { kind = "truncated_gaussian", low = 1' + "0" * 400 + " }", "low: expected a finite"),
        ("k.toml", 'x = { kind = "categorical", values = [1' + "0" * 400 + "] }", "x"),
        ("k.toml", 'city = { kind = "binomial", largest = 3 }', "expected numbers"),
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
