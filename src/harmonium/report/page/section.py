"""A part of a page: what the template knows how to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from harmonium.report.page.charts import Chart
from harmonium.report.page.pictures import Picture
from harmonium.report.page.verdict import Remark


class Grid(NamedTuple):
    """A table: the head of its columns, or none; rows of texts; the rows that are marked."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: Sequence[bool] = ()


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
