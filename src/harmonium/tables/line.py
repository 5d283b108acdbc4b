"""Columns of real numbers along a straight line."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import Any, final

import numpy as np

from harmonium import _checks
from harmonium.data import Series
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.cells import mean_deviation, numbers_of, weights_of
from harmonium.tables.column import ColumnCodec

_BOUNDS = {"scaled": (0.0, None), "interval": (0.0, 1.0), "fractions": (0.0, 1.0)}  # of states, by coding


@final
@dataclass(frozen=True, kw_only=True)
class Line(ColumnCodec):
    """Numbers as ``(x - mean) / scale``: standardised, from 0 by their root mean square, or within [0, 1].

    Attributes:
        mean: Number of the state 0.
        scale: Distance of two numbers whose states differ by 1, above 0.
    """

    mean: float
    scale: float

    serves = ("standardised", "scaled", "interval", "fractions")

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.real(self.mean, "mean")
        if _checks.real(self.scale, "scale") <= 0:
            raise ValueError(f"scale: expected a positive number, received {self.scale}")

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
        """Takes the ends of an interval that are given; without, one gets room for another number.

        Numbers in [0, 1] stay as they are in an interval.
        """
        seen, row_weights = numbers_of(cells), weights_of(cells, weights)
        first, last = float(seen.min()), float(seen.max())
        refuse_beyond(unit.coding, first, last)
        if unit.coding in ("standardised", "scaled"):
            if low is not None or high is not None:
                raise ValueError(f"low, high: expected none for {unit.kind} units, received {low} and {high}")
            if unit.coding == "standardised":
                mean, scale = mean_deviation(seen, row_weights)
                return {"mean": mean, "scale": scale}
            scale = float(np.sqrt(np.average(seen**2, weights=row_weights))) or 1.0
            return {"mean": 0.0, "scale": scale, "ends": (0.0, inf)}
        if low is None and high is None and first >= 0 and last <= 1:
            return {"mean": 0.0, "scale": 1.0, "ends": (0.0, 1.0)}
        room = (last - first) / len(seen)
        bottom = first - room if low is None else _checks.real(low, "low")
        top = last + room if high is None else _checks.real(high, "high")
        if bottom > first or top < last:
            raise ValueError(
                f"low, high: expected an interval around {first:g} to {last:g}, which are there, "
                f"received {bottom:g} to {top:g}"
            )
        ends = (first, last) if low is None and high is None else (bottom, top)
        return {"mean": bottom, "scale": (top - bottom) or 1.0, "ends": ends}

    @property
    def complexity(self) -> int:
        return 0

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        return _BOUNDS.get(Layer.registry[self.kind].coding, (None, None))

    def states_of(self, values: Array) -> Array:
        states, (low, high) = (values - self.mean) / self.scale, self.bounds
        beyond = (states < (-inf if low is None else low)) | (states > (inf if high is None else high))
        return np.where(beyond, np.nan, states)

    def cells_of(self, states: Array) -> Array:
        return states * self.scale + self.mean

    def log_slopes_of(self, states: Array) -> Array:
        return np.full(states.shape, -log(self.scale))


def refuse_beyond(coding: str, low: float, high: float) -> None:
    """Refuses numbers, from ``low`` to ``high``, that units have no states for."""
    if coding == "scaled" and low < 0:
        raise ValueError(f"expected numbers from 0, received {low:g}")
    if coding == "fractions" and (low < 0 or high > 1):
        remedy = "divide grey levels by their largest value"
        raise ValueError(f"expected numbers in [0, 1], received {low:g} to {high:g}; {remedy}")
