"""Output of the commands: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harmonium._html import format_value

if TYPE_CHECKING:  # what a list of commands does not need, torch above all
    from rich.status import Status

    from harmonium.likelihood import LogPartition

_WIDTH_OFF_A_TERMINAL = 160  # characters: results of two data sets side by side


class Listing(list[dict[str, Any]]):
    """Mappings of the same names that ``show`` prints a line each, below their names."""


class Unfinished(Exception):
    """Ends a command that was cut short or came to nothing; its result is shown all the same.

    Args:
        result: What ``show`` prints.
        status: Exit status of the process, not 0.
    """

    def __init__(self, result: Mapping[str, Any], status: int) -> None:
        super().__init__(result, status)
        self.result, self.status = result, status


def note(message: str) -> None:
    """Prints one line on stderr."""
    typer.echo(message, err=True)


def working(message: str) -> Status:
    """Shows a spinner on stderr while a block runs, on a terminal."""
    return Console(stderr=True).status(Text(message))


@contextmanager
def listening() -> Iterator[list[str]]:
    """Shows that ln Z is being found, and fills the list with the RuntimeWarnings given inside."""
    texts: list[str] = []
    with working("finding ln Z"), warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always", RuntimeWarning)
        yield texts
    texts += [str(doubt.message) for doubt in doubts]


def show(result: Mapping[str, Any], as_json: bool) -> None:
    """Print a result on stdout: one JSON object, or tables.

    Args:
        result: strings, numbers, None, lists of strings; mappings of them; and lists of such mappings, each
            shown as a table with a column for every mapping, or of a ``Listing`` a line. ``notes``, and
            ``doubts`` of a mapping, are shown last, a line each.
        as_json: which of the two. Numbers that JSON cannot hold become null.
    """
    if as_json:
        typer.echo(json.dumps(_plain(result), indent=2, allow_nan=False))
        return
    console = Console(
        file=sys.stdout, width=None if sys.stdout.isatty() else _WIDTH_OFF_A_TERMINAL, highlight=False
    )
    scalars, tables, notes = Table.grid(padding=(0, 2)), list[Table](), [*result.get("notes", ())]
    for name, value in result.items():
        if name == "notes":
            continue
        if isinstance(value, Mapping):
            notes += value.get("doubts", ())
            for inner, item in value.items():
                if inner != "doubts":
                    scalars.add_row(*_row(f"{name} {inner}", [item]))
        elif isinstance(value, Sequence) and value and isinstance(value[0], Mapping):
            tables.append(_lines(value) if isinstance(value, Listing) else Table.grid(padding=(0, 2)))
            for inner in () if isinstance(value, Listing) else value[0]:
                tables[-1].add_row(*_row(inner, [column.get(inner) for column in value]))
        else:
            scalars.add_row(*_row(name, [value]))
    console.print(scalars)
    for table in tables:
        console.print()
        console.print(table)
    for line in dict.fromkeys(notes):
        console.print(Text(f"\n{line}"))


def partition_table(partition: LogPartition, **settings: Any) -> dict[str, Any]:
    """Returns ln Z for a result: exact, or with bounds, errors, doubts and the settings of annealing."""
    numbers = partition._asdict()
    if partition.ess == math.inf:
        return {"method": "exact", **{name: numbers[name] for name in ("value", "standard_error")}}
    ends = {name: numbers.pop(name) for name in ("lower", "upper")}
    finite = {name: x if math.isfinite(x) else None for name, x in ends.items()}
    return {"method": "ais", **finite, **numbers, **settings}


def check_target(path: Path, suffixes: Sequence[str], overwrite: bool) -> None:
    """Refuse a file that could not be written in the end, before any work is done for it.

    Raises:
        FileExistsError: it exists and was not to be overwritten.
        FileNotFoundError: its folder does not exist.
        ValueError: another suffix than those known, or a folder.
    """
    if not path.name.lower().endswith(tuple(suffixes)):
        raise ValueError(f"out: expected a name that ends in {' or '.join(suffixes)}, received {path}")
    if path.is_dir():
        raise ValueError(f"out: expected a file, {path} is a folder")
    if path.exists() and not overwrite:
        raise FileExistsError(f"out: {path} exists; --overwrite replaces it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"out: expected an existing folder, there is no {path.parent}")


def _lines(listing: Listing) -> Table:
    """Returns a line for every mapping; what is too long for its place goes on below."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in listing[0]:
        table.add_column(name.replace("_", " "), overflow="fold")
    for entry in listing:
        table.add_row(*(Text(format_value(value)) for value in entry.values()))
    return table


def _row(name: str, values: Sequence[Any]) -> list[Text]:
    return [Text(name.replace("_", " "), style="bold"), *(Text(format_value(value)) for value in values)]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
