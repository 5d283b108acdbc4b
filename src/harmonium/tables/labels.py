"""Columns of labels, by one-hot states of which rare labels may share the last."""

from __future__ import annotations

import math
from abc import ABC
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
from harmonium.tables.cells import all_of
from harmonium.tables.column import ColumnCodec

_OTHERS = "other"  # rare labels and new ones, which share a state and come back by this name
_COMMON = 50  # labels at most with a state of their own beside rare ones: a unit has as many states
_BOOLEANS: dict[Any, bool] = {"False": False, "True": True}  # a text file has the names of booleans


@dataclass(frozen=True, kw_only=True)
class Labels(ColumnCodec, ABC):
    """Columns of one of some values each, in the order of the states."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise ValueError("values: expected at least one, received none")
        for value in self.values:
            _checks.instance(value, "values", str | float | int, "text, numbers and booleans")

    def indices(self, cells: Array) -> Array:
        """Returns the state of every cell, float64; NaN where it is missing or has none."""
        index = {value: i for i, value in enumerate(self.values)}
        for value, i in list(index.items()):  # a text file has the names of what other files have as booleans
            index.setdefault(str(value) if isinstance(value, bool) else _BOOLEANS.get(value, value), i)
        states = [index.get(value, math.nan) for value in cells.tolist()]
        return np.array(states, dtype=np.float64)

    def at(self, indices: Array, hole: Array) -> Array:
        """Returns the values of states by their numbers, missing where there is a hole."""
        if all(type(value) is float for value in self.values):
            return np.where(hole, np.nan, np.array(self.values)[indices])
        known = np.array([*self.values, None], dtype=object)
        return known[np.where(hole, len(self.values), indices)]


@final
@dataclass(frozen=True, kw_only=True)
class OneOf(Labels):
    """Values as one-hot states.

    Attributes:
        values: those of the states.
        shared: whether the last one, ``"other"``, stands for rare labels and for new ones.
    """

    values: tuple[Any, ...] = ()  # type: ignore[misc]
    shared: bool = False

    serves = ("one-hot",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_states", "width"):
            object.__setattr__(self, name, max(2, len(self.values)))

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
        """Takes the labels in ``values``, or those that are there.

        Labels of fewer than ``rare`` cells share a state, and so do all beyond the ``_COMMON`` commonest.
        """
        labels = all_of(cells, values)
        if rare is None:
            return {"values": labels}
        _checks.positive_int(rare, "rare")
        number = Counter(cells.values[~cells.missing].tolist())
        limit = max(rare, sorted(number.values())[-_COMMON] if len(number) > _COMMON else 0)
        common = tuple(value for value in labels if number[value] >= limit and value != _OTHERS)[:_COMMON]
        if len(labels) - len(common) < 2 or not all(isinstance(value, str) for value in labels):
            return {"values": labels}
        return {"values": (*common, _OTHERS), "shared": True}

    def states_of(self, values: Array) -> Array:
        index = self.indices(values)
        if self.shared:
            index = np.where(np.isnan(index) & ~missing_in(values), len(self.values) - 1, index)
        states = np.equal(index[:, None], np.arange(self.width)).astype(np.float64)
        states[np.isnan(index)] = np.nan
        return states

    def cells_of(self, states: Array) -> Array:
        hole = np.isnan(states[:, 0])
        largest = np.where(hole[:, None], 0.0, states).argmax(1).clip(max=len(self.values) - 1)
        return self.at(largest, hole)

    def log_shares_of(self, values: Array, beyond: str) -> Array:
        return np.zeros(len(values)) if self.shared else super().log_shares_of(values, beyond)
