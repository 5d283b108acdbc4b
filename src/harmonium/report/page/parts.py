"""The parts of a page that the template knows how to show: sections of remarks, tables and pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harmonium.report.page.figures import Chart


class Remark(NamedTuple):
    """One sentence, "good", a "note" or a "caution"."""

    level: str
    text: str


class Grid(NamedTuple):
    """A table: the head of its columns, or none; rows of texts; the rows that are marked."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: Sequence[bool] = ()


class Picture(NamedTuple):
    """Images under a title: (height, width) or (height, width, 3) bytes, and how to read them."""

    title: str
    caption: str
    pixels: NDArray[np.uint8]

    @property
    def uri(self) -> str:
        """The picture as a data URI, in at most 256 colours, which halves it."""
        from PIL import Image  # slow to import, and only needed here

        buffer = io.BytesIO()
        image = Image.fromarray(np.ascontiguousarray(self.pixels))
        image.convert("P", palette=Image.Palette.ADAPTIVE).save(buffer, format="PNG", optimize=True)
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


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
