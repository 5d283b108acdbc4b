"""Pictures inside a page: strips of small images as data URIs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harmonium.report.images import image_grid, png
from harmonium.report.receptive_fields import signed_pixels

_ACROSS = 480  # pixels of a strip, about
_HIDDEN = np.array([120, 120, 190])  # of pixels that a model was not given


class Strip(NamedTuple):
    """Images under one label.

    Attributes:
        label: what they are.
        uri: the picture.
        width: the share of the page's column that it fills.
    """

    label: str
    uri: str
    width: float


class Picture(NamedTuple):
    """Strips below one another.

    Attributes:
        title: of them all.
        caption: how to read them.
        strips: in order.
    """

    title: str
    caption: str
    strips: list[Strip]


class Greys:
    """Images of one shape, drawn with the black and white of ``reference``.

    Args:
        shape: (h, w) or (h, w, channels) with 1 or 3 channels.
        reference: numbers whose range is that of the greys, such as the data; [0, 1] where they fit in.
    """

    def __init__(self, shape: Sequence[int], reference: NDArray[Any]) -> None:
        low, high = float(reference.min()), float(reference.max())
        self._low, self._span = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high - low or 1.0)
        self._shape = (*shape, 1)[:3]

    def strip(
        self, label: str, rows: NDArray[Any], columns: int = 10, hidden: NDArray[Any] | None = None
    ) -> Strip:
        """Rows as images, ``columns`` beside each other; where ``hidden`` is true a colour stands instead."""
        levels = np.clip((np.asarray(rows, dtype=np.float64) - self._low) / self._span, 0, 1) * 255
        pixels = np.repeat(levels.reshape(len(rows), *self._shape), 3 // self._shape[2], axis=3)
        if hidden is not None:
            mask = np.repeat(hidden.reshape(len(rows), *self._shape), 3 // self._shape[2], axis=3)
            pixels = np.where(mask, _HIDDEN, pixels)
        return _strip(label, pixels, columns)


def signed(label: str, rows: NDArray[Any], shape: Sequence[int], columns: int = 10) -> Strip:
    """Images of signed numbers, each on its own scale: white is 0, red positive, blue negative."""
    return _strip(label, signed_pixels(rows, shape), columns)


def _strip(label: str, pixels: NDArray[Any], columns: int) -> Strip:
    bytes_ = np.rint(pixels).clip(2, 255).astype(np.uint8)  # all 0 and 1 would be taken for black and white
    side = max(pixels.shape[1:3])
    picture = image_grid(bytes_, None, columns, enlarge=-(-_ACROSS // columns // side))
    uri = "data:image/png;base64," + base64.b64encode(png(picture)).decode()
    return Strip(label, uri, min(1.0, len(pixels) / columns))
