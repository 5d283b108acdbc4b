"""The parts of a page that the template knows how to show: sections of remarks, tables and pictures."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harmonium.report.images import colour, encode_png, image_grid
from harmonium.report.page.charts import Chart

_ACROSS = 480  # pixels of a strip, about


class Remark(NamedTuple):
    """One sentence, "good", a "note" or a "caution"."""

    level: str
    text: str


class Grid(NamedTuple):
    """A table: the head of its columns, or none; rows of texts; the rows that are marked."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: Sequence[bool] = ()


class Strip(NamedTuple):
    """Images under one label: the label, a data URI, and the share of the page's column that they fill."""

    label: str
    uri: str
    width: float

    @classmethod
    def of(cls, label: str, pixels: NDArray[np.uint8], columns: int) -> Strip:
        """Returns images, (n, h, w, 3), as a strip with so many beside each other."""
        bytes_ = pixels.clip(2, 255)  # all 0 and 1 would be taken for black and white
        side = max(pixels.shape[1:3])
        picture = image_grid(bytes_, None, columns, enlarge=-(-_ACROSS // columns // side))
        uri = "data:image/png;base64," + base64.b64encode(encode_png(picture)).decode()
        return cls(label, uri, min(1.0, len(pixels) / columns))


class Picture(NamedTuple):
    """Strips below one another, with their title and how to read them."""

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
        self._limits = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high if high > low else low + 1.0)
        self._shape = (*shape, 1)[:3]

    def strip(
        self, label: str, rows: NDArray[Any], columns: int = 10, hidden: NDArray[Any] | None = None
    ) -> Strip:
        """Returns rows as images, ``columns`` beside each other; a colour stands where ``hidden`` is true."""
        shape = (len(rows), *self._shape)
        mask = np.zeros(shape, dtype=bool) if hidden is None else hidden.reshape(shape)
        return Strip.of(label, colour(np.reshape(rows, shape), self._limits, mask), columns)


@dataclass
class Section:
    """A part of the page; ``absent`` says why there is nothing to show."""

    id: str
    title: str
    lead: str = ""
    remarks: list[Remark] = field(default_factory=list)
    charts: list[Chart | None] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    tables: list[Grid] = field(default_factory=list)
    absent: str = ""
