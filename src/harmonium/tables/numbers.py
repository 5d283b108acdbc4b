"""Codings of numbers as states of one unit, and back: counts, logarithms and curves through quantiles."""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import torch

from harmonium import _checks
from harmonium.data import Encoder, Series
from harmonium.data._text_files import LONG
from harmonium.data.encoders import Unstretched
from harmonium.data.transforms import Array
from harmonium.tables.cells import numbers_of, weights_of

_KNOT = 0.6  # standard deviations between two points of a normal column: shorter lines follow the noise
_PIECES = 10  # lines at most for what is not zero


@final
@dataclass(frozen=True)
class Counts(Unstretched):
    """Whole numbers as how many steps they are above the least.

    Args:
        largest: above ``lowest``.
        lowest: the least.
        step: between two numbers, at least 1.
    """

    largest: int
    lowest: int = 0
    step: int = 1

    def __post_init__(self) -> None:
        for name in ("largest", "lowest"):
            value = getattr(self, name)
            _checks.instance(value, name, int, "a whole number")
            if abs(value) >= LONG:
                raise ValueError(f"{name}: expected a whole number below 2^53, received {value}")
        if self.largest <= self.lowest:
            raise ValueError(f"largest: expected at least {self.lowest + 1}, received {self.largest}")
        if (self.largest - self.lowest) % _checks.positive_int(self.step, "step"):
            raise ValueError(f"step: expected a part of {self.largest - self.lowest}, received {self.step}")
        object.__setattr__(self, "n_states", (self.largest - self.lowest) // self.step + 1)

    def expected(self) -> str:
        return f"a count from {self.lowest} to {self.largest}{steps_in_words(self.step)} as in fit"

    def encode(self, X: Any) -> Any:
        states = (X - self.lowest) / self.step
        return np.where((states >= 0) & (self.largest >= X) & (np.round(states) == states), states, np.nan)

    def decode(self, X: Any) -> Any:
        return X * self.step + self.lowest


def steps_in_words(step: int) -> str:
    """Returns what a message adds about steps other than 1."""
    return "" if step == 1 else f" in steps of {step}"


class Curved(Encoder, ABC):
    """Codings of numbers whose slope differs from state to state."""

    curved = True

    def log_slopes(self, width: int) -> tuple[float, ...]:
        raise ValueError("X: expected a column of one slope, received one that is coded along a curve")


@final
@dataclass(frozen=True)
class Logarithm(Curved):
    """``(ln(x + shift) - offset) / scale``.

    Args:
        offset: Mean of the logarithms, finite.
        scale: Their standard deviation, finite and positive.
        shift: Number added before the logarithm, at least 0.
    """

    offset: float
    scale: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        _checks.real(self.offset, "offset")
        _checks.real(self.shift, "shift", 0.0)
        if _checks.real(self.scale, "scale") <= 0:
            raise ValueError(f"scale: expected a positive number, received {self.scale}")

    @classmethod
    def fit(cls, cells: Series, weights: Array | float = 1.0) -> Self:
        """Standardises logarithms: of positive numbers, or of whole ones from 0 plus a half."""
        seen, row_weights = numbers_of(cells), weights_of(cells, weights)
        counts = seen.min() == 0 and not (seen % 1).any()
        if seen.min() <= 0 and not counts:
            raise ValueError(
                f'expected positive numbers, or whole ones from 0, for "log", received {seen.min():g}'
            )
        y = np.log(seen + (shift := 0.5 if counts else 0.0))
        return cls(*mean_deviation(y, row_weights), shift)

    def expected(self) -> str:
        return f"a number above {-self.shift:g}"

    def encode(self, X: Any) -> Any:
        x = X + self.shift
        return (np.log(np.where(x > 0, x, np.nan)) - self.offset) / self.scale

    def decode(self, X: Any) -> Any:
        return np.exp(X * self.scale + self.offset) - self.shift

    def log_slopes_at(self, states: Array) -> Array:
        slopes: Array = -(states * self.scale + self.offset) - math.log(self.scale)
        return slopes


@final
@dataclass(frozen=True)
class Quantiles(Curved):
    """Straight lines between points of a column, the first and last of which go on.

    Args:
        points: numbers, rising, at least two.
        states: States of the points, rising.
        zero: whether 0, the first point and state, is a value by itself, and the last state the largest.
    """

    points: tuple[float, ...]
    states: tuple[float, ...]
    zero: bool = False

    def __post_init__(self) -> None:
        for name in ("points", "states"):
            numbers = tuple(_checks.real(x, name) for x in getattr(self, name))
            if len(numbers) < 2 or len(numbers) != len(self.points) or (np.diff(numbers) <= 0).any():
                raise ValueError(f"{name}: expected as many rising numbers as points, at least two")
            object.__setattr__(self, name, numbers)

    @classmethod
    def normal(cls, cells: Series, weights: Array | float = 1.0) -> Self:
        """Lays the quantiles of a column onto those of the normal distribution, at equal distances there."""
        seen, levels = _levels(numbers_of(cells), weights_of(cells, weights))
        scores: Array = torch.special.ndtri(torch.from_numpy(levels)).numpy()
        number = max(5, 1 + round((scores[-1] - scores[0]) / _KNOT))
        knots = np.linspace(scores[0], scores[-1], min(number, len(scores)))
        return cls(tuple(np.interp(knots, scores, seen).tolist()), tuple(knots.tolist()))

    @classmethod
    def beside_zero(cls, cells: Series) -> Self:
        """Lays the quantiles of what is above 0 onto equal distances in [0, 1]."""
        numbers = numbers_of(cells)
        if numbers.min() < 0 or numbers.max() == 0:
            raise ValueError(f"expected numbers from 0, some above it, received {numbers.min():g}")
        seen, levels = _levels(numbers[numbers > 0], None)
        knots = np.linspace(0.0, 1.0, min(_PIECES, len(seen)) + 1)
        inner = np.interp(knots[1:-1], levels, seen).tolist()
        points = np.unique([0.0, *inner, seen[-1]])
        return cls(tuple(points.tolist()), tuple(np.linspace(0.0, 1.0, len(points)).tolist()), True)

    def expected(self) -> str:
        return f"a number from 0 to {self.points[-1]:g} as in fit" if self.zero else "a number"

    def encode(self, X: Any) -> Any:
        known = (X >= 0) & (self.points[-1] >= X) if self.zero else ~np.isnan(X)
        return np.where(known, _lines(X, self.points, self.states), np.nan)

    def decode(self, X: Any) -> Any:
        return _lines(X, self.states, self.points)

    def log_slopes_at(self, states: Array) -> Array:
        slopes = np.log(np.diff(self.states) / np.diff(self.points))[_pieces(states, self.states)]
        return np.where(np.isnan(states), np.nan, np.where((states == 0) & self.zero, 0.0, slopes))


def mean_deviation(x: Array, weights: Array | None) -> tuple[float, float]:
    """Returns the weighted mean and standard deviation, the latter 1 where it would be 0."""
    mean = np.average(x, weights=weights)
    return float(mean), float(np.sqrt(np.average((x - mean) ** 2, weights=weights))) or 1.0


def _levels(seen: Array, weights: Array | None) -> tuple[Array, Array]:
    """Returns the different values, and the share of the weight that lies below the middle of each."""
    values, index = np.unique(seen, return_inverse=True)
    shares = np.bincount(index, weights)
    return values, (np.cumsum(shares) - shares / 2) / shares.sum()


def _pieces(x: Array, ends: tuple[float, ...]) -> Array:
    pieces: Array = np.clip(np.searchsorted(ends, x, "right") - 1, 0, len(ends) - 2)
    return pieces


def _lines(x: Array, at: tuple[float, ...], to: tuple[float, ...]) -> Array:
    """Returns the straight lines through points, the first and the last of which go on."""
    start, end, piece = np.array(at), np.array(to), _pieces(x, at)
    y: Array = end[piece] + (x - start[piece]) * (np.diff(end) / np.diff(start))[piece]
    return y
