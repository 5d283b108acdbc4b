"""Pictures of rows: many small images in one."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from harmonium import _checks
from harmonium.machine.storage import replace_file

_GAP_GREY = 96
_VISIBLE_SIDE = 48  # smaller images are enlarged to at least this many pixels


def image_grid(
    images: NDArray[Any] | Tensor,
    image_shape: Sequence[int] | None = None,
    columns: int | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    enlarge: int | None = None,
) -> NDArray[np.uint8]:
    """Images side by side, row by row.

    Bytes are shown as they are, unless they are all 0 and 1. Other numbers are intensities where all of them
    lie in [0, 1]; else the smallest of them all becomes black and the largest white.

    Args:
        images: (n, h * w), (n, h * w * channels), (n, h, w) or (n, h, w, channels); n at least 1.
        image_shape: (h, w) or (h, w, channels) with 1 or 3 channels; None where ``images`` has it.
        columns: images in a row; None makes the grid about square.
        path: PNG file to write too; one that is there is replaced.
        enlarge: side of the square that a pixel becomes; None enlarges images smaller than 48 pixels.

    Returns:
        (height, width) or, for three channels, (height, width, 3).

    Raises:
        TypeError: not numbers.
        ValueError: shapes that do not fit, no images, NaN or infinity, or a path that does not end in .png.
    """
    values = np.asarray(images.detach().cpu() if isinstance(images, Tensor) else images)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"images: expected numbers, received dtype {values.dtype}")
    if values.ndim < 2 or 0 in values.shape:
        raise ValueError(f"images: expected at least one row and column, received shape {values.shape}")
    shape = tuple(image_shape) if image_shape is not None else values.shape[1:]
    if len(shape) not in (2, 3) or min(shape) < 1 or (len(shape) == 3 and shape[2] not in (1, 3)):
        raise ValueError(
            f"image_shape: expected (h, w), (h, w, 1) or (h, w, 3), received {shape}"
            + (" from the shape of the images" if image_shape is None else "")
        )
    if math.prod(shape) != math.prod(values.shape[1:]):
        raise ValueError(
            f"image_shape: expected {math.prod(values.shape[1:])} values, received {shape}, "
            f"which has {math.prod(shape)}"
        )
    across = math.ceil(len(values) ** 0.5) if columns is None else _checks.positive_int(columns, "columns")
    cells = grey_levels(values).reshape(len(values), *(*shape, 1)[:3])
    grid = tiled(cells, across, enlarge)
    picture = grid[..., 0] if grid.shape[2] == 1 else grid
    if path is not None:
        write_png(picture, path)
    return picture


def write_png(picture: NDArray[np.uint8], path: str | os.PathLike[str]) -> None:
    """Write a picture, (h, w) or (h, w, 3) bytes, as a PNG file; one that is there is replaced in one step.

    Raises:
        ValueError: the path does not end in .png.
        OSError: it cannot be written; a file already there stays as it was.
    """
    if Path(path).suffix.lower() != ".png":
        raise ValueError(f"path: expected a name that ends in .png, received {path}")
    replace_file(Path(path), png(picture))


def png(picture: NDArray[np.uint8]) -> bytes:
    """A picture, (h, w) or (h, w, 3) bytes, as a PNG file's content."""
    from PIL import Image  # slow to import, and only needed here

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(buffer, format="PNG")
    return buffer.getvalue()


def tiled(cells: NDArray[np.uint8], columns: int, enlarge: int | None = None) -> NDArray[np.uint8]:
    """Images (n, h, w, channels) side by side as one, (height, width, channels), with lines between them."""
    n, h, w, channels = cells.shape
    zoom = -(-_VISIBLE_SIDE // max(h, w)) if enlarge is None else _checks.positive_int(enlarge, "enlarge")
    across = min(columns, n)
    # A line as thin as one of the image would be taken for a part of it.
    gap = min(max(1, zoom // 2), 4)
    height, width = h * zoom + gap, w * zoom + gap
    down = -(-n // across)
    grid = np.full((down * height + gap, across * width + gap, channels), _GAP_GREY, dtype=np.uint8)
    for i, cell in enumerate(cells.repeat(zoom, axis=1).repeat(zoom, axis=2)):
        top, left = gap + i // across * height, gap + i % across * width
        grid[top : top + h * zoom, left : left + w * zoom] = cell
    return grid


def grey_levels(values: NDArray[Any], limits: tuple[float, float] | None = None) -> NDArray[np.uint8]:
    """Numbers as bytes, as ``image_grid`` says; with limits these are black and white, and all beyond too.

    Raises:
        ValueError: NaN or infinity, or limits that are none.
    """
    if limits is None and values.dtype == np.uint8 and values.max() > 1:
        return values
    numbers = values.astype(np.float64)
    low, high = float(numbers.min()), float(numbers.max())
    if not math.isfinite(low + high):
        raise ValueError("images: expected finite values, received NaN or infinity")
    if limits is not None:
        low, high = limits
        if not low < high:
            raise ValueError(f"limits: expected a smaller and a larger number, received {limits}")
    elif low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    shares = np.clip((numbers - low) / (high - low or 1.0), 0, 1)
    return np.rint(shares * 255).astype(np.uint8)
