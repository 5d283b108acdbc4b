"""Honest tables of every kind of file, what tells their columns' kinds, and machines that learned them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import harmonium as hm
from harmonium.cli.commands.train import _begin
from harmonium.cli.settings import TrainSettings
from harmonium.data import DataSet, read, table_files
from harmonium.data.frame import Frame, series_of
from harmonium.tables import Codec, Table, read_kinds
from harmonium.tables.codec import naming

from ._kind import Kind

ROWS = [
    ["2.50", "4", "Ulm", "007", "yes", "0"],
    ["-0.1", "5", "Rom", "12", "no", "1"],
    ["", "4", "Bern", "007", "", "1"],
    ["1e3", "NA", "Rom", "", "yes", "0"],
    ["0.25", "5", "", "12", "no", "2"],
    ["7", "6", "Ulm", "12", "yes", "0"],
]
NAMES = ["x", "count", "city", "code", "member", "label"]
KINDS = {"x": "gaussian", "count": {"kind": "binomial", "largest": 9}, "city": "categorical"}
KINDS |= {"member": {"kind": "categorical", "values": ["no", "yes", "perhaps"]}}
_LIBRARIES = {"polars": ("polars",), "pandas": ("pandas", "pyarrow")}


def table_kinds() -> list[Kind]:
    """All kinds; those of libraries that are not installed are left out."""
    commas, tabs = _text(NAMES, ROWS, ","), _text(NAMES, ROWS, "\t")
    years = _text(["country", "2019", "2020"], [[row[2] or "NA", row[5], row[1]] for row in ROWS], ",")
    texts = [
        commas,
        _text(None, ROWS, ","),
        years,
        _text(["city", "member"], [row[2:5:2] for row in ROWS], ","),
    ]
    found = [
        _kind("table.csv", [{"table.csv": x} for x in texts], share=10),
        _kind("table.tsv", [{"table.tsv": tabs}], share=4),
        _kinds_file("kinds.toml", _TOML, commas),
        _machine_kind(commas),
    ]
    for library, needs in _LIBRARIES.items():
        if all(map(find_spec, needs)):
            for suffix in (".parquet", ".feather"):
                content = in_a_child(partial(_frame, library, suffix))
                name = f"{suffix[1:]} by {library}"
                found.append(_kind(f"x{suffix}", [{f"x{suffix}": content}], name, library, share=8))
    return found


def in_a_child(work: Callable[[], bytes]) -> bytes:
    """What a function returns in a process of its own: libraries with threads would not live on in forks."""
    with tempfile.TemporaryFile() as file:
        process = os.fork()
        if not process:
            try:
                os.write(file.fileno(), work())
            finally:
                os._exit(0)
        os.waitpid(process, 0)
        file.seek(0)
        return file.read()


def by(library: str) -> Any:
    """Has one library read and write frames, as if others were not installed."""
    return patch.object(table_files, "_library", lambda _: library)


def _text(names: list[str] | None, rows: list[list[str]], delimiter: str) -> bytes:
    return "".join(delimiter.join(row) + "\n" for row in [*([names] if names else []), *rows]).encode()


def _frame(library: str, suffix: str) -> bytes:
    columns = [
        series_of("x", [2.5, None, -0.1, 1e3], "float64"),
        series_of("count", [4, 5, None, 6], "int64"),
        series_of("city", ["Ulm", "Rom", None, "Ulm"], "str"),
        series_of("member", [True, None, False, True], "bool"),
        series_of("label", ["a", "b", "a", "b"], "str"),
    ]
    with by(library):
        return table_files.table_bytes(Frame(tuple(columns)), suffix)


_TOML = b"""x = "gaussian"
count = { kind = "binomial", largest = 9 }

[member]
kind = "categorical"
values = ["no", "yes", "perhaps"]
"""


def _kind(
    target: str, variants: list[dict[str, bytes]], name: str = "", library: str | None = None, share: int = 4
) -> Kind:
    def use(path: Path) -> Any:
        if library is None:
            return encoded(path)
        with by(library):
            return encoded(path)

    def command(path: Path) -> list[str]:
        return ["data", str(path)]

    return Kind(name or target, target, variants, use, command, share=share)


def encoded(path: Path, kinds: Any = None) -> Any:
    """The states of a table, and its cells as they come back from them."""
    found: DataSet = read(path, labels_apart=False)
    with naming(found):
        frame = found.frame()
        table = Table.fit(frame, kinds)
        states = table.encode(frame)
        full = table.filled(frame, np.nan_to_num(states))
    return states.tolist(), [cells.values.tolist() for cells in full.columns]


def _kinds_file(target: str, content: bytes, table: bytes) -> Kind:
    def use(path: Path) -> Any:
        return encoded(path.with_name("table.csv"), read_kinds(str(path)))

    def command(path: Path) -> list[str]:
        run = path.with_name("run")
        told = ["--kinds", str(path), "--updates", "1", "--hidden", "2", "--threads", "1", "--overwrite"]
        return ["train", str(path.with_name("table.csv")), str(run), *told]

    return Kind(target, target, [{target: content, "table.csv": table}], use, command, False, share=3)


def _machine_kind(table: bytes) -> Kind:
    """A machine of a table and a label, whose metadata hold both."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "table.csv")
        path.write_bytes(table)
        begun, _ = _begin(TrainSettings(data=str(path), label="label", hidden=["2"]), KINDS)
        begun.machine.save(path.with_name("m.safetensors"))
        content = path.with_name("m.safetensors").read_bytes()

    def command(path: Path) -> list[str]:
        out = path.with_name("full.csv")
        told = ["--sweeps", "1", "--out", str(out), "--overwrite"]
        return ["impute", str(path), str(path.with_name("table.csv")), *told]

    files = {"m.safetensors": content, "table.csv": table}
    return Kind("table machine", "m.safetensors", [files], _states, command, False, sealed=True, share=8)


def _states(path: Path) -> Any:
    coding = Codec.of(hm.load(path))
    rows = coding.observed_rows(coding.read(str(path.with_name("table.csv"))), missing=True, blank=True)
    states = rows.all().nan_to_num(-1.0)
    rows, labels = coding.decode(states)
    assert isinstance(rows, Frame) and labels is not None
    return states.tolist(), [cells.values.tolist() for cells in (*rows.columns, labels)]
