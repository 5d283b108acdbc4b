"""Images in a terminal, two pixels to a character."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.style import Style
from rich.text import Text

GAP = 1  # columns and rows of characters between images


def half_blocks(images: NDArray[Any], columns: int, rows: int) -> Text:
    """As many images as a field of characters holds, side by side.

    Images of which fewer than four would fit are made smaller, by means over squares of pixels.

    Args:
        images: (n, h, w, channels) with 1 or 3 channels, in [0, 1].
        columns: of the field.
        rows: of the field; each shows two rows of pixels.
    """
    images = np.clip(np.nan_to_num(np.asarray(images, dtype=np.float64)), 0, 1)
    factor = 1
    while _held(images, factor, columns, rows)[2] < min(4, len(images)) and factor < max(images.shape[1:3]):
        factor += 1
    across, _, count = _held(images, factor, columns, rows)
    if count == 0:
        return Text()
    tiles = np.rint(255 * _smaller(images[:count], factor)).astype(int)
    if tiles.shape[1] % 2:
        tiles = np.concatenate([tiles, np.zeros_like(tiles[:, :1])], axis=1)
    tiles = np.repeat(tiles, 3 // tiles.shape[3], axis=3)
    text = Text()
    for first in range(0, count, across):
        if first:
            text.append("\n" * (GAP + 1))
        for y in range(0, tiles.shape[1], 2):
            text.append("\n" if y else "")
            for tile in tiles[first : first + across]:
                for top, bottom in zip(tile[y], tile[y + 1], strict=True):
                    text.append("▀", Style(color=Color.from_rgb(*top), bgcolor=Color.from_rgb(*bottom)))
                text.append(" " * GAP)
    return text


def _held(images: NDArray[Any], factor: int, columns: int, rows: int) -> tuple[int, int, int]:
    """How many of them stand beside each other, below each other, and in all."""
    height, width = (-(-side // factor) for side in images.shape[1:3])
    across = (columns + GAP) // (width + GAP)
    down = (rows + GAP) // (-(-height // 2) + GAP)
    across = max(across, 0)
    return across, down, min(across * max(down, 0), len(images))


def _smaller(images: NDArray[Any], factor: int) -> NDArray[Any]:
    """Means over squares of pixels; those at the edges may be cut."""
    for axis in (1, 2):
        side = images.shape[axis]
        starts = np.arange(0, side, factor)
        sizes = np.diff([*starts, side])
        shape = [1, 1, 1, 1]
        shape[axis] = len(starts)
        images = np.add.reduceat(images, starts, axis=axis) / sizes.reshape(shape)
    return images
