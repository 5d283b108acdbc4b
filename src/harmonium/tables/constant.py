"""Columns without a unit, of which nothing is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np

from harmonium.data import Series
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.column import IGNORE, ColumnCodec, name_of


@final
@dataclass(frozen=True, kw_only=True)
class Constant(ColumnCodec):
    """A column without a unit: it has no states, and its only value comes back.

    Attributes:
        value: the only one; None: there are several, or none, and cells come back missing.
        numeric: whether the column holds numbers.
    """

    kind: str = IGNORE
    value: str | float | int | None = None
    numeric: bool = False

    width = 0

    @classmethod
    def of(cls, cells: Series) -> Self:
        """Describes a column that is to be left out."""
        seen = cells.values[~cells.missing]
        one = seen[0] if len(seen) and (seen == seen[0]).all() else None
        value = one.item() if isinstance(one, np.generic) else one
        value = value if isinstance(value, (str, float, int)) else None
        return cls(name=name_of(cells), dtype=cells.dtype, value=value, numeric=cells.numeric)

    @classmethod
    def fields_of(cls, cells: Series, unit: type[Layer], weights: Array | None) -> dict[str, Any]:
        raise ValueError("expected a column with a unit")

    def states_of(self, values: Array) -> Array:
        return np.empty((len(values), 0))

    def cells_of(self, states: Array) -> Array:
        missing = np.nan if self.numeric else None
        return np.full(
            len(states), missing if self.value is None else self.value, float if self.numeric else object
        )
