"""Codings: how the cells of one column become the states of one unit, and how they come back."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, final

import numpy as np

from harmonium import _checks
from harmonium.data import Series
from harmonium.data.transforms import Array


class Coding(ABC):
    """A map from cells to states of a unit with a way back; a small immutable value, a dataclass."""

    registry: ClassVar[dict[str, type[Coding]]] = {}
    """Every coding by name."""
    values: tuple[Any, ...] = ()
    """The labels of the states, in their order; empty where states are numbers."""
    log_slope: float | None = 0.0
    """ln |slope| where states are real; None: it is another one at every state (``log_slopes``)."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Coding.registry[cls.__name__] = cls

    @property
    def n_states(self) -> int:
        """Of the unit; 2 where there is no choice."""
        return 2

    @property
    def width(self) -> int:
        """Columns of the unit's state."""
        return 1

    @property
    @abstractmethod
    def expected(self) -> str:
        """The cells that have a state, in words."""

    @abstractmethod
    def encode(self, cells: Series) -> Array:
        """(rows, width) float64, NaN in the whole of a unit where a cell is missing or has no state."""

    @abstractmethod
    def decode(self, states: Array) -> Array:
        """Cells (rows,) from states or means (rows, width), missing where NaN."""

    def log_slopes(self, states: Array) -> Array:
        """ln |slope| of ``encode`` where it makes these states (rows, width): (rows,), NaN for NaN."""
        assert self.log_slope is not None
        return np.where(np.isnan(states[:, 0]), np.nan, self.log_slope)

    def to_dict(self) -> dict[str, Any]:
        """In plain JSON types, for :func:`coding_from_dict`."""
        values = asdict(self)  # type: ignore[call-overload]
        return {
            "coding": type(self).__name__,
            **{n: list(v) if isinstance(v, tuple) else v for n, v in values.items()},
        }


@dataclass(frozen=True)
class Labels(Coding):
    """Cells that are one of some values.

    Args:
        values: in the order of the states, at least one.
    """

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

    @property
    def expected(self) -> str:
        return f"one of {few(self.values)} as in fit"

    def indices(self, cells: Series) -> Array:
        """The state of every cell, (rows,) float64; NaN where it is missing or has none."""
        if cells.numeric and all(type(value) is float for value in self.values):
            known = np.array(self.values)
            order = np.argsort(known)
            nearest = order[np.searchsorted(known, cells.values, sorter=order).clip(max=len(known) - 1)]
            return np.where(known[nearest] == cells.values, nearest, np.nan)
        index = {value: i for i, value in enumerate(self.values)}
        for value, i in list(index.items()):  # a CSV file has the names of what other files have as booleans
            index.setdefault(str(value) if isinstance(value, bool) else _BOOLEANS.get(value, value), i)
        return np.array([index.get(value, math.nan) for value in cells.values.tolist()], dtype=np.float64)

    def cells(self, indices: Array, hole: Array) -> Array:
        """The values of states (rows,), missing where there is a hole."""
        if all(type(value) is float for value in self.values):
            return np.where(hole, np.nan, np.array(self.values)[indices])
        cells = np.empty(len(indices), dtype=object)
        cells[:] = [None if absent else self.values[i] for i, absent in zip(indices, hole, strict=True)]
        return cells


class Levels(Labels, ABC):
    """Cells that are one of some values, as numbers."""

    @property
    @abstractmethod
    def levels(self) -> tuple[float, ...]:
        """The states of the unit, rising, at least as many as there are values."""

    def encode(self, cells: Series) -> Array:
        index = self.indices(cells)
        states = np.full((len(index), 1), np.nan)
        known = ~np.isnan(index)
        states[known, 0] = np.array(self.levels)[index[known].astype(int)]
        return states

    def decode(self, states: Array) -> Array:
        levels = np.array(self.levels)
        nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, states[:, 0])
        return self.cells(np.minimum(nearest, len(self.values) - 1), np.isnan(states[:, 0]))


@final
@dataclass(frozen=True)
class Pair(Levels):
    """At most two values as two states.

    Args:
        values: one or two.
        low: the state of the first; that of the second is 1.
    """

    low: float = 0.0

    @property
    def levels(self) -> tuple[float, ...]:
        return (self.low, 1.0)


@final
@dataclass(frozen=True)
class Numbered(Levels):
    """Values as states that are numbers.

    Args:
        values: at least one, and no more than there are states.
        states: rising.
    """

    states: tuple[float, ...] = (0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "states", tuple(_checks.real(state, "states") for state in self.states))
        if len(self.states) < max(2, len(self.values)) or sorted(set(self.states)) != list(self.states):
            raise ValueError(
                f"states: expected rising numbers for {len(self.values)} values, received others"
            )

    @property
    def n_states(self) -> int:
        return len(self.states)

    @property
    def levels(self) -> tuple[float, ...]:
        return self.states


class OneHotLabels(Labels, ABC):
    """Values as one-hot states."""

    @property
    def n_states(self) -> int:
        return max(2, len(self.values))

    @property
    def width(self) -> int:
        return self.n_states

    def encode(self, cells: Series) -> Array:
        index = self.indices(cells)
        states: Array = np.equal(index[:, None], np.arange(self.n_states)).astype(np.float64)
        states[np.isnan(index)] = np.nan
        return states

    def decode(self, states: Array) -> Array:
        hole = np.isnan(states[:, 0])
        largest: Any = np.where(hole[:, None], 0.0, states).argmax(1)
        return self.cells(np.minimum(largest, len(self.values) - 1), hole)


@final
@dataclass(frozen=True)
class OneOf(OneHotLabels):
    """Each value as a state of its own."""


@final
@dataclass(frozen=True)
class Grouped(OneHotLabels):
    """Common values as states of their own, and rare ones as one, the last.

    A new value is a rare one. A state of rare ones comes back as one of them: over the rows of a call each
    as often as it was seen.

    Args:
        values: the common ones, and what the last state is called.
        rare: the others, at least one.
        counts: how often each of these was seen, above 0.
    """

    rare: tuple[Any, ...] = ()
    counts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rare", tuple(self.rare))
        object.__setattr__(self, "counts", tuple(_checks.real(x, "counts", 0.0) for x in self.counts))
        if not self.rare or len(self.rare) != len(self.counts) or not sum(self.counts):
            raise ValueError("rare, counts: expected as many values as counts, at least one")

    @property
    def labels(self) -> tuple[Any, ...]:
        return (*self.values[:-1], *self.rare)

    def indices(self, cells: Series) -> Array:
        index = super().indices(cells)
        strange = np.isnan(index) | (index == len(self.values) - 1)
        return np.where(strange & ~cells.missing, len(self.values) - 1, index)

    def cells(self, indices: Array, hole: Array) -> Array:
        found = super().cells(indices, hole).astype(object)
        rare = np.flatnonzero((indices == len(self.values) - 1) & ~hole)
        levels = (0.5 + np.arange(len(rare)) * _GOLDEN) % 1  # which fill [0, 1] evenly
        ends = np.cumsum(self.counts)
        places = np.searchsorted(ends, levels * ends[-1]).clip(max=len(self.rare) - 1)
        for row, place in zip(rare, places, strict=True):
            found[row] = self.rare[place]
        return found


def fit_one_hot(
    cells: Series, *, values: Sequence[Any] | None = None, rare: int | None = None
) -> OneHotLabels:
    """Returns the coding of labels by one-hot states.

    Args:
        cells: of the column.
        values: all labels, in their order; None: those that are there, or that the column's type names.
        rare: labels of fewer cells than these become one state, and all beyond the ``_MOST`` commonest; None:
            each has its own.
    """
    every = all_of(cells, values)
    if rare is None:
        return OneOf(every)
    _checks.positive_int(rare, "rare")
    seen = cells.values[~cells.missing].tolist()
    number = Counter(seen)
    limit = max(rare, sorted(number.values())[-_MOST] if len(number) > _MOST else 0)
    common = tuple(value for value in every if number[value] >= limit and value != OTHERS)[:_MOST]
    others = tuple(value for value in every if value not in common and number[value])
    if len(others) < 2 or not all(isinstance(value, str) for value in every):
        return OneOf(every)
    return Grouped((*common, OTHERS), others, tuple(float(number[value]) for value in others))


_BOOLEANS: dict[Any, bool] = {"False": False, "True": True}
_GOLDEN = (5**0.5 - 1) / 2
_MOST = 50  # labels that have a state of their own where there are rare ones
OTHERS = "other"
"""The name of a state that stands for several rare labels."""


def coding_from_dict(description: dict[str, Any]) -> Coding:
    """Rebuilds a coding from its description by ``to_dict``.

    Raises:
        TypeError, ValueError: fields out of range, or no coding.
    """
    values = dict(description)
    name = _checks.one_of(values.pop("coding", None), "coding", Coding.registry)
    return Coding.registry[name](**values)


def values_of(cells: Series) -> tuple[Any, ...]:
    """All that a column's type says it may hold, or else what it holds, in order."""
    if cells.categories:
        return cells.categories
    seen = cells.values[~cells.missing]
    if cells.numeric:
        return tuple(np.unique(seen).tolist())
    return tuple(sorted(set(seen.tolist()), key=lambda value: (isinstance(value, str), value)))


def all_of(cells: Series, values: Sequence[Any] | None) -> tuple[Any, ...]:
    """All values of a column: those that are named, which have to be all that are there, or what it says."""
    if values is None:
        return values_of(cells)
    named = tuple(map(float, values)) if cells.numeric else tuple(values)
    more = [value for value in values_of(replace(cells, categories=None)) if value not in named]
    if more:
        raise ValueError(
            f"values: expected all that are there, received {few(named)} without {few(tuple(more))}"
        )
    return named


def numbers_of(cells: Series) -> Array:
    """The cells that are not missing, of a column of numbers.

    Raises:
        ValueError: another column.
    """
    seen: Array = cells.values[~cells.missing]
    if not cells.numeric:
        raise ValueError(f'expected numbers, received {seen[0]!r}; "categorical" takes labels')
    return seen


def weights_of(cells: Series, weights: Array | float) -> Array | None:
    """Of the cells that are not missing; None: all count alike."""
    return weights[~cells.missing] if isinstance(weights, np.ndarray) else None


def as_numbers(cells: Series) -> Array:
    """(rows,) float64, NaN where a cell is no number."""
    if cells.numeric:
        return cells.values
    return np.array([v if isinstance(v, (int, float)) else math.nan for v in cells.values], dtype=np.float64)


def few(values: tuple[Any, ...]) -> str:
    """The first of some values, in words."""
    return ", ".join(map(shown, values[:5])) + (", …" if len(values) > 5 else "")


def shown(value: Any) -> str:
    """A cell's value in words: what a frame has as an integer may be a float here."""
    value = value.item() if isinstance(value, np.generic) else value
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return repr(int(value) if whole else value)
