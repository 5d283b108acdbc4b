"""Columns of real numbers between two ends."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any, final

import numpy as np

from harmonium import _checks
from harmonium.data import Encoder, Identity, Series, Standardise
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.cells import numbers_of
from harmonium.tables.column import ColumnCodec, Seen


@final
@dataclass(frozen=True, kw_only=True)
class Interval(ColumnCodec):
    """Numbers from ``low`` to ``high`` in [0, 1].

    Attributes:
        low: Number of the state 0.
        high: Number of the state 1, above it.
    """

    low: float = 0.0
    high: float = 1.0

    serves = ("interval", "fractions")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _checks.real(self.low, "low") < _checks.real(self.high, "high"):
            raise ValueError(f"high: expected a number above {self.low:g}, received {self.high:g}")

    @classmethod
    def fields_of(
        cls,
        cells: Series,
        unit: type[Layer],
        weights: Array | None,
        *,
        low: float | None = None,
        high: float | None = None,
    ) -> dict[str, Any]:
        """Takes the ends that are given. Numbers in [0, 1] stay as they are, others get room for one."""
        seen = numbers_of(cells)
        first, last = float(seen.min()), float(seen.max())
        if unit.coding == "fractions":
            _refuse_beyond_1(first, last)
        if low is None and high is None and first >= 0 and last <= 1:
            return {"ends": (0.0, 1.0)}
        room = (last - first) / len(seen)
        bottom = first - room if low is None else _checks.real(low, "low")
        top = last + room if high is None else _checks.real(high, "high")
        if bottom > first or top < last:
            raise ValueError(
                f"low, high: expected an interval around {first:g} to {last:g}, which are there, "
                f"received {bottom:g} to {top:g}"
            )
        ends = (first, last) if low is None and high is None else (bottom, top)
        return {"low": bottom, "high": top if top > bottom else bottom + 1, "ends": ends}

    @classmethod
    def of_array(cls, unit: type[Layer], seen: Seen) -> tuple[int, Encoder]:
        if unit.coding == "fractions":
            _refuse_beyond_1(seen.low, seen.high)
        if seen.low >= 0 and seen.high <= 1:
            return 2, Identity()
        return 2, Standardise(seen.low, (seen.high - seen.low) or 1.0)

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        return 0.0, 1.0

    def expected(self) -> str:
        return f"a number in [{self.low:g}, {self.high:g}] as in fit"

    def states_of(self, values: Array) -> Array:
        states = (values - self.low) / (self.high - self.low)
        return np.where((states >= 0) & (states <= 1), states, np.nan)

    def cells_of(self, states: Array) -> Array:
        return states * (self.high - self.low) + self.low

    def log_slopes_of(self, states: Array) -> Array:
        return np.full(states.shape, -log(self.high - self.low))


def _refuse_beyond_1(low: float, high: float) -> None:
    if low < 0 or high > 1:
        remedy = "divide grey levels by their largest value"
        raise ValueError(f"expected numbers in [0, 1], received {low:g} to {high:g}; {remedy}")
