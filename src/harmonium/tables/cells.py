"""Cells of one column in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from harmonium.data import Series
from harmonium.data.transforms import Array


def values_of(cells: Series) -> tuple[Any, ...]:
    """Returns all that a column's type says it may hold, or else what it holds, in order."""
    if cells.categories:
        return cells.categories
    seen = cells.values[~cells.missing]
    if cells.numeric:
        return tuple(np.unique(seen).tolist())
    return tuple(sorted(set(seen.tolist()), key=lambda value: (isinstance(value, str), value)))


def all_of(cells: Series, values: Sequence[Any] | None) -> tuple[Any, ...]:
    """Returns all values of a column: those that are named, which have to be all that are there."""
    if values is None:
        return values_of(cells)
    named = tuple(map(float, values)) if cells.numeric else tuple(values)
    more = [value for value in values_of(replace(cells, categories=None)) if value not in named]
    if more:
        raise ValueError(f"values: expected all that are there, received {few(named)} without {few(more)}")
    return named


def numbers_of(cells: Series) -> Array:
    """Returns the cells that are not missing, of a column of numbers.

    Raises:
        ValueError: another column.
    """
    seen: Array = cells.values[~cells.missing]
    if not cells.numeric:
        raise ValueError(f'expected numbers, received {seen[0]!r}; "categorical" takes labels')
    return seen


def weights_of(cells: Series, weights: Array | None) -> Array | None:
    """Returns the weights of the cells that are not missing; None: all count alike."""
    return None if weights is None else weights[~cells.missing]


def few(values: Sequence[Any], most: int = 5) -> str:
    """Lists the first of some values or names."""
    return ", ".join(map(shown, values[:most])) + (", …" if len(values) > most else "")


def shown(value: Any) -> str:
    """Writes a cell's value: what a frame has as an integer may be a float here."""
    value = value.item() if isinstance(value, np.generic) else value
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return repr(int(value) if whole else value)


def mean_deviation(x: Array, weights: Array | None) -> tuple[float, float]:
    """Returns the weighted mean and standard deviation, the latter 1 where it would be 0."""
    mean = np.average(x, weights=weights)
    return float(mean), float(np.sqrt(np.average((x - mean) ** 2, weights=weights))) or 1.0
