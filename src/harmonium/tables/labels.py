"""Codings of labels as states of one unit, and back, and of a column without a unit."""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np

from harmonium import _checks
from harmonium.data import Series
from harmonium.data.encoders import Unstretched
from harmonium.data.frame import missing_in
from harmonium.data.transforms import Array
from harmonium.tables.cells import few

_GOLDEN = (5**0.5 - 1) / 2  # multiples of it fill [0, 1] evenly
_BOOLEANS: dict[Any, bool] = {"False": False, "True": True}  # a text file has the names of booleans


class Labels(Unstretched, ABC):
    """Cells that are one of some ``values``, in the order of the states, at least one."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise ValueError("values: expected at least one, received none")
        for value in self.values:
            _checks.instance(value, "values", str | float | int, "text, numbers and booleans")

    @property
    def labels(self) -> tuple[Any, ...]:
        """All labels, of which a state may have several."""
        return self.values

    def expected(self) -> str:
        return f"one of {few(self.values)} as in fit"

    def indices(self, cells: Array) -> Array:
        """Returns the state of every cell, float64; NaN where it is missing or has none."""
        if cells.dtype.kind == "f" and all(type(value) is float for value in self.values):
            known = np.array(self.values)
            order = np.argsort(known)
            nearest = order[np.searchsorted(known, cells, sorter=order).clip(max=len(known) - 1)]
            return np.where(known[nearest] == cells, nearest, np.nan)
        index = {value: i for i, value in enumerate(self.values)}
        for value, i in list(index.items()):  # a text file has the names of what other files have as booleans
            index.setdefault(str(value) if isinstance(value, bool) else _BOOLEANS.get(value, value), i)
        states = [index.get(value, math.nan) for value in cells.ravel().tolist()]
        return np.array(states, dtype=np.float64).reshape(cells.shape)

    def log_shares(self, cells: Array, once: int, count: int) -> Array:
        """Returns ln p(label | its state), (rows,); of a label without a state ln p(label).

        Args:
            cells: Labels, (rows,).
            once: Number of labels that were seen once, at least 1, as which new ones count (Good and Turing).
            count: Number of cells that were seen.
        """
        unseen = once / (count + once)
        return np.where(np.isnan(self.indices(cells)), math.log(unseen), math.log1p(-unseen))

    def cells(self, indices: Array, hole: Array) -> Array:
        """Returns the values of states, missing where there is a hole."""
        if all(type(value) is float for value in self.values):
            return np.where(hole, np.nan, np.array(self.values)[indices])
        known = np.array([*self.values, None], dtype=object)
        return known[np.where(hole, len(self.values), indices)]


@final
@dataclass(frozen=True)
class Numbered(Labels):
    """Values as states that are numbers, such as the two states of a unit.

    Args:
        values: Labels, at least one, and no more than there are states.
        states: Numbers that the unit takes, rising.
    """

    values: tuple[Any, ...]
    states: tuple[float, ...] = (0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "states", tuple(_checks.real(state, "states") for state in self.states))
        object.__setattr__(self, "n_states", len(self.states))
        if len(self.states) < max(2, len(self.values)) or sorted(set(self.states)) != list(self.states):
            raise ValueError(
                f"states: expected rising numbers for {len(self.values)} values, received others"
            )

    def encode(self, X: Any) -> Any:
        index = self.indices(X)
        known = ~np.isnan(index)
        states = np.full(index.shape, np.nan)
        states[known] = np.array(self.states)[index[known].astype(int)]
        return states

    def decode(self, X: Any) -> Any:
        states = np.array(self.states)
        nearest = np.searchsorted((states[1:] + states[:-1]) / 2, X)
        return self.cells(np.minimum(nearest, len(self.values) - 1), np.isnan(X))


@final
@dataclass(frozen=True)
class OneOf(Labels):
    """Values as one-hot states; rare ones may share the last state.

    A new value is then a rare one. A state of rare ones comes back as one of them: over the rows of a call
    each as often as it was seen, and as the most probable value (``most_probable``) the commonest of them.

    Args:
        values: those with a state of their own, and what the last state is called where there are rare ones.
        rare: the others.
        counts: how often each of these was seen, above 0.
    """

    values: tuple[Any, ...]
    rare: tuple[Any, ...] = ()
    counts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rare", tuple(self.rare))
        object.__setattr__(self, "counts", tuple(_checks.real(x, "counts", 0.0) for x in self.counts))
        if len(self.rare) != len(self.counts) or (self.rare and not sum(self.counts)):
            raise ValueError("rare, counts: expected as many values as counts, some above 0")
        for name in ("n_states", "width"):
            object.__setattr__(self, name, max(2, len(self.values)))

    @property
    def labels(self) -> tuple[Any, ...]:
        return (*self.values[:-1], *self.rare) if self.rare else self.values

    def log_shares(self, cells: Array, once: int, count: int) -> Array:
        if not self.rare:
            return super().log_shares(cells, once, count)
        total = sum(self.counts) + once  # a new label is one of the rare ones
        numbers = dict(zip(self.rare, self.counts, strict=True))
        index = self.indices(cells)
        shared = np.isnan(index) | (index == len(self.values) - 1)
        shares = [numbers.get(x, once) / total for x in cells[shared].tolist()]
        found = np.zeros(len(cells))
        found[shared] = np.log(shares)
        return found

    def encode(self, X: Any) -> Any:
        index = self.indices(X)
        if self.rare:
            index = np.where(np.isnan(index) & ~missing_in(X), len(self.values) - 1, index)
        states = np.equal(index[..., None], np.arange(self.width)).astype(np.float64)
        states[np.isnan(index)] = np.nan
        return states.reshape(len(X), -1)

    def decode(self, X: Any) -> Any:
        blocks = X.reshape(len(X), -1, self.width)
        hole = np.isnan(blocks[..., 0])
        largest = np.where(hole[..., None], 0.0, blocks).argmax(-1)
        cells = self.cells(np.minimum(largest, len(self.values) - 1), hole)
        if not self.rare:
            return cells
        cells = cells.astype(object)
        shared = (largest == len(self.values) - 1) & ~hole
        levels = (0.5 + np.arange(shared.sum()) * _GOLDEN) % 1
        ends = np.cumsum(self.counts)
        places = np.searchsorted(ends, levels * ends[-1]).clip(max=len(self.rare) - 1)
        cells[shared] = np.array([*self.rare, None], dtype=object)[places]
        return cells

    def most_probable(self, X: Array) -> Array:
        """Returns the most probable values, (rows, 1), given p of the states, (rows, width)."""
        if not self.rare:
            return self.decode(X)  # type: ignore[no-any-return]
        shares = np.ones(self.width)
        shares[len(self.values) - 1] = max(self.counts) / sum(self.counts)
        hole = np.isnan(X[:, :1])
        largest = np.where(hole, 0.0, X * shares).argmax(1)[:, None]
        known = np.array([*self.values[:-1], self.rare[int(np.argmax(self.counts))], None], dtype=object)
        return known[np.where(hole, len(known) - 1, np.minimum(largest, len(known) - 2))]


@final
@dataclass(frozen=True)
class Constant(Unstretched):
    """A column without a unit, of which nothing is learned: no states, and its only value comes back.

    Args:
        value: the only one; None: there are several, or none, and cells come back missing.
        numeric: whether the column holds numbers.
    """

    value: str | float | int | None
    numeric: bool
    width = 0

    @classmethod
    def of(cls, cells: Series) -> Self:
        """Describes a column that is to be left out."""
        seen = cells.values[~cells.missing]
        one = seen[0] if len(seen) and (seen == seen[0]).all() else None
        value = one.item() if isinstance(one, np.generic) else one
        return cls(value if isinstance(value, (str, float, int)) else None, cells.numeric)

    def encode(self, X: Any) -> Any:
        return np.empty((len(X), 0))

    def decode(self, X: Any) -> Any:
        missing = np.nan if self.numeric else None
        value = missing if self.value is None else self.value
        return np.full((len(X), 1), value, float if self.numeric else object)
