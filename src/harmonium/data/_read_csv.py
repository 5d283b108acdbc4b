"""Values separated by commas or tabs: numbers, or tables with text and empty cells, and names above them."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harmonium import _checks
from harmonium.data._cell_text import (
    has_codes,
    is_digits,
    is_given_number,
    is_missing,
    is_text,
    is_whole,
    number_in,
    numbers_in,
    whole_numbers,
)
from harmonium.data.dataset import ColumnType, Texts
from harmonium.data.frame import LONG, refuse_long
from harmonium.data.transforms import Array

_REMEDY = "if it holds names, write them with letters that no cell has"


def holds_names(path: Path, first: Sequence[str], columns: Sequence[Sequence[str]] | None) -> bool:
    """Decides whether the first line of a file holds the names of its columns, and warns where it guesses.

    - A line without text is data.
    - A line with text above numbers holds names, as no column holds both.
    - Another line with text holds names if none of its cells stands in its column again.
    - Names differ from each other, in a line that has numbers among them.

    Args:
        path: of the file, for the warning.
        first: the cells of the first line.
        columns: the cells below each of them; None: all of them are numbers.
    """
    texts = [is_text(cell) for cell in first]
    numbers = [cell for cell in first if is_given_number(cell)]
    if not any(texts):
        return False
    if numbers and len(set(first)) < len(first):
        return False
    again: list[str] = []
    if columns is not None:
        above_numbers = any(
            text and any(map(is_given_number, x)) for text, x in zip(texts, columns, strict=True)
        )
        given = [(cell, x) for cell, x in zip(first, columns, strict=True) if not is_missing(cell)]
        again = [] if above_numbers else [cell for cell, x in given if cell.strip() in map(str.strip, x)]
    if not again and numbers:
        _checks.warn(
            f"{path}: the first line, with {numbers[0]!r}, is read as the names of columns; if it is data, "
            "put a line of names above it"
        )
    elif again and (not numbers or not any(map(is_text, again))):
        _checks.warn(
            f"{path}: the first line is read as data, as {again[0]!r} stands in its column again; {_REMEDY}"
        )
    return not again


def question_numbers(path: Path, first: Array, columns: Iterable[Array]) -> None:
    """Warns if a first line of numbers, which is read as data, may hold the names of columns.

    Such are different whole numbers that follow each other, or of which one lies beyond the numbers below it
    by half their range or more.

    Args:
        path: of the file.
        first: (columns,), NaN where there is no number.
        columns: the numbers below each.
    """
    if not (first == np.round(first)).all() or len(np.unique(first)) < len(first):
        return
    counts = len(first) > 2 and bool((np.diff(first) == 1).all())
    if counts or any(_beyond(x, below) for x, below in zip(first.tolist(), columns, strict=True)):
        _checks.warn(
            f"{path}: the first line, {', '.join(f'{x:.0f}' for x in first[:3])}"
            f"{', …' if len(first) > 3 else ''}, is read as data; {_REMEDY}"
        )


def _beyond(x: float, below: Array) -> bool:
    below = below[~np.isnan(below)]
    if not below.size:
        return False
    low, high = float(below.min()), float(below.max())
    return low < high and max(low - x, x - high) >= (high - low) / 2


_SEPARATED = {",": "commas", "\t": "tabs"}
_REMEDIES = {
    ",": "name the file .csv",
    "\t": "name the file .tsv",
    ";": "write them with commas: pandas.read_csv(path, sep=';', decimal=',').to_csv(other, index=False)",
    "|": "write them with commas: pandas.read_csv(path, sep='|').to_csv(other, index=False)",
}

Parts = tuple[Any, None, tuple[str, ...] | None, dict[str, ColumnType] | None, Texts]


def read_csv(path: Path, delimiter: str = ",") -> Parts:
    """Reads samples, no labels, names of columns, types of those that are numbers alone, and texts of cells.

    ``holds_names`` says what the first line is. Empty lines are passed over. Samples are float64 where every
    cell is a number, else objects: numbers, text, and None in empty cells and those that say NA. Of a column
    either all cells that are not missing are numbers, or none is. A column of whole numbers of which one is
    written with a zero in front, such as 00123, is text.

    Raises:
        ValueError: something else; whole numbers from 2^53 on, of which float64 does not keep every digit.
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
    """Suggests a remedy if another character may separate the cells of the first line; None if none may."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        first = file.readline()
    for other, remedy in _REMEDIES.items():
        if other in first and (delimiter not in first or other == ";"):
            return f"if {other!r} separates its cells, {remedy}"
    return None


def _read(path: Path, delimiter: str) -> Parts:
    lines = _lines(path, delimiter)
    _, first = next(lines, (0, []))
    numbers = array("d")
    header = any(map(is_text, first))
    table = not header and not _added(first, numbers)
    whole = [*range(len(first))]  # columns in which every cell so far is a whole number, or missing
    for line, cells in lines:
        if len(cells) != len(first):
            raise ValueError(f"line {line}: expected {len(first)} columns, received {len(cells)}")
        table = table or not _added(cells, numbers)
        if header and not table and not "".join(cells).isdecimal():
            whole = [j for j in whole if cells[j].isdecimal() or is_whole(cells[j])]
    if table or (header and not holds_names(path, first, None)):
        return _table(path, delimiter)
    names = _names(first, header)
    samples = np.array(numbers, dtype=np.float64).reshape(-1, max(len(first), 1))
    if max(np.fmax.reduce(numbers, initial=0.0), -np.fmin.reduce(numbers, initial=0.0)) >= LONG:
        for _, cells in [*_lines(path, delimiter)][header:]:
            for name, cell in zip(names, cells, strict=True):
                refuse_long(name, whole_numbers([cell]))
    if not header and len(samples) > 1:
        question_numbers(path, samples[0], samples[1:].T)
    texts = partial(_texts, path, delimiter, header)
    if not header:
        return samples, None, None, None, texts
    dtypes = ("int64" if j in whole else "float64" for j in range(len(names)))
    types = {name: ColumnType(dtype, None, False) for name, dtype in zip(names, dtypes, strict=True)}
    return samples, None, names, types, texts


def _added(cells: list[str], numbers: array[float]) -> bool:
    """Appends a line to the numbers before it, if it holds nothing else."""
    try:
        found = numbers_in(cells)
    except ValueError:
        return False
    if has_codes(cells):
        return False
    numbers.extend(found)
    return True


def _lines(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file, delimiter=delimiter, strict=True)
        yield from ((lines.line_num, cells) for cells in lines if cells)


def _table(path: Path, delimiter: str) -> Parts:
    """``read_csv`` of a file with text or missing cells, whose samples are objects.

    Raises:
        ValueError: a cell that is no number in a column where others are, or text in the only column.
    """
    lines = list(_lines(path, delimiter))
    first = lines[0][1]
    below = [*zip(*(cells for _, cells in lines[1:]), strict=True)] or [()] * len(first)
    header = holds_names(path, first, below)
    names, lines = _names(first, header), lines[header:]
    samples = np.empty((len(lines), len(first)), dtype=object)
    numeric: list[Array] = []
    codes: list[str] = []
    for j, name in enumerate(names):
        column = [cells[j] for _, cells in lines]
        given = [cell for cell in column if not is_missing(cell)]
        coded = has_codes(given)
        if coded and all(map(is_digits, given)):
            codes.append(name)
        number = [
            is_given_number(cell) and not (coded and (name in codes or has_codes([cell]))) for cell in column
        ]
        strays = [i for i, cell in enumerate(column) if not (number[i] or is_missing(cell))]
        if strays and (len(first) == 1 or any(number)):
            i = strays[0]
            raise ValueError(
                f"line {lines[i][0]}, column {j + 1}: expected a number, received {column[i]!r}; a missing "
                f"cell is empty, cells are separated by {_SEPARATED[delimiter]}, and no column holds both "
                "numbers and text, such as 00123"
            )
        read: Callable[[str], Any] = str.strip if strays else number_in
        values = [None if is_missing(cell) else read(cell) for cell in column]
        samples[:, j] = values
        if not strays:
            refuse_long(name, [value for value in values if isinstance(value, int)])
            numeric.append(np.array(values, dtype=np.float64))
    if codes:
        more = f" and {len(codes) - 1} more" if len(codes) > 1 else ""
        _checks.warn(
            f"{path}: column {codes[0]!r}{more} is read as text, as whole numbers with a zero in front, such "
            "as 00123, are names; numbers are written without"
        )
    if not any(map(is_text, first)):
        question_numbers(path, np.array([x[0] for x in numeric]), [x[1:] for x in numeric])
    return samples, None, names, None, partial(_texts, path, delimiter, header)


def _names(first: Sequence[str], header: bool) -> tuple[str, ...]:
    """The names of the columns, ``column 1`` and so on where the first line does not hold them."""
    return tuple(cell.strip() if header else f"column {j + 1}" for j, cell in enumerate(first))


def _texts(path: Path, delimiter: str, header: bool) -> dict[str, list[str]]:
    """The cells of each column as they are written."""
    (first, *rest) = (cells for _, cells in _lines(path, delimiter))
    columns = map(list, zip(*(rest if header else [first, *rest]), strict=True))
    return dict(zip(_names(first, header), columns, strict=True))
