"""Values separated by commas or tabs: numbers, or tables with text and empty cells."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harmonium import _checks
from harmonium.data.dataset import LONG, ColumnType

_MISSING = ("", "na", "n/a", "<na>", "nan", "null")
_INFINITIES = ("inf", "infinity")
_SEPARATED = {",": "commas", "\t": "tabs"}
_REMEDIES = {
    ",": "name the file .csv",
    "\t": "name the file .tsv",
    ";": "write them with commas: pandas.read_csv(path, sep=';', decimal=',').to_csv(other, index=False)",
    "|": "write them with commas: pandas.read_csv(path, sep='|').to_csv(other, index=False)",
}


Parts = tuple[Any, None, tuple[str, ...] | None, dict[str, ColumnType] | None]


def read_csv(path: Path, delimiter: str = ",") -> Parts:
    """Samples, no labels, names of columns, and the types of those that are numbers alone.

    The first line is a header where none of its cells is a number. Empty lines are passed over. Samples are
    float64 where every cell is a number, else objects: numbers, text, and None in empty cells and those that
    say NA. Of a column either all cells that are not missing are numbers, or none is.
    """
    try:
        return _read(path, delimiter)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"expected text in UTF-8, received something else ({error.reason}); save it as UTF-8, such as by "
            "pandas.read_csv(path, encoding='latin-1').to_csv(other, index=False)"
        ) from error
    except ValueError as error:
        remedy = _other_separator(path, delimiter)
        if remedy is None:
            raise
        raise ValueError(f"{error}; {remedy}") from error


def _other_separator(path: Path, delimiter: str) -> str | None:
    """What to do if the first line is separated otherwise; None if it cannot be."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        first = file.readline()
    for other, remedy in _REMEDIES.items():
        if other in first and (delimiter not in first or other == ";"):
            return f"if {other!r} separates its cells, {remedy}"
    return None


def _read(path: Path, delimiter: str) -> Parts:
    numbers, table, width, header = array("d"), False, 0, None
    whole: list[int] = []  # columns in which every cell so far is a whole number, or missing
    for line, cells in _lines(path, delimiter):
        if not width:
            width = len(cells)
            if not any(map(_looks_like_a_number, cells)):
                header = [cell.strip() for cell in cells]
                whole = [*range(width)]
                continue
            if width > 2 and cells == [str(i) for i in range(width)]:
                _checks.warn(
                    f"{path}: the first line counts from 0 to {width - 1} and is read as data; if these "
                    "are the names of columns, name them otherwise or leave the line out",
                )
        if len(cells) != width:
            raise ValueError(f"line {line}: expected {width} columns, received {len(cells)}")
        if not table:
            try:
                numbers.extend(_numbers(cells))
            except ValueError:
                table = True
            if whole and not "".join(cells).isdecimal():
                whole = [j for j in whole if cells[j].isdecimal() or _is_whole(cells[j])]
    types: dict[str, ColumnType] = {}
    if table:
        samples = _table(path, delimiter, width, header is not None)
        header = header or [f"column {j + 1}" for j in range(width)]
    else:
        samples = np.array(numbers, dtype=np.float64).reshape(-1, max(width, 1))
        short = np.fmax.reduce(np.abs(samples), initial=0.0) < LONG if whole else ()
        for j, name in enumerate(header or ()):
            types[name] = ColumnType("int64" if j in whole and short[j] else "float64", None, False)
    return samples, None, tuple(header or ()) or None, types or None


def _lines(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file, delimiter=delimiter, strict=True)
        yield from ((lines.line_num, cells) for cells in lines if cells)


def _table(path: Path, delimiter: str, width: int, header: bool) -> Any:
    """(rows, columns) objects.

    Raises:
        ValueError: a cell that is no number in a column where others are, or text in the only column.
    """
    lines = list(_lines(path, delimiter))[header:]
    columns = []
    for j, column in enumerate(zip(*(cells for _, cells in lines), strict=True)):
        given = [cell.strip().lower() not in _MISSING for cell in column]
        number = [_is_number(cell) for cell in column]
        strays = [
            i for i, (is_given, ok) in enumerate(zip(given, number, strict=True)) if is_given and not ok
        ]
        if strays and (width == 1 or any(number)):
            i = strays[0]
            where = f"line {lines[i][0]}, column {j + 1}"
            raise ValueError(
                f"{where}: expected a number, received {column[i]!r}; a missing cell is empty, cells are "
                f"separated by {_SEPARATED[delimiter]}, and no column holds both numbers and text"
            )
        read = str.strip if strays else _number
        columns.append([read(cell) if there else None for cell, there in zip(column, given, strict=True)])
    samples = np.empty((len(lines), width), dtype=object)
    for j, values in enumerate(columns):
        samples[:, j] = values
    return samples


def _number(cell: str) -> int | float:
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _numbers(cells: list[str]) -> list[float]:
    """The cells of a line as numbers in plain decimal digits, NaN or infinity.

    Python's ``float`` alone would also read ``1_0`` as 10 and digits of other scripts, and take a number
    beyond the range of float64 for infinity.
    """
    text = "".join(cells)
    if "_" in text or not text.isascii():
        raise ValueError
    numbers = [float(cell) for cell in cells]
    if math.inf in numbers or -math.inf in numbers:
        words = [cell.strip().lstrip("+-").lower() for cell in cells]
        if any(math.isinf(x) and word not in _INFINITIES for x, word in zip(numbers, words, strict=True)):
            raise ValueError
    return numbers


def _is_whole(cell: str) -> bool:
    cell = cell.strip()
    return cell.lstrip("+-").isdecimal() or cell.lower() in _MISSING


def _is_number(cell: str) -> bool:
    try:
        _numbers([cell])
    except ValueError:
        return False
    return True


def _looks_like_a_number(cell: str) -> bool:
    """Whether a cell of the first line speaks for data, be it a number that is refused."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
