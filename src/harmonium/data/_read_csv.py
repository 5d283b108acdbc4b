"""Comma-separated numbers."""

from __future__ import annotations

import csv
import math
import warnings
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from harmonium.data._arrays import refuse_where

_LABELS = ("label", "labels")
_INFINITIES = ("inf", "infinity")
_WHOLE = 2**53  # below it every whole number is a float64 of its own


def read_csv(path: Path) -> tuple[Any, Any]:
    """float64 samples; a column headed ``label`` or ``labels`` is taken out as labels.

    The first line is a header where none of its cells is a number. Empty lines are passed over.
    """
    numbers, width, header = array("d"), 0, None
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file, strict=True)
        for cells in lines:
            if not cells:
                continue
            if not width:
                width = len(cells)
                if not any(map(_looks_like_a_number, cells)):
                    header = [cell.strip().lower() for cell in cells]
                    continue
                if width > 2 and cells == [str(i) for i in range(width)]:
                    warnings.warn(
                        f"{path}: the first line counts from 0 to {width - 1} and is read as data; if these "
                        "are the names of columns, name them otherwise or leave the line out",
                        stacklevel=4,
                    )
            if len(cells) != width:
                raise ValueError(f"line {lines.line_num}: expected {width} columns, received {len(cells)}")
            try:
                numbers.extend(_numbers(cells))
            except ValueError:
                column, cell = next((i, cell) for i, cell in enumerate(cells, 1) if not _is_number(cell))
                where = f"line {lines.line_num}, column {column}"
                raise ValueError(f"{where}: expected a number, received {cell!r}") from None
    samples = np.array(numbers, dtype=np.float64).reshape(-1, max(width, 1))
    columns = [i for i, cell in enumerate(header or []) if cell in _LABELS]
    if not columns:
        return samples, None
    if len(columns) > 1:
        raise ValueError(f"expected one column of labels, received columns {[i + 1 for i in columns]}")
    return np.delete(samples, columns[0], axis=1), _whole(samples[:, columns[0]])


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


def _whole(labels: Any) -> Any:
    """Labels as int64 where all are whole numbers."""
    known = np.abs(labels) < _WHOLE  # not so for NaN
    refuse_where(~known, labels, "numbers between -2**53 and 2**53", "labels")
    return labels.astype(np.int64) if (labels == np.round(labels)).all() else labels
