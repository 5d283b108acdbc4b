"""Columns of real numbers along a straight line."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import Any, final

import numpy as np
import torch

from harmonium import _checks
from harmonium.data import Encoder, Series, Standardise
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.cells import mean_deviation, numbers_of, weights_of
from harmonium.tables.column import ColumnCodec, Seen


@final
@dataclass(frozen=True, kw_only=True)
class Line(ColumnCodec):
    """Numbers as ``(x - mean) / scale``: standardised, or from 0 by their root mean square.

    Attributes:
        mean: Number of the state 0.
        scale: Distance of two numbers whose states differ by 1, above 0.
        positive: whether there are no states below 0.
    """

    mean: float
    scale: float
    positive: bool = False

    serves = ("standardised", "scaled")

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.real(self.mean, "mean")
        if _checks.real(self.scale, "scale") <= 0:
            raise ValueError(f"scale: expected a positive number, received {self.scale}")

    @classmethod
    def fields_of(cls, cells: Series, unit: type[Layer], weights: Array | None) -> dict[str, Any]:
        seen, row_weights = numbers_of(cells), weights_of(cells, weights)
        if unit.coding == "standardised":
            mean, scale = mean_deviation(seen, row_weights)
            return {"mean": mean, "scale": scale}
        _refuse_negative(seen.min())
        scale = float(np.sqrt(np.average(seen**2, weights=row_weights))) or 1.0
        return {"mean": 0.0, "scale": scale, "positive": True, "ends": (0.0, inf)}

    @classmethod
    def of_array(cls, unit: type[Layer], seen: Seen) -> tuple[int, Encoder]:
        mean, variance = seen.moments
        if unit.coding == "standardised":
            return 2, Standardise.from_moments(mean, variance)
        _refuse_negative(seen.low)
        return 2, Standardise.from_moments(torch.zeros_like(mean), variance + mean.square())

    @property
    def complexity(self) -> int:
        return 0

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        return (0.0 if self.positive else None), None

    def expected(self) -> str:
        return "a number from 0" if self.positive else "a number"

    def states_of(self, values: Array) -> Array:
        states = (values - self.mean) / self.scale
        return np.where((states < 0) & self.positive, np.nan, states)

    def cells_of(self, states: Array) -> Array:
        return states * self.scale + self.mean

    def log_slopes_of(self, states: Array) -> Array:
        return np.full(states.shape, -log(self.scale))


def _refuse_negative(low: float) -> None:
    if low < 0:
        raise ValueError(f"expected numbers from 0, received {low:g}")
