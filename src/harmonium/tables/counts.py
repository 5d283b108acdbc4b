"""Columns of counts, and of other whole numbers in equal steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from harmonium import _checks
from harmonium.data import Series
from harmonium.data.frame import LONG
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.cells import numbers_of
from harmonium.tables.column import ColumnCodec


@final
@dataclass(frozen=True, kw_only=True)
class Counts(ColumnCodec):
    """Whole numbers as how many steps they are above the least.

    Attributes:
        largest: above ``lowest``.
        lowest: the least.
        stride: Steps between two numbers, at least 1.
    """

    largest: int
    lowest: int = 0
    stride: int = 1

    serves = ("counts",)

    def __post_init__(self) -> None:
        for name in ("largest", "lowest"):
            value = getattr(self, name)
            _checks.instance(value, name, int, "a whole number")
            if abs(value) >= LONG:
                raise ValueError(f"{name}: expected a whole number below 2^53, received {value}")
        if self.largest <= self.lowest:
            raise ValueError(f"largest: expected at least {self.lowest + 1}, received {self.largest}")
        if (self.largest - self.lowest) % _checks.positive_int(self.stride, "step"):
            raise ValueError(f"step: expected a part of {self.largest - self.lowest}, received {self.stride}")
        super().__post_init__()
        object.__setattr__(self, "n_states", (self.largest - self.lowest) // self.stride + 1)

    @classmethod
    def fields_of(
        cls,
        cells: Series,
        unit: type[Layer],
        weights: Array | None,
        *,
        largest: int | None = None,
        lowest: int | None = None,
        step: int | None = None,
    ) -> dict[str, Any]:
        seen, least, stride = numbers_of(cells), lowest or 0, 1 if step is None else step
        wrong = seen[(seen < least) | (seen != np.round(seen)) | ((seen - least) % stride != 0)]
        if len(wrong):
            raise ValueError(f"expected counts from {least}{_in_words(stride)}, received {wrong[0]:g}")
        most = max(least + stride, int(seen.max()))
        if largest is not None and largest < most:
            raise ValueError(f"largest: expected at least {most}, which is there, received {largest}")
        most = most if largest is None else largest
        return {"largest": most, "lowest": least, "stride": stride, "ends": (least, most)}

    @property
    def grid(self) -> float:
        return float(self.stride)

    def nearest(self, numbers: Array) -> Array:
        steps = np.round((np.clip(numbers, self.lowest, self.largest) - self.lowest) / self.stride)
        return steps * self.stride + self.lowest

    def states_of(self, values: Array) -> Array:
        states = (values - self.lowest) / self.stride
        known = (states >= 0) & (self.largest >= values) & (np.round(states) == states)
        return np.where(known, states, np.nan)

    def cells_of(self, states: Array) -> Array:
        return states * self.stride + self.lowest


def _in_words(stride: int) -> str:
    """Returns what a message adds about steps other than 1."""
    return "" if stride == 1 else f" in steps of {stride}"
