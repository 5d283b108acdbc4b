"""Rows to a file, with the names of their columns where it has a place for them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harmonium.data.sheet import Cells, Sheet
from harmonium.machine.storage import replace_file
from harmonium.report import image_grid


def write_rows(
    path: Path,
    rows: NDArray[Any] | Sheet,
    shape: Sequence[int] | None,
    columns: int | None,
    names: Sequence[str] | None = None,
) -> None:
    """Rows to a ``.npy`` or ``.csv`` file, or to a ``.png`` file as a grid of images of ``shape``.

    Raises:
        ValueError: text for another file than ``.csv``; the message names the column.
    """
    if path.suffix.lower() == ".csv":
        replace_file(path, _as_csv(rows, names).encode())
        return
    if isinstance(rows, Sheet):
        try:
            rows = rows.numbers()
        except ValueError as error:
            raise ValueError(f"out: {str(error).removeprefix('X: ')}; a .csv file takes text") from error
    if path.suffix.lower() == ".png":
        image_grid(rows, tuple(shape or ()), columns, path)
        return
    buffer = io.BytesIO()
    np.save(buffer, rows)
    replace_file(path, buffer.getvalue())


def _as_csv(rows: NDArray[Any] | Sheet, names: Sequence[str] | None) -> str:
    """Missing cells are empty; there is a header where the columns have names."""
    if isinstance(rows, Sheet):
        columns = [_as_text(cells) for cells in rows.columns]
        found = [cells.name for cells in rows.columns]
        header = found if all(isinstance(name, str) for name in found) else None
    else:
        columns = [[str(value) for value in column] for column in rows.T.tolist()]
        header = list(names) if names is not None and len(names) == len(columns) else None
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if header:
        writer.writerow(header)
    writer.writerows(zip(*columns, strict=True))
    return buffer.getvalue()


def _as_text(cells: Cells) -> list[str]:
    """The cells of a column, whole numbers without a point where the column's type is theirs."""
    whole = "int" in cells.dtype.lower()
    values = zip(cells.values.tolist(), cells.missing, strict=True)
    return ["" if hole else str(round(value) if whole and cells.numeric else value) for value, hole in values]
