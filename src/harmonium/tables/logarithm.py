"""Columns of positive numbers by their logarithm."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any, final

import numpy as np

from harmonium import _checks
from harmonium.data import Series
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.cells import mean_deviation, numbers_of, weights_of
from harmonium.tables.column import ColumnCodec


@final
@dataclass(frozen=True, kw_only=True)
class Logarithm(ColumnCodec):
    """Numbers as ``(ln(x + shift) - offset) / scale``.

    Attributes:
        offset: Mean of the logarithms, finite.
        scale: Their standard deviation, finite and positive.
        shift: Number added before the logarithm, at least 0.
    """

    offset: float
    scale: float
    shift: float = 0.0

    serves = ("standardised",)
    transform = "log"
    curved = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.real(self.offset, "offset")
        _checks.real(self.shift, "shift", 0.0)
        if _checks.real(self.scale, "scale") <= 0:
            raise ValueError(f"scale: expected a positive number, received {self.scale}")

    @classmethod
    def fields_of(cls, cells: Series, unit: type[Layer], weights: Array | None) -> dict[str, Any]:
        """Standardises logarithms: of positive numbers, or of whole ones from 0 plus a half."""
        seen = numbers_of(cells)
        counts = seen.min() == 0 and not (seen % 1).any()
        if seen.min() <= 0 and not counts:
            raise ValueError(
                f'expected positive numbers, or whole ones from 0, for "log", received {seen.min():g}'
            )
        shift = 0.5 if counts else 0.0
        offset, scale = mean_deviation(np.log(seen + shift), weights_of(cells, weights))
        return {"offset": offset, "scale": scale, "shift": shift}

    def states_of(self, values: Array) -> Array:
        x = values + self.shift
        return (np.log(np.where(x > 0, x, np.nan)) - self.offset) / self.scale

    def cells_of(self, states: Array) -> Array:
        return np.exp(states * self.scale + self.offset) - self.shift

    def log_slopes_of(self, states: Array) -> Array:
        return -(states * self.scale + self.offset) - log(self.scale)
