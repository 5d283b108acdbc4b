"""Comma-separated numbers."""

from __future__ import annotations

import csv
from array import array
from pathlib import Path
from typing import Any

import numpy as np

_LABELS = ("label", "labels")


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
                if not any(map(_is_number, cells)):
                    header = [cell.strip().lower() for cell in cells]
                    continue
            if len(cells) != width:
                raise ValueError(f"line {lines.line_num}: expected {width} columns, received {len(cells)}")
            try:
                numbers.extend(map(float, cells))
            except ValueError:
                column, cell = next((i, cell) for i, cell in enumerate(cells, 1) if not _is_number(cell))
                where = f"line {lines.line_num}, column {column}"
                raise ValueError(f"{where}: expected a number, received {cell!r}") from None
    samples = np.array(numbers, dtype=np.float64).reshape(-1, max(width, 1))
    columns = [i for i, cell in enumerate(header or []) if cell in _LABELS]
    if len(columns) != 1:
        return samples, None
    labels = samples[:, columns[0]]
    if (labels == np.round(labels)).all():
        labels = labels.astype(np.int64)
    return np.delete(samples, columns[0], axis=1), labels


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
