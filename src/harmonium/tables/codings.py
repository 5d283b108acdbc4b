"""Codings of one column's cells as states of one unit, and back: a class for each kind.

Each is an ``Encoder`` of columns, (rows, columns) of float64 or of objects, and takes NaN, None and what it
has no state for as NaN in the whole of a unit. ``FITS`` finds those of a kind of unit by ``Layer.coding``.
"""

from __future__ import annotations

import math
from abc import ABC
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from typing import Any, NamedTuple, Self, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium.data import Encoder, Identity, OneHot, Series, Standardise
from harmonium.data._text_files import LONG
from harmonium.data.encoders import Unstretched
from harmonium.data.frame import missing_in
from harmonium.data.transforms import Array
from harmonium.layers import Layer

IGNORE = "ignore"
"""In place of the kind of a unit: the column has none."""
OTHERS = "other"
"""The name of a state that stands for several rare labels."""
_COMMON = 50  # labels at most with a state of their own beside rare ones: a unit has as many states
_DISTINCT = 10  # values at least, to choose a transform by: fewer fit any curve
_BEYOND = 0.01  # share of draws beyond the range of the cells, from which on a curve invents values
_KNOT = 0.6  # standard deviations between two points of a normal column: shorter lines follow the noise
_PIECES = 10  # lines at most for what is not zero
_GOLDEN = (5**0.5 - 1) / 2  # multiples of it fill [0, 1] evenly
_BOOLEANS: dict[Any, bool] = {"False": False, "True": True}  # a text file has the names of booleans


# Labels
# ---------------------------------------------------------------------------------


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


# Numbers
# ---------------------------------------------------------------------------------


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
        return f"a count from {self.lowest} to {self.largest}{_steps(self.step)} as in fit"

    def encode(self, X: Any) -> Any:
        states = (X - self.lowest) / self.step
        return np.where((states >= 0) & (self.largest >= X) & (np.round(states) == states), states, np.nan)

    def decode(self, X: Any) -> Any:
        return X * self.step + self.lowest


def _steps(step: int) -> str:
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
        return cls(*_mean_deviation(y, row_weights), shift)

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


def refuse_negative(low: float) -> None:
    """Refuses numbers of which the least is negative."""
    if low < 0:
        raise ValueError(f"expected numbers from 0, received {low:g}")


def refuse_beyond_1(low: float, high: float) -> None:
    """Refuses numbers that are not all in [0, 1]."""
    if low < 0 or high > 1:
        remedy = "divide grey levels by their largest value"
        raise ValueError(f"expected numbers in [0, 1], received {low:g} to {high:g}; {remedy}")


def _mean_deviation(x: Array, weights: Array | None) -> tuple[float, float]:
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


# From the cells of a column to its coding
# ---------------------------------------------------------------------------------


def fit_states(cells: Series, states: tuple[float, ...], *, values: Sequence[Any] | None = None) -> Numbered:
    """Returns the coding of a column for units with some states, which rise.

    Numbers that are states of a unit with more than two are coded as they are. Else labels (``values``, or
    those that are there) become states in their order: at most two, or as many as a unit has beyond two.
    """
    if values is None and len(states) > 2 and cells.numeric and set(values_of(cells)) <= set(states):
        return Numbered(states, states)
    values = all_of(cells, values)
    if len(states) == 2 and len(values) > 2:
        raise ValueError(
            f'expected at most two values, received {len(values)}, {few(values)}; "categorical" takes them'
        )
    if len(states) > 2 and len(values) != len(states):
        raise ValueError(
            f"expected {few(states)} or {len(states)} labels for them, received {few(values)}; values names "
            "all labels in their order"
        )
    return Numbered(values, states)


def fit_one_hot(cells: Series, *, values: Sequence[Any] | None = None, rare: int | None = None) -> OneOf:
    """Returns the coding of labels (``values``, or those that are there) by one-hot states.

    Labels of fewer than ``rare`` cells share a state, and so do all beyond the ``_COMMON`` commonest.
    """
    labels = all_of(cells, values)
    if rare is None:
        return OneOf(labels)
    _checks.positive_int(rare, "rare")
    number = Counter(cells.values[~cells.missing].tolist())
    limit = max(rare, sorted(number.values())[-_COMMON] if len(number) > _COMMON else 0)
    common = tuple(value for value in labels if number[value] >= limit and value != OTHERS)[:_COMMON]
    others = tuple(value for value in labels if value not in common and number[value])
    if len(others) < 2 or not all(isinstance(value, str) for value in labels):
        return OneOf(labels)
    return OneOf((*common, OTHERS), others, tuple(float(number[value]) for value in others))


def fit_counts(
    cells: Series,
    *,
    largest: int | None = None,
    lowest: int | None = None,
    step: int | None = None,
    values: Sequence[float] | None = None,
) -> Encoder:
    """Returns the coding of numbers by steps from ``lowest`` to ``largest``, or by ranks of ``values``."""
    seen, least, step = numbers_of(cells), lowest or 0, 1 if step is None else step
    if values is not None:
        return Numbered(tuple(sorted(all_of(cells, values))), tuple(map(float, range(len(values)))))
    wrong = seen[(seen < least) | (seen != np.round(seen)) | ((seen - least) % step != 0)]
    if len(wrong):
        raise ValueError(f"expected counts from {least}{_steps(step)}, received {wrong[0]:g}")
    most = max(least + step, int(seen.max()))
    if largest is not None and largest < most:
        raise ValueError(f"largest: expected at least {most}, which is there, received {largest}")
    return Counts(most if largest is None else largest, least, step)


def _fit_straight(cells: Series, weights: Array | float = 1.0) -> Standardise:
    return Standardise(*_mean_deviation(numbers_of(cells), weights_of(cells, weights)))


TRANSFORMS: dict[str, Callable[[Series, Array | float], Encoder]] = {
    **{"none": _fit_straight, "log": Logarithm.fit, "quantile": Quantiles.normal}
}
"""Codings of numbers for real units, each from the cells of a column and their weights, by name."""


def fit_real(cells: Series, weights: Array | float = 1.0, *, transform: str | None = None) -> Encoder:
    """Returns the coding of numbers for real units, by one of ``TRANSFORMS``.

    "auto" chooses the likeliest of them as a normal column, with the penalty of the Bayesian information
    criterion, among those that hardly leave the range of the cells.
    """
    chosen = _checks.one_of(transform or "none", "transform", ("auto", *TRANSFORMS))
    if chosen != "auto":
        return TRANSFORMS[chosen](cells, weights)
    seen, row_weights = numbers_of(cells), weights_of(cells, weights)
    best: Encoder = _fit_straight(cells, weights)
    if len(np.unique(seen)) < _DISTINCT:
        return best
    rows = len(seen) if row_weights is None else float(row_weights.sum())
    penalty, most = 0.5 * math.log(rows) / rows, -math.inf
    for name, make in TRANSFORMS.items():
        try:
            coding = make(cells, weights)
        except ValueError:  # numbers of which it takes no logarithm
            continue
        points = len(coding.points) if isinstance(coding, Quantiles) else 0
        more = points - 2 if points else float(name != "none")
        score = _log_density(coding, seen, row_weights) - more * penalty
        if score > most and (points or _share_beyond(coding, seen) <= _BEYOND + 2 / rows):
            best, most = coding, score
    return best


def _log_density(coding: Encoder, seen: Array, weights: Array | None) -> float:
    """Returns the mean ln p of a column whose states are taken for standard normal."""
    states = coding.encode(seen[:, None])
    return float(np.average((coding.log_slopes_at(states) - 0.5 * states**2)[:, 0], weights=weights))


def _share_beyond(coding: Encoder, seen: Array) -> float:
    """Returns how much of a normal column lies beyond the range of the cells by 5 % of it."""
    margin = 0.05 * (seen.max() - seen.min())
    ends = coding.encode(np.array([[seen.min() - margin], [seen.max() + margin]]))
    low, high = torch.special.ndtr(torch.from_numpy(ends[:, 0])).tolist()
    return float(1 - high + (0.0 if math.isnan(low) else low))


def fit_scaled(cells: Series, weights: Array | float = 1.0) -> Standardise:
    """Returns the coding of numbers from 0, which divides by their root mean square."""
    seen = numbers_of(cells)
    refuse_negative(seen.min())
    square = np.average(seen**2, weights=weights_of(cells, weights))
    return Standardise(0.0, float(np.sqrt(square)) or 1.0, 0.0)


def fit_interval(cells: Series, *, low: float | None = None, high: float | None = None) -> Standardise:
    """Returns the coding of numbers from ``low`` to ``high`` in [0, 1].

    Without either, numbers in [0, 1] stay as they are, and others are moved by their range.
    """
    seen = numbers_of(cells)
    first, last = float(seen.min()), float(seen.max())
    if low is None and high is None and first >= 0 and last <= 1:
        return Standardise(0.0, 1.0, 0.0, 1.0)
    bottom = first if low is None else _checks.real(low, "low")
    top = last if high is None else _checks.real(high, "high")
    if bottom > first or top < last:
        raise ValueError(
            f"low, high: expected an interval around {first:g} to {last:g}, which are there, "
            f"received {bottom:g} to {top:g}"
        )
    return Standardise(bottom, (top - bottom) or 1.0, 0.0, 1.0)


def fit_fractions(cells: Series, *, transform: str | None = None) -> Encoder:
    """Returns the coding of numbers in [0, 1], zeros among them; "quantile" takes any from 0."""
    if _checks.one_of(transform or "none", "transform", ("none", "quantile")) == "quantile":
        return Quantiles.beside_zero(cells)
    seen = numbers_of(cells)
    refuse_beyond_1(seen.min(), seen.max())
    return Standardise(0.0, 1.0, 0.0, 1.0)


# From all entries of an array, whose columns are of one kind
# ---------------------------------------------------------------------------------

BITS = (0.0, 1.0)
"""The states of most two-valued units; data of 0 and 1 become the two states of any."""


class Seen(NamedTuple):
    """Statistics from one pass over an array.

    Attributes:
        moments: mean and variance of each column, (width,), NaN where it was never observed.
        low: the smallest entry, in the dtype of the rows.
        high: the largest.
        values: different entries, all of them where they are few.
        uncounted: an entry that is no whole number from 0; None: there is none.
    """

    moments: tuple[Tensor, Tensor]
    low: float
    high: float
    values: Sequence[float]
    uncounted: float | None

    def beside(self, states: Collection[float]) -> float | None:
        """Returns an entry that is none of some states; None where all are."""
        return next((value for value in self.values if value not in states), None)


def encoder_of_bits(kind: str) -> Encoder:
    """Returns what turns 0 and 1 into the two states of units of a kind."""
    low, high = states_of(kind)
    return Identity() if (low, high) == BITS else Standardise(-low / (high - low), 1 / (high - low))


def _array_of_states(kind: str, seen: Seen) -> tuple[int, Encoder]:
    states = states_of(kind)
    pair, wrong = len(states) == 2, seen.beside(states)
    if wrong is None:
        return len(states), Identity()
    if pair and seen.beside(BITS) is None:
        return 2, encoder_of_bits(kind)
    listed = f"{{{', '.join(f'{x:g}' for x in states)}}}" + (" or {0, 1}" if pair and states != BITS else "")
    wrong = seen.beside({*states, *BITS}) if pair else wrong
    received = f"both {states[0]:g} and 0" if wrong is None else f"{wrong:g}"
    remedy = "; binarise the data first (harmonium.data.threshold, harmonium.data.bernoulli_binarise)"
    raise ValueError(f"expected values in {listed}, received {received}{remedy if pair else ''}")


def _largest(seen: Seen, expected: str) -> int:
    if seen.uncounted is not None:
        raise ValueError(f"expected {expected}, received {seen.uncounted:g}")
    return max(1, int(seen.high))


def _array_of_labels(kind: str, seen: Seen) -> tuple[int, Encoder]:
    encoder = OneHot(_largest(seen, "integers 0..q-1") + 1)
    return encoder.n_states, encoder


def _array_from_zero(kind: str, seen: Seen) -> tuple[int, Encoder]:
    refuse_negative(seen.low)
    mean, variance = seen.moments
    return 2, Standardise.from_moments(torch.zeros_like(mean), variance + mean.square())


def _array_in_interval(kind: str, seen: Seen) -> tuple[int, Encoder]:
    if seen.low >= 0 and seen.high <= 1:
        return 2, Identity()
    return 2, Standardise(seen.low, (seen.high - seen.low) or 1.0)


def _array_of_fractions(kind: str, seen: Seen) -> tuple[int, Encoder]:
    refuse_beyond_1(seen.low, seen.high)
    return 2, Identity()


class Fits(NamedTuple):
    """Fits the encoder of one kind of unit, to a column of a table or to a whole array.

    Attributes:
        column: Fits it to the cells of a column: ``(cells, **options) -> Encoder``.
        array: Fits it to statistics of an array: ``(kind, seen) -> (n_states, Encoder)``, with the number of
            states of a unit.
    """

    column: Callable[..., Encoder]
    array: Callable[[str, Seen], tuple[int, Encoder]]


FITS: dict[str, Fits] = {
    "states": Fits(fit_states, _array_of_states),
    "one-hot": Fits(fit_one_hot, _array_of_labels),
    "counts": Fits(fit_counts, lambda kind, seen: (_largest(seen, "counts 0..N") + 1, Identity())),
    "standardised": Fits(fit_real, lambda kind, seen: (2, Standardise.from_moments(*seen.moments))),
    "scaled": Fits(fit_scaled, _array_from_zero),
    "interval": Fits(fit_interval, _array_in_interval),
    "fractions": Fits(fit_fractions, _array_of_fractions),
}
"""Encoders by the name that a kind of unit has in ``Layer.coding``."""


def fit_column(kind: str, cells: Series, options: Mapping[str, Any], weights: Array | None = None) -> Encoder:
    """Returns the coding of a column for units of a kind, by options among ``options_of(kind)``.

    Raises:
        ValueError: units whose ``coding`` is none of ``FITS``, or cells that they do not take.
    """
    make, more = _fit_of(kind).column, dict(options)
    parameters = signature(make).parameters
    if "states" in parameters:
        more["states"] = states_of(kind)
    if weights is not None and "weights" in parameters:
        more["weights"] = weights
    return make(cells, **more)


def _fit_of(kind: str) -> Fits:
    return FITS[_checks.one_of(Layer.registry[kind].coding, f"coding of {kind} units", FITS)]


def fit_array(kind: str, seen: Seen) -> tuple[int, Encoder]:
    """Returns the number of states of each unit of a kind, and the encoder of an array for them."""
    try:
        return _fit_of(kind).array(kind, seen)
    except ValueError as error:
        raise ValueError(f'X: for visible="{kind}": {error}') from error


@cache
def states_of(kind: str) -> tuple[float, ...]:
    """Lists the states of a unit of a kind whose states are numbers."""
    return tuple(Layer.registry[kind].plain(1).values()[:, 0].tolist())


def options_of(kind: str) -> tuple[str, ...]:
    """Lists the options of a column besides the kind of its unit, each otherwise inferred from its cells."""
    return tuple(name for name, p in signature(_fit_of(kind).column).parameters.items() if p.default is None)


# Cells in words and numbers
# ---------------------------------------------------------------------------------


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


def weights_of(cells: Series, weights: Array | float) -> Array | None:
    """Returns the weights of the cells that are not missing; None: all count alike."""
    return weights[~cells.missing] if isinstance(weights, np.ndarray) else None


def few(values: Sequence[Any], most: int = 5) -> str:
    """Lists the first of some values or names."""
    return ", ".join(map(shown, values[:most])) + (", …" if len(values) > most else "")


def shown(value: Any) -> str:
    """Writes a cell's value: what a frame has as an integer may be a float here."""
    value = value.item() if isinstance(value, np.generic) else value
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return repr(int(value) if whole else value)
