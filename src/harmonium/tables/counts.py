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
    """Whole numbers as how many steps they are above the least, between ``ends``.

    Attributes:
        stride: Steps between two numbers, at least 1.
    """

    stride: int = 1

    serves = ("counts",)

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.ends or (0.0, 0.0)
        if not all(x.is_integer() and abs(x) < LONG for x in (low, high)) or low == high:
            raise ValueError(f"ends: expected two whole numbers below 2^53, received {low:g} and {high:g}")
        if (high - low) % _checks.positive_int(self.stride, "step"):
            raise ValueError(f"step: expected a part of {high - low:g}, received {self.stride}")
        object.__setattr__(self, "n_states", int(high - low) // self.stride + 1)

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
        for name, value in (("largest", largest), ("lowest", lowest)):
            if value is not None and not (isinstance(value, int) and abs(value) < LONG):
                raise ValueError(f"{name}: expected a whole number below 2^53, received {value!r}")
        seen, start, stride = numbers_of(cells), lowest or 0, 1 if step is None else step
        wrong = seen[(seen < start) | (seen != np.round(seen)) | ((seen - start) % stride != 0)]
        if len(wrong):
            steps = "" if stride == 1 else f" in steps of {stride}"
            raise ValueError(f"expected counts from {start}{steps}, received {wrong[0]:g}")
        most = max(start + stride, int(seen.max()))
        if largest is not None and largest < most:
            raise ValueError(f"largest: expected at least {most}, which is there, received {largest}")
        most = most if largest is None else largest
        return {"stride": stride, "ends": (start, most)}

    @property
    def grid(self) -> float:
        return float(self.stride)

    def nearest(self, numbers: Array) -> Array:
        return self.cells_of(np.round((super().nearest(numbers) - self._lowest) / self.stride))

    def states_of(self, values: Array) -> Array:
        states = (values - self._lowest) / self.stride
        known = (states >= 0) & (states < self.n_states) & (np.round(states) == states)
        return np.where(known, states, np.nan)

    def cells_of(self, states: Array) -> Array:
        return states * self.stride + self._lowest

    @property
    def _lowest(self) -> float:
        return self.ends[0] if self.ends else 0.0
