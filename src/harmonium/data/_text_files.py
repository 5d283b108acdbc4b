"""Text files: values separated by commas or tabs, numbers, text and empty cells, and names above them."""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harmonium import _checks

LONG = 2**53
"""Below it every whole number is a float64 of its own."""
_MISSING = ("", "na", "n/a", "<na>", "nan", "-nan", "null")
_INFINITIES = ("inf", "infinity")
_CODES = re.compile(r"^[ \t]*0[0-9]+[ \t]*$", re.MULTILINE)
_NAMES = "if it holds names, write them with letters that no cell has"
_SEPARATED = {",": "commas", "\t": "tabs"}
_REMEDIES = {
    ",": "name the file .csv",
    "\t": "name the file .tsv",
    ";": "write them with commas: pandas.read_csv(path, sep=';', decimal=',').to_csv(other, index=False)",
    "|": "write them with commas: pandas.read_csv(path, sep='|').to_csv(other, index=False)",
}

Texts = Callable[[], dict[str, list[str]]]
"""Reads the cells of a text file as they are written, by column, ``column 1`` and so on without names."""


class ColumnType(NamedTuple):
    """The type of a column in its file: the attributes of a ``Series`` of these names."""

    dtype: str
    categories: tuple[Any, ...] | None = None
    ordered: bool = False


Parts = tuple[Any, None, tuple[str, ...] | None, dict[str, ColumnType] | None, Texts]


# Cells
# ---------------------------------------------------------------------------------


def is_missing(cell: str) -> bool:
    """Returns whether a cell is empty or holds a word for a missing value."""
    return cell.strip().lower() in _MISSING


def has_codes(cells: list[str]) -> bool:
    """Returns whether a cell holds digits behind a zero, such as 00123, which is a name and no number."""
    return bool(_CODES.search("\n".join(cells)))


def numbers_in(cells: list[str]) -> list[float]:
    """Returns the cells of a line as numbers in plain decimal digits, NaN or infinity.

    Python's ``float`` alone would also read ``1_0`` as 10 and digits of other scripts, and take a number
    beyond the range of float64 for infinity.

    Raises:
        ValueError: something else.
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


def is_number(cell: str) -> bool:
    """Returns whether a cell holds a number as ``numbers_in`` reads it, NaN included."""
    try:
        numbers_in([cell])
    except ValueError:
        return False
    return True


def is_whole(cell: str) -> bool:
    """Returns whether a cell holds a whole number without a point, or is missing."""
    return cell.strip().lstrip("+-").isdecimal() or is_missing(cell)


def whole_numbers(cells: Iterable[str]) -> list[int]:
    """Returns the numbers of those cells that hold a whole number without a point."""
    return [int(cell) for cell in cells if is_whole(cell) and not is_missing(cell)]


def refuse_long(name: object, values: Iterable[Any]) -> None:
    """Refuses whole numbers of which float64 does not keep every digit."""
    for value in values:
        if abs(int(value)) >= LONG:
            raise ValueError(
                f"X: expected whole numbers below 2^53 in column {name!r}, received {int(value)}; drop the "
                "column if it names rows, or make text of it: .astype(str) in a frame, a letter in front of "
                "each in a text file"
            )


def as_written(cells: Iterable[str], values: Iterable[Any], texts: Iterable[Any] | None = None) -> list[Any]:
    """Returns the texts of cells that stand for their values, and for others the new texts, or the values."""
    new = values if texts is None else texts
    return [cell if _stands_for(cell, x) else text for cell, x, text in zip(cells, values, new, strict=True)]


def _stands_for(cell: str, value: object) -> bool:
    """Returns whether a value, None or NaN where it is missing, is what a cell is read as."""
    if value is None or value != value:
        return is_missing(cell)
    if isinstance(value, str):
        return cell.strip() == value
    return is_number(cell) and float(cell) == value


def _is_given_number(cell: str) -> bool:
    return is_number(cell) and not is_missing(cell)


def _is_text(cell: str) -> bool:
    """Returns whether a cell is neither missing nor anything that Python takes for a number."""
    try:
        float(cell)
    except ValueError:
        return not is_missing(cell)
    return False


def _number_in(cell: str) -> int | float:
    try:
        return int(cell)
    except ValueError:
        return float(cell)


# The first line
# ---------------------------------------------------------------------------------


def holds_names(path: Path, first: Sequence[str], columns: Sequence[Sequence[str]] | None) -> bool:
    """Decides whether the first line of a file holds the names of its columns, and warns where it guesses.

    - A line without text is data.
    - A line with text above numbers holds names, as no column holds both.
    - Another line with text holds names if none of its cells stands in its column again.
    - Names differ from each other, in a line that has numbers among them.

    Args:
        path: Path of the file, for the warning.
        first: the cells of the first line.
        columns: the cells below each of them; None: all of them are numbers.
    """
    texts = [_is_text(cell) for cell in first]
    numbers = [cell for cell in first if _is_given_number(cell)]
    if not any(texts) or (numbers and len(set(first)) < len(first)):
        return False
    again: list[str] = []
    if columns is not None:
        below = [*zip(first, texts, columns, strict=True)]
        if not any(text and any(map(_is_given_number, x)) for _, text, x in below):
            observed = ((cell, x) for cell, _, x in below if not is_missing(cell))
            again = [cell for cell, x in observed if cell.strip() in map(str.strip, x)]
    if not again and numbers:
        _checks.warn(
            f"{path}: the first line, with {numbers[0]!r}, is read as the names of columns; if it is data, "
            "put a line of names above it"
        )
    elif again and (not numbers or not any(map(_is_text, again))):
        _checks.warn(
            f"{path}: the first line is read as data, as {again[0]!r} stands in its column again; {_NAMES}"
        )
    return not again


def _question_numbers(path: Path, columns: Iterable[NDArray[Any]]) -> None:
    """Warns if a first line of numbers, which is read as data, may hold the names of columns.

    Such are different whole numbers that follow each other, or of which one lies beyond the numbers below it
    by half their range or more.
    """
    columns = list(columns)
    first = np.array([x[0] for x in columns])
    if not (first == np.round(first)).all() or len(np.unique(first)) < len(first):
        return
    counts = len(first) > 2 and bool((np.diff(first) == 1).all())
    if counts or any(_beyond(float(x[0]), x[1:]) for x in columns):
        _checks.warn(
            f"{path}: the first line, {', '.join(f'{x:.0f}' for x in first[:3])}"
            f"{', …' if len(first) > 3 else ''}, is read as data; {_NAMES}"
        )


def _beyond(x: float, below: NDArray[Any]) -> bool:
    below = below[~np.isnan(below)]
    if not below.size:
        return False
    low, high = float(below.min()), float(below.max())
    return low < high and max(low - x, x - high) >= (high - low) / 2


# Files
# ---------------------------------------------------------------------------------


def read_text(path: Path, delimiter: str = ",") -> Parts:
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
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            first = file.readline()
        for other, remedy in _REMEDIES.items():  # another character may separate the cells
            if other in first and (delimiter not in first or other == ";"):
                raise ValueError(f"{error}; if {other!r} separates its cells, {remedy}") from error
        raise


def _read(path: Path, delimiter: str) -> Parts:
    """Reads cells that are all numbers, but for names above them, in 8 bytes each; else by ``_table``."""
    lines = _lines(path, delimiter)
    _, first = next(lines, (0, []))
    numbers = array("d")
    header = any(map(_is_text, first))
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
    texts = partial(_texts, path, delimiter, header)
    if header:
        types = {name: ColumnType("int64" if j in whole else "float64") for j, name in enumerate(names)}
        return samples, None, names, types, texts
    if len(samples) > 1:
        _question_numbers(path, samples.T)
    return samples, None, None, None, texts


def _added(cells: list[str], numbers: array[float]) -> bool:
    """Appends a line to the numbers before it, if it holds nothing else."""
    try:
        values = numbers_in(cells)
    except ValueError:
        return False
    if has_codes(cells):
        return False
    numbers.extend(values)
    return True


def _lines(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file, delimiter=delimiter, strict=True)
        yield from ((lines.line_num, cells) for cells in lines if cells)


def _table(path: Path, delimiter: str) -> Parts:
    """Reads a file with text or missing cells to objects; a column holds numbers or text, and not both."""
    lines = list(_lines(path, delimiter))
    first = lines[0][1]
    below = [*zip(*(cells for _, cells in lines[1:]), strict=True)] or [()] * len(first)
    header = holds_names(path, first, below)
    names, lines = _names(first, header), lines[header:]
    samples = np.empty((len(lines), len(first)), dtype=object)
    numeric: list[NDArray[Any]] = []
    codes: list[str] = []
    for j, name in enumerate(names):
        column = [cells[j] for _, cells in lines]
        observed = [cell for cell in column if not is_missing(cell)]
        coded = has_codes(observed)
        if coded and all(re.fullmatch("[0-9]+", cell.strip()) for cell in observed):
            codes.append(name)
        number = [
            _is_given_number(cell) and not (coded and (name in codes or has_codes([cell]))) for cell in column
        ]
        strays = [i for i, cell in enumerate(column) if not (number[i] or is_missing(cell))]
        if strays and (len(first) == 1 or any(number)):
            i = strays[0]
            raise ValueError(
                f"line {lines[i][0]}, column {j + 1}: expected a number, received {column[i]!r}; a missing "
                f"cell is empty, cells are separated by {_SEPARATED[delimiter]}, and no column holds both "
                "numbers and text, such as 00123"
            )
        read: Callable[[str], Any] = str.strip if strays else _number_in
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
    if not any(map(_is_text, first)):
        _question_numbers(path, numeric)
    return samples, None, names, None, partial(_texts, path, delimiter, header)


def _names(first: Sequence[str], header: bool) -> tuple[str, ...]:
    """The names of the columns, ``column 1`` and so on where the first line does not hold them."""
    return tuple(cell.strip() if header else f"column {j + 1}" for j, cell in enumerate(first))


def _texts(path: Path, delimiter: str, header: bool) -> dict[str, list[str]]:
    """The cells of each column as they are written."""
    (first, *rest) = (cells for _, cells in _lines(path, delimiter))
    columns = map(list, zip(*(rest if header else [first, *rest]), strict=True))
    return dict(zip(_names(first, header), columns, strict=True))
