"""Rows to a file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harmonium.machine.storage import replace_file
from harmonium.report import image_grid


def write_rows(path: Path, rows: NDArray[Any], shape: Sequence[int] | None, columns: int | None) -> None:
    """Rows to a ``.npy`` file, or to a ``.png`` file as a grid of images of ``shape``."""
    if path.suffix.lower() == ".png":
        image_grid(rows, tuple(shape or ()), columns, path)
        return
    buffer = io.BytesIO()
    np.save(buffer, rows)
    replace_file(path, buffer.getvalue())
