"""The content of a cell of a text file: nothing, a number, a code such as 00123, or text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

_MISSING = ("", "na", "n/a", "<na>", "nan", "-nan", "null")
_INFINITIES = ("inf", "infinity")
_DIGITS = re.compile(r"[0-9]+")
_CODES = re.compile(r"^[ \t]*0[0-9]+[ \t]*$", re.MULTILINE)


def is_missing(cell: str) -> bool:
    """Returns whether a cell is empty or holds a word for a missing value."""
    return cell.strip().lower() in _MISSING


def is_digits(cell: str) -> bool:
    """Returns whether a cell holds decimal digits alone, such as 123 and 00123."""
    return bool(_DIGITS.fullmatch(cell.strip()))


def has_codes(cells: list[str]) -> bool:
    """Returns whether a cell holds digits behind a zero, such as 00123, which is a name and no number."""
    return bool(_CODES.search("\n".join(cells)))


def is_number(cell: str) -> bool:
    """Returns whether a cell holds a number as ``numbers_in`` reads it, NaN included."""
    try:
        numbers_in([cell])
    except ValueError:
        return False
    return True


def is_given_number(cell: str) -> bool:
    """Returns whether a cell holds a number other than NaN, which a column of text may hold as missing."""
    return is_number(cell) and not is_missing(cell)


def is_whole(cell: str) -> bool:
    """Returns whether a cell holds a whole number without a point, or is missing."""
    return cell.strip().lstrip("+-").isdecimal() or is_missing(cell)


def whole_numbers(cells: Iterable[str]) -> list[int]:
    """Returns the numbers of those cells that hold a whole number without a point."""
    return [int(cell) for cell in cells if is_whole(cell) and not is_missing(cell)]


def is_text(cell: str) -> bool:
    """Returns whether a cell is neither missing nor anything that Python takes for a number."""
    try:
        float(cell)
    except ValueError:
        return not is_missing(cell)
    return False


def number_in(cell: str) -> int | float:
    """Returns the number in a cell, an int where it is written without a point."""
    try:
        return int(cell)
    except ValueError:
        return float(cell)


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
