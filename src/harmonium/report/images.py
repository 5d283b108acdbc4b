"""Pictures of rows: many small images in one, side by side or in labelled strips."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from harmonium import _checks
from harmonium._storage import replace_file
from harmonium.machine import BoltzmannMachine

_HIDDEN = (120, 120, 190)  # the colour of pixels that a model was not given
_WARM, _COOL = np.array([178, 24, 43]), np.array([33, 102, 172])  # of positive and negative numbers
_GAP_GREY = 96  # of the lines between images: neither black nor white nor the middle
_VISIBLE_SIDE = 48  # smaller images are enlarged to at least this many pixels
_MARGIN, _BETWEEN, _GAP, _LETTERS = 12, 12, 8, 14  # pixels
_NARROWEST = 360  # where there is a title
_INK, _PAPER = (30, 30, 30), (255, 255, 255)  # of labels and of what is below them
_ACROSS = 10  # images of a strip, or more where there are many


def image_grid(
    images: NDArray[Any] | Tensor,
    image_shape: Sequence[int] | None = None,
    columns: int | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    enlarge: int | None = None,
) -> NDArray[np.uint8]:
    """Draws images side by side, row by row.

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
    values = _as_array(images)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"images: expected numbers, received dtype {values.dtype}")
    if values.ndim < 2 or 0 in values.shape:
        raise ValueError(f"images: expected at least one row and column, received shape {values.shape}")
    shape = _check_shape(values, image_shape)
    across = math.ceil(len(values) ** 0.5) if columns is None else _checks.positive_int(columns, "columns")
    grid = _tile(_find_grey_levels(values).reshape(len(values), *shape), across, enlarge)
    picture = grid[..., 0] if grid.shape[2] == 1 else grid
    if path is not None:
        write_png(picture, path)
    return picture


def image_panels(
    panels: Mapping[str, NDArray[Any] | Tensor],
    image_shape: Sequence[int],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "",
    columns: int | None = None,
    limits: tuple[float, float] | None = None,
    hidden: Mapping[str, NDArray[np.bool_]] | None = None,
    enlarge: int | None = None,
) -> NDArray[np.uint8]:
    """Draws images in several states: a labelled strip for each state, an image below itself.

    Images that do not fit beside each other go on further down, in strips of all states again. Of a single
    panel there is one grid.

    Args:
        panels: names of the states, such as "given", "truth" and "result", to (n, pixels), of one n.
        image_shape: (h, w) or (h, w, channels) with 1 or 3 channels.
        path: PNG file to write too; one that is there is replaced.
        title: stands above; a long one is broken into lines.
        columns: images beside each other; None: 10, or more where there are many.
        limits: the numbers that are black and white, such as the range of the data; what lies beyond is
            black or white too. None: 0 and 1 where all numbers lie in between, else the smallest and largest.
        hidden: Masks of pixels that are not shown, (n, pixels), by panel: these are violet, and may be NaN.
        enlarge: side of the square that a pixel becomes; None: as for ``image_grid``.

    Returns:
        The picture, (height, width, 3).

    Raises:
        ValueError: no panel, panels of different shapes, an image_shape or limits that do not fit, NaN that
            is not hidden, or a path that does not end in .png.
    """
    arrays = {name: _as_array(x) for name, x in panels.items()}
    shapes = {name: x.shape for name, x in arrays.items()}
    if len(set(shapes.values())) != 1 or min(next(iter(shapes.values())), default=0) < 1:
        raise ValueError(
            f"panels: expected images, of one number and size in all panels, received {shapes or 'no panel'}"
        )
    values = np.stack(list(arrays.values()))  # drawn with one black and one white
    n = values.shape[1]
    values = values.reshape(len(arrays), n, *_check_shape(values[0], image_shape))
    masks = np.zeros(values.shape, dtype=bool)
    for mask, name in zip(masks, arrays, strict=True):
        if name in (hidden or {}):
            mask[...] = np.reshape((hidden or {})[name], mask.shape)
    visible = values[~masks]
    values = np.where(masks, visible[0] if visible.size else 0, values)  # what is hidden may be NaN
    strips = np.repeat(_find_grey_levels(values, limits), 3 // values.shape[-1], axis=-1)
    strips[masks.any(-1)] = _HIDDEN
    many = len(strips) > 1
    if columns is None:
        columns = max(_ACROSS, math.ceil(math.sqrt(n * len(strips))))
    columns = min(_checks.positive_int(columns, "columns"), n)
    step = columns if many else n
    bands = [
        {
            name: _tile(cells[first : first + step], columns, enlarge)
            for name, cells in zip(arrays, strips, strict=True)
        }
        for first in range(0, n, step)
    ]
    picture = _lay_out(bands, title)
    if path is not None:
        write_png(picture, path)
    return picture


def write_png(picture: NDArray[np.uint8], path: str | os.PathLike[str]) -> None:
    """Writes a picture, (h, w) or (h, w, 3) bytes, as a PNG file; one that is there is replaced in one step.

    Raises:
        ValueError: the path does not end in .png.
        OSError: it cannot be written; a file already there stays as it was.
    """
    if Path(path).suffix.lower() != ".png":
        raise ValueError(f"path: expected a name that ends in .png, received {path}")
    from PIL import Image  # slow to import, and only needed here

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(buffer, format="PNG")
    replace_file(Path(path), buffer.getvalue())


def find_limits(values: NDArray[Any]) -> tuple[float, float]:
    """Returns the numbers that are black and white: 0 and 1, or the ends of values that go beyond these."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high if high > low else low + 1.0)


def is_drawable(shape: Sequence[int]) -> bool:
    """Returns whether a shape is that of images: (h, w) or (h, w, channels) with 1 or 3 channels."""
    return len(shape) in (2, 3) and min(shape) >= 1 and (*shape, 1)[2] in (1, 3)


def mean_word(machine: BoltzmannMachine) -> str:
    """Returns the word for means of visible units: "probabilities" if all have two values, else "means"."""
    two_valued = all(machine.layers[l].two_values is not None for l in machine.visible)
    return "probabilities" if two_valued else "means"


def _as_array(images: NDArray[Any] | Tensor) -> NDArray[Any]:
    return np.asarray(images.detach().cpu() if isinstance(images, Tensor) else images)


def _find_grey_levels(values: NDArray[Any], limits: tuple[float, float] | None = None) -> NDArray[np.uint8]:
    """Returns numbers as bytes, as ``image_grid`` says; with limits these are black and white.

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
    else:
        low, high = find_limits(numbers)
    shares = np.clip((numbers - low) / (high - low), 0, 1)
    return np.rint(shares * 255).astype(np.uint8)


def signed_pixels(rows: NDArray[Any], shape: Sequence[int]) -> NDArray[np.uint8]:
    """Returns images of signed numbers, each on its own scale: white is 0, red positive, blue negative.

    Numbers of three channels are colours themselves, grey is 0.

    Args:
        rows: (n, h * w * channels).
        shape: (h, w) or (h, w, channels) with 1 or 3 channels.

    Returns:
        (n, h, w, 3).
    """
    size = np.abs(rows).max(axis=1, keepdims=True)
    share = (rows / np.where(size > 0, size, 1)).reshape(len(rows), *shape[:2], -1)
    if share.shape[3] == 3:
        pixels = 127.5 * (share + 1)
    else:
        pixels = 255 + np.abs(share) * (np.where(share > 0, _WARM, _COOL) - 255)
    return np.rint(pixels).clip(0, 255).astype(np.uint8)


def _check_shape(values: NDArray[Any], image_shape: Sequence[int] | None) -> tuple[int, int, int]:
    """Returns h, w and channels of images, (n, h * w * channels) or in their own shape."""
    shape = values.shape[1:] if image_shape is None else tuple(image_shape)
    size = math.prod(values.shape[1:])
    if not is_drawable(shape) or math.prod(shape) != size:
        raise ValueError(
            f"image_shape: expected (h, w), (h, w, 1) or (h, w, 3) of {size} values, received {shape}"
            + (" from the shape of the images" if image_shape is None else "")
        )
    return shape[0], shape[1], shape[2] if len(shape) == 3 else 1


def _tile(cells: NDArray[np.uint8], columns: int, enlarge: int | None) -> NDArray[np.uint8]:
    """Returns images (n, h, w, channels) as one, (height, width, channels), with lines between them."""
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


def _lay_out(bands: Sequence[Mapping[str, NDArray[np.uint8]]], title: str) -> NDArray[np.uint8]:
    """Lays out bands of strips below one another on paper, labels on their left, the title above."""
    from PIL import Image, ImageDraw, ImageFont  # slow to import, and only needed here

    font = ImageFont.load_default(_LETTERS)
    left = max(math.ceil(font.getlength(name)) for name in bands[0])
    left += _MARGIN + (_GAP if left else 0)
    width = left + max(strip.shape[1] for band in bands for strip in band.values()) + _MARGIN
    width = max(width, _NARROWEST) if title else width
    lines: list[str] = []
    for word in title.split():
        if lines and font.getlength(f"{lines[-1]} {word}") <= width - 2 * _MARGIN:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    spacing = round(1.4 * _LETTERS)
    top = _MARGIN + len(lines) * spacing + (_GAP if lines else 0)
    heights = [sum(strip.shape[0] for strip in band.values()) for band in bands]
    paper = Image.new("RGB", (width, top + sum(heights) + _BETWEEN * (len(bands) - 1) + _MARGIN), _PAPER)
    draw = ImageDraw.Draw(paper)
    for number, line in enumerate(lines):
        draw.text((_MARGIN, _MARGIN + number * spacing), line, _INK, font)
    for band in bands:
        for name, strip in band.items():
            middle = top + strip.shape[0] // 2
            draw.text((left - _GAP, middle), name, _INK, font, anchor="rm")
            paper.paste(Image.fromarray(strip), (left, top))
            top += strip.shape[0]
        top += _BETWEEN
    return np.asarray(paper)
