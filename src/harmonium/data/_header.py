"""The first line of a text file: names of columns, or data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from harmonium import _checks
from harmonium.data._arrays import Array
from harmonium.data._cell_text import is_given_number, is_missing, is_text

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
