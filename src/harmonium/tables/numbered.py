"""Columns of values whose states are numbers, such as ranks and the two states of a unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from harmonium import _checks
from harmonium.data import Series
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.cells import all_of, few, values_of
from harmonium.tables.column import states_of
from harmonium.tables.labels import Labels


@final
@dataclass(frozen=True, kw_only=True)
class Numbered(Labels):
    """Values as states that are numbers, which rise; others than numbers are labels.

    Attributes:
        values: Values, at least one, and no more than there are states.
        states: Numbers that the unit takes, rising.
    """

    values: tuple[Any, ...] = ()  # type: ignore[misc]
    states: tuple[float, ...] = (0.0, 1.0)

    serves = ("states", "counts")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "states", tuple(_checks.real(state, "states") for state in self.states))
        object.__setattr__(self, "n_states", len(self.states))
        if len(self.states) < max(2, len(self.values)) or sorted(set(self.states)) != list(self.states):
            raise ValueError(
                f"states: expected rising numbers for {len(self.values)} values, received others"
            )

    @classmethod
    def fields_of(
        cls,
        cells: Series,
        unit: type[Layer],
        weights: Array | None,
        *,
        values: Sequence[Any] | None = None,
    ) -> dict[str, Any]:
        """Takes ``values``, or those that are there, in their order; of counts their ranks.

        Numbers that are states of a unit with more than two are coded as they are. Else as many labels as the
        unit has states become these, of two states at most two.
        """
        if unit.coding == "counts":
            ranks = tuple(sorted(all_of(cells, values)))
            return {"values": ranks, "states": tuple(map(float, range(max(2, len(ranks)))))}
        states = states_of(unit.kind)
        if values is None and len(states) > 2 and cells.numeric and set(values_of(cells)) <= set(states):
            return {"values": states, "states": states}
        values = all_of(cells, values)
        if len(states) == 2 and len(values) > 2:
            raise ValueError(
                f'expected at most two values, received {len(values)}, {few(values)}; "categorical" takes '
                "them"
            )
        if len(states) > 2 and len(values) != len(states):
            raise ValueError(
                f"expected {few(states)} or {len(states)} labels for them, received {few(values)}; values "
                "names all labels in their order"
            )
        return {"values": values, "states": states}

    @property
    def grid(self) -> float | None:
        if not all(type(value) is float for value in self.values):
            return None
        return (max(self.values) - min(self.values)) / max(1, len(self.values) - 1) or 1.0

    def nearest(self, numbers: Array) -> Array:
        known = np.sort(np.array(self.values))
        places = np.searchsorted((known[1:] + known[:-1]) / 2, numbers)
        return np.where(np.isnan(numbers), np.nan, known[places.clip(max=len(known) - 1)])

    def states_of(self, values: Array) -> Array:
        index = self.indices(values)
        known = np.array([*self.states, np.nan])
        states: Array = known[np.where(np.isnan(index), len(self.states), index).astype(int)]
        return states

    def cells_of(self, states: Array) -> Array:
        known = np.array(self.states)
        nearest = np.searchsorted((known[1:] + known[:-1]) / 2, states)
        return self.at(np.minimum(nearest, len(self.values) - 1), np.isnan(states))
