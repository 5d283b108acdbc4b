"""Columns of listed values: labels, booleans, two numbers, and ranks of a few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from harmonium import _checks
from harmonium.data import Series
from harmonium.data.frame import missing_in
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.cells import all_of, few, values_of
from harmonium.tables.column import ColumnCodec, states_of

_OTHERS = "other"  # rare labels and new ones, which share a state and come back by this name
_COMMON = 50  # labels at most with a state of their own beside rare ones: a unit has as many states
_BOOLEANS: dict[Any, bool] = {"False": False, "True": True}  # a text file has the names of booleans


@final
@dataclass(frozen=True, kw_only=True)
class Labels(ColumnCodec):
    """Values, each with a state: one-hot, or a number that the unit takes.

    Attributes:
        values: Values in the order of their states, at least one.
        states: Numbers, rising, no fewer than values; empty: states are one-hot.
        shared: whether the last value, ``"other"``, stands for rare labels and for new ones.
    """

    values: tuple[Any, ...] = ()  # type: ignore[misc]
    states: tuple[float, ...] = ()
    shared: bool = False

    serves = ("one-hot", "states", "counts")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "values", tuple(self.values))
        object.__setattr__(self, "states", tuple(_checks.real(state, "states") for state in self.states))
        if not self.values:
            raise ValueError("values: expected at least one, received none")
        for value in self.values:
            _checks.instance(value, "values", str | float | int, "text, numbers and booleans")
        n_states = len(self.states) or max(2, len(self.values))
        if n_states < max(2, len(self.values)) or sorted(set(self.states)) != list(self.states):
            raise ValueError(
                f"states: expected rising numbers for {len(self.values)} values, received others"
            )
        object.__setattr__(self, "n_states", n_states)
        object.__setattr__(self, "width", 1 if self.states else n_states)

    @classmethod
    def fields_of(
        cls,
        cells: Series,
        unit: type[Layer],
        weights: Array | None,
        *,
        values: Sequence[Any] | None = None,
        rare: int | None = None,
    ) -> dict[str, Any]:
        """Takes ``values``, or those that are there, in their order; of counts their ranks.

        Of one-hot states labels of fewer than ``rare`` cells share one, and so do all beyond the ``_COMMON``
        commonest. Numbers that are states of a unit with more than two are coded as they are. Else as many
        labels as the unit has states become these, of two states at most two.
        """
        if rare is not None and unit.coding != "one-hot":
            raise ValueError(f"rare: expected none for {unit.kind} units, received {rare}")
        if unit.coding == "counts":
            ranks = tuple(sorted(all_of(cells, values)))
            return {"values": ranks, "states": tuple(map(float, range(max(2, len(ranks)))))}
        if unit.coding == "one-hot":
            labels = all_of(cells, values)
            return {"values": labels} if rare is None else _share(cells, labels, rare)
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
        if not self.states or not all(type(value) is float for value in self.values):
            return None
        return (max(self.values) - min(self.values)) / max(1, len(self.values) - 1) or 1.0

    def nearest(self, numbers: Array) -> Array:
        known = np.sort(np.array(self.values))
        places = np.searchsorted((known[1:] + known[:-1]) / 2, numbers)
        return np.where(np.isnan(numbers), np.nan, known[places.clip(max=len(known) - 1)])

    def states_of(self, values: Array) -> Array:
        index = {value: i for i, value in enumerate(self.values)}
        for value, i in list(index.items()):  # a text file has the names of what other files have as booleans
            index.setdefault(str(value) if isinstance(value, bool) else _BOOLEANS.get(value, value), i)
        unknown = len(self.values) - 1 if self.shared else -1
        places = np.array([index.get(value, unknown) for value in values.tolist()], dtype=int)
        places[missing_in(values)] = -1
        known: Array = np.array(self.states) if self.states else np.eye(self.width)
        known = np.concatenate([known, np.full_like(known[:1], np.nan)])
        return known[places]  # type: ignore[no-any-return]

    def cells_of(self, states: Array) -> Array:
        if self.states:
            known, hole = np.array(self.states), np.isnan(states)
            places = np.searchsorted((known[1:] + known[:-1]) / 2, states)
        else:
            hole = np.isnan(states[:, 0])
            places = np.where(hole[:, None], 0.0, states).argmax(1)
        places = np.minimum(places, len(self.values) - 1)
        if all(type(value) is float for value in self.values):
            return np.where(hole, np.nan, np.array(self.values)[places])
        return np.array([*self.values, None], dtype=object)[np.where(hole, len(self.values), places)]

    def log_shares_of(self, values: Array, beyond: str) -> Array:
        return np.zeros(len(values)) if self.shared else super().log_shares_of(values, beyond)


def _share(cells: Series, labels: tuple[Any, ...], rare: int) -> dict[str, Any]:
    """Returns the fields of labels, of which those of fewer than ``rare`` cells share a state."""
    _checks.positive_int(rare, "rare")
    number = Counter(cells.values[~cells.missing].tolist())
    limit = max(rare, sorted(number.values())[-_COMMON] if len(number) > _COMMON else 0)
    common = tuple(value for value in labels if number[value] >= limit and value != _OTHERS)[:_COMMON]
    if len(labels) - len(common) < 2 or not all(isinstance(value, str) for value in labels):
        return {"values": labels}
    return {"values": (*common, _OTHERS), "shared": True}
