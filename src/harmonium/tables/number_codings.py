"""Codings of numbers: counts, and real ones straight, by the logarithm, and along a column's quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, final

import numpy as np
import torch

from harmonium import _checks
from harmonium.data import Series
from harmonium.data.frame import LONG
from harmonium.data.transforms import Array
from harmonium.tables.codings import Coding, as_numbers, numbers_of, weights_of

TRANSFORMS = ("none", "log", "quantile")
_DISTINCT = 10  # values at least, to choose a transform by
_BEYOND = 0.01  # of draws at most, beyond the range of the cells
_KNOT = 0.6  # deviations between two points of a normal column
_PIECES = 10  # of what is not zero


@final
@dataclass(frozen=True)
class Counts(Coding):
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

    @classmethod
    def fit(
        cls, cells: Series, *, largest: int | None = None, lowest: int | None = None, step: int | None = None
    ) -> Self:
        seen, least, step = numbers_of(cells), lowest or 0, 1 if step is None else step
        wrong = seen[(seen < least) | (seen != np.round(seen)) | ((seen - least) % step != 0)]
        if len(wrong):
            steps = "" if step == 1 else f" in steps of {step}"
            raise ValueError(f"expected counts from {least}{steps}, received {wrong[0]:g}")
        most = max(least + step, int(seen.max()))
        if largest is not None and largest < most:
            raise ValueError(f"largest: expected at least {most}, which is there, received {largest}")
        return cls(most if largest is None else largest, least, step)

    @classmethod
    def spaced(cls, values: Sequence[float]) -> dict[str, int]:
        """Returns the options of ``fit`` for different whole numbers, which rise."""
        lowest, step = int(values[0]), math.gcd(*(int(x - values[0]) for x in values))
        return {"lowest": lowest, "step": step}

    @property
    def n_states(self) -> int:
        return (self.largest - self.lowest) // self.step + 1

    @property
    def expected(self) -> str:
        steps = "" if self.step == 1 else f" in steps of {self.step}"
        return f"a count from {self.lowest} to {self.largest}{steps} as in fit"

    def encode(self, cells: Series) -> Array:
        x = as_numbers(cells)
        states = (x - self.lowest) / self.step
        return np.where((states >= 0) & (x <= self.largest) & (np.round(states) == states), states, np.nan)[
            :, None
        ]

    def decode(self, states: Array) -> Array:
        x: Array = states[:, 0] * self.step + self.lowest
        return x


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
    def standardised(cls, cells: Series, weights: Array | float = 1.0) -> Self:
        seen, each = numbers_of(cells), weights_of(cells, weights)
        mean = np.average(seen, weights=each)
        return cls(float(mean), float(np.sqrt(np.average((seen - mean) ** 2, weights=each))) or 1.0)

    @classmethod
    def scaled(cls, cells: Series, weights: Array | float = 1.0) -> Self:
        seen = numbers_of(cells)
        if seen.min() < 0:
            raise ValueError(f"expected numbers from 0, received {seen.min():g}")
        return cls(0.0, float(np.sqrt(np.average(seen**2, weights=weights_of(cells, weights)))) or 1.0, 0.0)

    @classmethod
    def interval(cls, cells: Series, *, low: float | None = None, high: float | None = None) -> Self:
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

    def encode(self, cells: Series) -> Array:
        x = (as_numbers(cells) - self.offset) / self.scale
        low, high = (b if b is not None else s * math.inf for b, s in ((self.low, -1), (self.high, 1)))
        return np.where((x >= low) & (x <= high), x, np.nan)[:, None]

    def decode(self, states: Array) -> Array:
        x: Array = states[:, 0] * self.scale + self.offset
        return x


@final
@dataclass(frozen=True)
class Logarithm(Coding):
    """``(ln(x + shift) - offset) / scale``.

    Args:
        offset: finite.
        scale: finite and positive.
        shift: at least 0.
    """

    offset: float
    scale: float
    shift: float = 0.0
    log_slope = None

    def __post_init__(self) -> None:
        _checks.real(self.offset, "offset")
        _checks.real(self.shift, "shift", 0.0)
        if _checks.real(self.scale, "scale") <= 0:
            raise ValueError(f"scale: expected a positive number, received {self.scale}")

    @classmethod
    def fit(cls, cells: Series, weights: Array | float = 1.0) -> Self:
        """Standardises logarithms: of positive numbers, or of whole ones from 0 plus a half."""
        seen, each = numbers_of(cells), weights_of(cells, weights)
        counts = seen.min() == 0 and not (seen % 1).any()
        if seen.min() <= 0 and not counts:
            raise ValueError(
                f'expected positive numbers, or whole ones from 0, for "log", received {seen.min():g}'
            )
        y = np.log(seen + (shift := 0.5 if counts else 0.0))
        mean = np.average(y, weights=each)
        return cls(float(mean), float(np.sqrt(np.average((y - mean) ** 2, weights=each))) or 1.0, shift)

    @property
    def expected(self) -> str:
        return f"a number above {-self.shift:g}"

    def encode(self, cells: Series) -> Array:
        x = as_numbers(cells) + self.shift
        return ((np.log(np.where(x > 0, x, np.nan)) - self.offset) / self.scale)[:, None]

    def decode(self, states: Array) -> Array:
        x: Array = np.exp(states[:, 0] * self.scale + self.offset) - self.shift
        return x

    def log_slopes(self, states: Array) -> Array:
        slopes: Array = -(states[:, 0] * self.scale + self.offset) - math.log(self.scale)
        return slopes


@final
@dataclass(frozen=True)
class Quantiles(Coding):
    """Straight lines between points of a column, the first and last of which go on.

    Args:
        points: numbers, rising, at least two.
        states: of the points, rising.
        zero: whether 0, the first point and state, is a value by itself, and the last state the largest.
    """

    points: tuple[float, ...]
    states: tuple[float, ...]
    zero: bool = False
    log_slope = None

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
        pieces = min(_PIECES, len(seen))
        knots = np.linspace(0.0, 1.0, pieces + 1)
        inner = np.interp(knots[1:-1], levels, seen).tolist()
        points = np.unique([0.0, *inner, seen[-1]])
        return cls(tuple(points.tolist()), tuple(np.linspace(0.0, 1.0, len(points)).tolist()), True)

    @property
    def expected(self) -> str:
        return f"a number from 0 to {self.points[-1]:g} as in fit" if self.zero else "a number"

    def encode(self, cells: Series) -> Array:
        x = as_numbers(cells)
        known = (x >= 0) & (x <= self.points[-1]) if self.zero else ~np.isnan(x)
        return np.where(known, _lines(x, self.points, self.states), np.nan)[:, None]

    def decode(self, states: Array) -> Array:
        return _lines(states[:, 0], self.states, self.points)

    def log_slopes(self, states: Array) -> Array:
        z = states[:, 0]
        slopes = np.log(np.diff(self.states) / np.diff(self.points))[_pieces(z, self.states)]
        return np.where(np.isnan(z), np.nan, np.where((z == 0) & self.zero, 0.0, slopes))


def fit_real(cells: Series, weights: Array | float = 1.0, *, transform: str | None = None) -> Coding:
    """Returns the coding of a column for real units.

    Args:
        cells: of the column, numbers.
        weights: of the cells; all alike.
        transform: one of ``TRANSFORMS``; "auto": the likeliest of them as a normal column, with the penalty
            of the Bayesian information criterion, among those that hardly leave the range of the cells; None:
            "none", which takes off the mean and divides by the deviation.
    """
    makers = {"none": Affine.standardised, "log": Logarithm.fit, "quantile": Quantiles.normal}
    chosen = _checks.one_of(transform or "none", "transform", ("auto", *TRANSFORMS))
    if chosen != "auto":
        return makers[chosen](cells, weights)
    seen, each = numbers_of(cells), weights_of(cells, weights)
    best: Coding = Affine.standardised(cells, weights)
    if len(np.unique(seen)) < _DISTINCT:
        return best
    rows = len(seen) if each is None else float(each.sum())
    penalty = 0.5 * math.log(rows) / rows
    most = -math.inf
    for name in TRANSFORMS:
        try:
            coding = makers[name](cells, weights)
        except ValueError:  # numbers of which it takes no logarithm
            continue
        points = len(coding.points) if isinstance(coding, Quantiles) else 0
        more = points - 2 if points else float(name != "none")
        score = _log_density(coding, cells, each) - more * penalty
        if score > most and (points or _share_beyond(coding, seen) <= _BEYOND + 2 / rows):
            best, most = coding, score
    return best


def fit_fractions(cells: Series, *, transform: str | None = None) -> Coding:
    """Returns the coding of a column for units in [0, 1] that may be exactly 0.

    Args:
        cells: of the column, numbers.
        transform: "quantile": numbers from 0, by the quantiles of those above it; None or "none": numbers in
            [0, 1] as they are.
    """
    if _checks.one_of(transform or "none", "transform", ("none", "quantile")) == "quantile":
        return Quantiles.beside_zero(cells)
    seen = numbers_of(cells)
    if seen.min() < 0 or seen.max() > 1:
        raise ValueError(f"expected numbers in [0, 1], received {seen.min():g} to {seen.max():g}")
    return Affine(0.0, 1.0, 0.0, 1.0)


def _log_density(coding: Coding, cells: Series, weights: Array | None) -> float:
    """Returns the mean ln p of a column whose states are taken for standard normal."""
    states = coding.encode(cells)[~cells.missing]
    return float(np.average(coding.log_slopes(states) - 0.5 * states[:, 0] ** 2, weights=weights))


def _share_beyond(coding: Coding, seen: Array) -> float:
    """Returns how much of a normal column lies beyond the range of the cells by 5 % of it."""
    margin = 0.05 * (seen.max() - seen.min())
    ends = Series("", np.array([seen.min() - margin, seen.max() + margin]), "float64")
    low, high = torch.special.ndtr(torch.from_numpy(coding.encode(ends)[:, 0])).tolist()
    return float(1 - high + (0.0 if math.isnan(low) else low))


def _levels(seen: Array, weights: Array | None) -> tuple[Array, Array]:
    """Returns the different values, and the share of the weight that lies below the middle of each."""
    values, index = np.unique(seen, return_inverse=True)
    each = np.bincount(index, weights)
    return values, (np.cumsum(each) - each / 2) / each.sum()


def _pieces(x: Array, ends: tuple[float, ...]) -> Array:
    found: Array = np.clip(np.searchsorted(ends, x, "right") - 1, 0, len(ends) - 2)
    return found


def _lines(x: Array, at: tuple[float, ...], to: tuple[float, ...]) -> Array:
    """Returns the straight lines through points, the first and the last of which go on."""
    start, end, piece = np.array(at), np.array(to), _pieces(x, at)
    y: Array = end[piece] + (x - start[piece]) * (np.diff(end) / np.diff(start))[piece]
    return y
