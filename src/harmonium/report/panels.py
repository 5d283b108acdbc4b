"""Images in several states, such as given, truth and result, with labels and a title."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from harmonium import _checks
from harmonium.report.images import grey_levels, tiled, write_png

HIDDEN = (120, 120, 190)  # the colour of pixels that a model was not given
_MARGIN, _BETWEEN, _GAP, _LETTERS = 12, 12, 8, 14  # pixels
_NARROWEST = 360  # where there is a title
_INK, _PAPER = (30, 30, 30), (255, 255, 255)
_ACROSS = 10  # images of a strip, or more where there are many


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
        hidden: for some panels which pixels are not shown, (n, pixels): these are violet, and may be NaN.
        enlarge: side of the square that a pixel becomes; None: as for ``image_grid``.

    Returns:
        The picture, (height, width, 3).

    Raises:
        ValueError: no panel, panels of different shapes, an image_shape or limits that do not fit, NaN that
            is not hidden, or a path that does not end in .png.
    """
    arrays = {
        name: np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x) for name, x in panels.items()
    }
    shapes = {name: x.shape for name, x in arrays.items()}
    if len(set(shapes.values())) != 1 or min(next(iter(shapes.values())), default=0) < 1:
        raise ValueError(
            f"panels: expected images, of one number and size in all panels, received {shapes or 'no panel'}"
        )
    n, h, w, channels = (len(next(iter(arrays.values()))), *image_shape, 1)[:4]
    size = math.prod(shapes[next(iter(shapes))][1:])
    if len(image_shape) not in (2, 3) or channels not in (1, 3) or h * w * channels != size:
        raise ValueError(
            f"image_shape: expected (h, w), (h, w, 1) or (h, w, 3) of {size} values, "
            f"received {tuple(image_shape)}"
        )
    strips = _coloured(arrays, hidden or {}, limits, (n, h, w, channels))
    many = len(strips) > 1
    if columns is None:
        columns = max(_ACROSS, math.ceil(math.sqrt(n * len(strips))))
    columns = min(_checks.positive_int(columns, "columns"), n)
    step = columns if many else n
    bands = [
        {name: tiled(cells[first : first + step], columns, enlarge) for name, cells in strips.items()}
        for first in range(0, n, step)
    ]
    picture = _laid_out(bands, title)
    if path is not None:
        write_png(picture, path)
    return picture


def _coloured(
    arrays: Mapping[str, NDArray[Any]],
    hidden: Mapping[str, NDArray[np.bool_]],
    limits: tuple[float, float] | None,
    shape: tuple[int, int, int, int],
) -> dict[str, NDArray[np.uint8]]:
    """Every panel as (n, h, w, 3) bytes, all with one black and one white."""
    masks = {name: np.asarray(hidden[name], dtype=bool).reshape(shape) for name in hidden if name in arrays}
    values = {name: x.reshape(shape) for name, x in arrays.items()}
    for name, mask in masks.items():  # any number that is shown elsewhere may stand under the colour
        shown = values[name][~mask]
        values[name] = np.where(mask, shown[0] if shown.size else 0, values[name])
    grey = grey_levels(np.stack(list(values.values())), limits)
    coloured = np.repeat(grey, 3 // shape[3], axis=-1)
    for name, cells in zip(values, coloured, strict=True):
        if name in masks:
            cells[masks[name].any(-1)] = HIDDEN
    return dict(zip(values, coloured, strict=True))


def _laid_out(bands: Sequence[Mapping[str, NDArray[np.uint8]]], title: str) -> NDArray[np.uint8]:
    """Bands of strips below one another on paper, labels on their left, the title above."""
    from PIL import Image, ImageDraw, ImageFont  # slow to import, and only needed here

    font = ImageFont.load_default(_LETTERS)
    names = list(bands[0])
    left = max(math.ceil(font.getlength(name)) for name in names)
    left += _MARGIN + (_GAP if left else 0)
    width = left + max(strip.shape[1] for band in bands for strip in band.values()) + _MARGIN
    width = max(width, _NARROWEST) if title else width
    lines = _broken(title, lambda text: font.getlength(text) <= width - 2 * _MARGIN)
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


def _broken(text: str, fits: Any) -> list[str]:
    """A text in lines that fit."""
    lines: list[str] = []
    for word in text.split():
        if lines and fits(f"{lines[-1]} {word}"):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
