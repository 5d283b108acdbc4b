"""Codings: how the cells of one column become the states of one unit, and how they come back."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np

from harmonium import _checks
from harmonium.data.sheet import LONG, Cells
from harmonium.data.transforms import Array


class Coding(ABC):
    """A map from cells to states of a unit with a way back; a small immutable value, a dataclass."""

    registry: ClassVar[dict[str, type[Coding]]] = {}
    """Every coding by name."""
    values: tuple[Any, ...] = ()
    """The labels of the states, in their order; empty where states are numbers."""
    log_slope: float = 0.0
    """ln |slope| where states are real."""

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
    def encode(self, cells: Cells) -> Array:
        """(rows, width) float64, NaN in the whole of a unit where a cell is missing or has no state."""

    @abstractmethod
    def decode(self, states: Array) -> Array:
        """Cells (rows,) from states or means (rows, width), missing where NaN."""

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
    def expected(self) -> str:
        return f"one of {few(self.values)} as in fit"

    def indices(self, cells: Cells) -> Array:
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

    def encode(self, cells: Cells) -> Array:
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


@final
@dataclass(frozen=True)
class OneOf(Labels):
    """Values as one-hot states."""

    @classmethod
    def fit(cls, cells: Cells, *, values: Sequence[Any] | None = None) -> Self:
        return cls(all_of(cells, values))

    @property
    def n_states(self) -> int:
        return max(2, len(self.values))

    @property
    def width(self) -> int:
        return self.n_states

    def encode(self, cells: Cells) -> Array:
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
class Counts(Coding):
    """Whole numbers from 0 as they are.

    Args:
        largest: at least 1.
    """

    largest: int

    def __post_init__(self) -> None:
        if _checks.positive_int(self.largest, "largest") >= LONG:
            raise ValueError(f"largest: expected a whole number below 2^53, received {self.largest}")

    @classmethod
    def fit(cls, cells: Cells, *, largest: int | None = None) -> Self:
        seen = numbers_of(cells)
        wrong = seen[(seen < 0) | (seen != np.round(seen))]
        if len(wrong):
            raise ValueError(f"expected counts from 0, received {wrong[0]:g}")
        most = max(1, int(seen.max()))
        if largest is not None and largest < most:
            raise ValueError(f"largest: expected at least {most}, which is there, received {largest}")
        return cls(most if largest is None else largest)

    @property
    def n_states(self) -> int:
        return self.largest + 1

    @property
    def expected(self) -> str:
        return f"a count from 0 to {self.largest} as in fit"

    def encode(self, cells: Cells) -> Array:
        x = as_numbers(cells)
        return np.where((x >= 0) & (x <= self.largest) & (np.round(x) == x), x, np.nan)[:, None]

    def decode(self, states: Array) -> Array:
        return states[:, 0]


@final
@dataclass(frozen=True)
class Affine(Coding):
    """``(x - offset) / scale``, within bounds.

    Args:
        offset: finite.
        scale: finite and positive.
        low: of the states; None: no bound.
        high: of the states; None: no bound.
    """

    offset: float
    scale: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        _checks.real(self.offset, "offset")
        if _checks.real(self.scale, "scale") <= 0:
            raise ValueError(f"scale: expected a positive number, received {self.scale}")

    @classmethod
    def standardised(cls, cells: Cells, weights: Array | float = 1.0) -> Self:
        seen, each = numbers_of(cells), _of_cells(weights, cells)
        mean = np.average(seen, weights=each)
        return cls(float(mean), float(np.sqrt(np.average((seen - mean) ** 2, weights=each))) or 1.0)

    @classmethod
    def scaled(cls, cells: Cells, weights: Array | float = 1.0) -> Self:
        seen = numbers_of(cells)
        if seen.min() < 0:
            raise ValueError(f"expected numbers from 0, received {seen.min():g}")
        return cls(0.0, float(np.sqrt(np.average(seen**2, weights=_of_cells(weights, cells)))) or 1.0, 0.0)

    @classmethod
    def unmoved(cls, cells: Cells) -> Self:
        """Numbers in [0, 1] as they are."""
        seen = numbers_of(cells)
        if seen.min() < 0 or seen.max() > 1:
            raise ValueError(f"expected numbers in [0, 1], received {seen.min():g} to {seen.max():g}")
        return cls(0.0, 1.0, 0.0, 1.0)

    @classmethod
    def interval(cls, cells: Cells, *, low: float | None = None, high: float | None = None) -> Self:
        """From ``low`` to ``high``; without either, numbers in [0, 1] as they are, others by their range."""
        seen = numbers_of(cells)
        first, last = float(seen.min()), float(seen.max())
        if low is None and high is None and first >= 0 and last <= 1:
            return cls(0.0, 1.0, 0.0, 1.0)
        bottom = first if low is None else _checks.real(low, "low")
        top = last if high is None else _checks.real(high, "high")
        if bottom > first or top < last:
            raise ValueError(
                f"low, high: expected an interval around {first:g} to {last:g}, which are there, "
                f"received {bottom:g} to {top:g}"
            )
        return cls(bottom, (top - bottom) or 1.0, 0.0, 1.0)

    @property
    def log_slope(self) -> float:  # type: ignore[override]
        return -math.log(self.scale)

    @property
    def expected(self) -> str:
        if self.high is not None:
            return f"a number in [{self.offset:g}, {self.offset + self.scale:g}] as in fit"
        return "a number" if self.low is None else "a number from 0"

    def encode(self, cells: Cells) -> Array:
        x = (as_numbers(cells) - self.offset) / self.scale
        low, high = (b if b is not None else s * math.inf for b, s in ((self.low, -1), (self.high, 1)))
        return np.where((x >= low) & (x <= high), x, np.nan)[:, None]

    def decode(self, states: Array) -> Array:
        x: Array = states[:, 0] * self.scale + self.offset
        return x


_BOOLEANS: dict[Any, bool] = {"False": False, "True": True}


def coding_from_dict(description: dict[str, Any]) -> Coding:
    """Rebuilds a coding from its description by ``to_dict``.

    Raises:
        TypeError, ValueError: fields out of range, or no coding.
    """
    values = dict(description)
    name = _checks.one_of(values.pop("coding", None), "coding", Coding.registry)
    return Coding.registry[name](**values)


def values_of(cells: Cells) -> tuple[Any, ...]:
    """All that a column's type says it may hold, or else what it holds, in order."""
    if cells.categories:
        return cells.categories
    seen = cells.values[~cells.missing]
    if cells.numeric:
        return tuple(np.unique(seen).tolist())
    return tuple(sorted(set(seen.tolist()), key=lambda value: (isinstance(value, str), value)))


def all_of(cells: Cells, values: Sequence[Any] | None) -> tuple[Any, ...]:
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


def numbers_of(cells: Cells) -> Array:
    """The cells that are not missing, of a column of numbers.

    Raises:
        ValueError: another column.
    """
    seen: Array = cells.values[~cells.missing]
    if not cells.numeric:
        raise ValueError(f'expected numbers, received {seen[0]!r}; "categorical" takes labels')
    return seen


def _of_cells(weights: Array | float, cells: Cells) -> Array | None:
    """Of the cells that are not missing; None: all count alike."""
    return weights[~cells.missing] if isinstance(weights, np.ndarray) else None


def as_numbers(cells: Cells) -> Array:
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
