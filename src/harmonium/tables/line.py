"""Columns of real numbers along a straight line, some with bounds."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any, final

import numpy as np
import torch

from harmonium import _checks
from harmonium.data import Encoder, Identity, Series, Standardise
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.cells import mean_deviation, numbers_of, weights_of
from harmonium.tables.column import Real, Seen


@final
@dataclass(frozen=True, kw_only=True)
class Line(Real):
    """Numbers as ``(x - mean) / scale``.

    Attributes:
        mean: Number of the state 0.
        scale: Distance of two numbers whose states differ by 1, above 0.
        low: the least state; None: no bound.
        high: the largest state; None: no bound.
    """

    mean: float
    scale: float
    low: float | None = None
    high: float | None = None

    serves = ("standardised", "scaled", "interval", "fractions")
    transform = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if _checks.real(self.mean, "mean") != self.mean or _checks.real(self.scale, "scale") <= 0:
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
        """Standardises numbers, or scales them by their root mean square, or moves them into [0, 1].

        Of units on [0, 1] ``low`` and ``high`` are the ends of what there may be. Without either, numbers in
        [0, 1] stay as they are, and others have room for one cell beyond each end.
        """
        seen, row_weights = numbers_of(cells), weights_of(cells, weights)
        first, last, count = float(seen.min()), float(seen.max()), len(seen)
        if unit.coding == "standardised":
            mean, scale = mean_deviation(seen, row_weights)
            return {"mean": mean, "scale": scale}
        if unit.coding == "scaled":
            _refuse_negative(first)
            scale = float(np.sqrt(np.average(seen**2, weights=row_weights))) or 1.0
            return {"mean": 0.0, "scale": scale, "low": 0.0, "ends": (0.0, np.inf)}
        unbounded = low is None and high is None
        if unit.coding == "fractions":
            _refuse_beyond_1(first, last)
        if unbounded and first >= 0 and last <= 1:
            return {"mean": 0.0, "scale": 1.0, "low": 0.0, "high": 1.0, "ends": (0.0, 1.0)}
        room = (last - first) / count
        bottom = first - room if low is None else _checks.real(low, "low")
        top = last + room if high is None else _checks.real(high, "high")
        if bottom > first or top < last:
            raise ValueError(
                f"low, high: expected an interval around {first:g} to {last:g}, which are there, "
                f"received {bottom:g} to {top:g}"
            )
        ends = (first, last) if unbounded else (bottom, top)
        return {"mean": bottom, "scale": (top - bottom) or 1.0, "low": 0.0, "high": 1.0, "ends": ends}

    @classmethod
    def of_array(cls, unit: type[Layer], seen: Seen) -> tuple[int, Encoder]:
        if unit.coding == "standardised":
            return 2, Standardise.from_moments(*seen.moments)
        if unit.coding == "scaled":
            _refuse_negative(seen.low)
            mean, variance = seen.moments
            return 2, Standardise.from_moments(torch.zeros_like(mean), variance + mean.square())
        if unit.coding == "fractions":
            _refuse_beyond_1(seen.low, seen.high)
        if seen.low >= 0 and seen.high <= 1:
            return 2, Identity()
        return 2, Standardise(seen.low, (seen.high - seen.low) or 1.0)

    @property
    def complexity(self) -> int:
        return 0

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        return self.low, self.high

    def expected(self) -> str:
        if self.high is not None:
            return f"a number in [{self.mean:g}, {self.mean + self.scale:g}] as in fit"
        return "a number" if self.low is None else "a number from 0"

    def states_of(self, values: Array) -> Array:
        states = (values - self.mean) / self.scale
        low, high = (-np.inf if self.low is None else self.low), (np.inf if self.high is None else self.high)
        return np.where((states >= low) & (states <= high), states, np.nan)

    def cells_of(self, states: Array) -> Array:
        return states * self.scale + self.mean

    def log_slopes_of(self, states: Array) -> Array:
        return np.where(np.isnan(states), np.nan, -log(self.scale))


def _refuse_negative(low: float) -> None:
    if low < 0:
        raise ValueError(f"expected numbers from 0, received {low:g}")


def _refuse_beyond_1(low: float, high: float) -> None:
    if low < 0 or high > 1:
        remedy = "divide grey levels by their largest value"
        raise ValueError(f"expected numbers in [0, 1], received {low:g} to {high:g}; {remedy}")
