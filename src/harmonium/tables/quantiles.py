"""Columns of real numbers along a smooth curve through their quantiles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np
import torch

from harmonium import _checks
from harmonium.data import Series
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.cells import numbers_of, weights_of
from harmonium.tables.column import COMMON, FEW_NUMBERS, ColumnCodec

_ABOVE = 3.0  # times as common as the next numbers, which tells it from one of a coarse scale
_CELLS = 20  # at least, with a common number: fewer fall together by chance in small columns
_SHRUNK = 1e-3  # share of its states that a common number leaves between itself and the next
_KNOT = 0.6  # standard deviations between two points of a normal column: shorter lines follow the noise
_STEEP = 10.0  # times as steep as both neighbours, from which on a piece is a gap
_CROWD = 20  # different cells on either side of a gap that is wider than them: 1 in 3^20 by chance
_PIECES = 10  # equal shares of what is not zero, each a line
_TAIL = 5  # cells at least on the last line: the last share is halved down to them, for long tails


@final
@dataclass(frozen=True, kw_only=True)
class Quantiles(ColumnCodec):
    """A smooth rising curve through points of a column, which goes on straight beyond them.

    Between two points it is a quotient of two parabolas (Gregory and Delbourgo 1982), which rises whatever
    its slopes at the points are. Densities then have no jump: along straight lines those of skewed columns
    are off by a factor of two beside a point.

    A number that many cells have is a point twice: the state of such a cell is the middle of the two, and
    every state between them is decoded to it. In place of its density stands a probability, which is exact
    where the column is normal; ``log_masses`` corrects the whole column elsewhere.

    Attributes:
        points: numbers, rising, at least two; those of many cells stand twice, the first and the last not.
        states: States of the points, rising.
        zero: whether 0, the first point and state, is a value by itself, and the last state the largest.
    """

    points: tuple[float, ...]
    states: tuple[float, ...]
    zero: bool = False

    serves = ("standardised", "fractions")
    transform = "quantile"
    curved = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("points", "states"):
            numbers = tuple(_checks.real(x, name) for x in getattr(self, name))
            steps = np.diff(numbers)
            twice = (steps == 0) & (name == "points")
            wrong = (steps < 0) | ((steps == 0) & ~twice)
            if len(numbers) < 2 or len(numbers) != len(self.points) or wrong.any() or twice[[0, -1]].any():
                raise ValueError(f"{name}: expected as many rising numbers as points, at least two")
            object.__setattr__(self, name, numbers)

    @classmethod
    def fields_of(cls, cells: Series, unit: type[Layer], weights: Array | None) -> dict[str, Any]:
        """Lays the quantiles of numbers onto normal ones, of those above 0 beside zeros onto [0, 1]."""
        numbers = numbers_of(cells)
        if unit.coding != "fractions":
            return _normal(numbers, weights_of(cells, weights))
        if numbers.min() < 0 or numbers.max() == 0:
            raise ValueError(f"expected numbers from 0, some above it, received {numbers.min():g}")
        positive = numbers[numbers > 0]
        seen, levels, _ = _levels(positive, None)
        last = len(numbers) / (len(numbers) + 1)  # room for one cell beyond the largest
        knots = np.linspace(0.0, 1.0, min(_PIECES, len(seen)) + 1)[1:-1]
        halvings = max(0, int(math.log2(len(positive) / (_PIECES * _TAIL))))
        knots = np.append(knots, 1.0 - 0.5 ** np.arange(1, halvings + 1) / _PIECES)
        knots = np.unique(np.maximum(knots, levels[0]).round(9))  # none that only rounding parts
        knots = knots[knots < levels[-1] - 1e-9]
        points = [0.0, *np.interp(knots, levels, seen).tolist(), float(seen[-1])]
        return {"points": points, "states": [0.0, *(last * knots).tolist(), last], "zero": True}

    @property
    def common(self) -> dict[float, tuple[float, float]]:
        """Numbers that many cells have, with the first and the last state of each."""
        ends = zip(pairwise(self.points), pairwise(self.states), strict=True)
        return {x: states for (x, other), states in ends if x == other}

    @property
    def complexity(self) -> int:
        return len(self.points) - 2

    @property
    def atom(self) -> float | None:
        return 0.0 if self.zero else None

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        return (0.0, 1.0) if self.zero else (None, None)

    def states_of(self, values: Array) -> Array:
        known = (values >= 0) & (self.points[-1] >= values) if self.zero else ~np.isnan(values)
        start, first, rise, width, p, q = self._curve(values, self.points)
        share = (values - start) / np.where(rise == 0, 1.0, rise)
        t = np.clip(share, 0.0, 1.0)
        bend = (p + q - 2) * t
        t = 2 * t / (p - bend + np.sqrt(np.maximum((p - bend) ** 2 + 4 * t * (1 - p + bend), 0.0)))
        beyond = share - np.clip(share, 0.0, 1.0)
        states = np.where(known, first + width * (t + beyond / np.where(beyond < 0, p, q)), np.nan)
        for number, ends in self.common.items():
            states = np.where(number == values, sum(ends) / 2, states)
        return states

    def cells_of(self, states: Array) -> Array:
        start, first, rise, width, p, q = self._curve(states, self.states)
        share = (states - first) / width
        t = np.clip(share, 0.0, 1.0)
        inner, beyond = t * (1 - t), share - t
        curve = (t * t + p * inner) / (1 + (p + q - 2) * inner)
        return start + rise * (curve + beyond * np.where(beyond < 0, p, q))

    def log_slopes_of(self, states: Array) -> Array:
        _, first, rise, width, p, q = self._curve(states, self.states)
        t = np.clip((states - first) / width, 0.0, 1.0)
        inner = t * (1 - t)
        rises = (q * t * t + 2 * inner + p * (1 - t) ** 2) / (1 + (p + q - 2) * inner) ** 2
        slopes = np.log(width / np.where(rise == 0, 1.0, rise)) - np.log(rises)
        for low, high in self.common.values():
            below, above = torch.special.ndtr(torch.tensor([low, high], dtype=torch.float64)).tolist()
            probability = math.log(above - below) + ((low + high) ** 2 / 4 + math.log(2 * math.pi)) / 2
            slopes = np.where((states > low) & (states < high), probability, slopes)
        return np.where(np.isnan(states), np.nan, np.where((states == 0) & self.zero, 0.0, slopes))

    def _curve(self, x: Array, ends: tuple[float, ...]) -> tuple[Array, ...]:
        """Returns the piece of the curve at each of x: its first point and state, its rise and width, and the
        slopes of points along states at both of its ends, as shares of its mean slope.

        The logarithm of a slope is interpolated by cubics between the pieces of a run that rises. A piece
        steeper than both neighbours is a gap, and a run by itself: it would empty the pieces beside it.
        """
        rise, width = np.diff(self.points), np.diff(self.states)
        p, q, flat = np.ones(len(rise)), np.ones(len(rise)), rise == 0
        steep, gap = rise / width, np.zeros(len(rise))
        gap[1:-1] = steep[1:-1] > _STEEP * np.maximum(steep[:-2], steep[2:])
        for run in np.split(np.arange(len(rise)), np.flatnonzero(np.diff(flat + 2 * gap)) + 1):
            if not flat[run[0]]:
                means = np.log(steep[run])
                wider = np.concatenate([means[:1], means, means[-1:]])
                inner = (9 * (wider[1:-2] + wider[2:-1]) - wider[:-3] - wider[3:]) / 16
                slopes = np.exp(np.concatenate([means[:1], inner, means[-1:]]))
                p[run], q[run] = slopes[:-1] / steep[run], slopes[1:] / steep[run]
        piece = np.clip(np.searchsorted(ends, x, "right") - 1, 0, len(ends) - 2)
        parts = (np.array(self.points[:-1]), np.array(self.states[:-1]), rise, width, p, q)
        return tuple(part[piece] for part in parts)


def _normal(numbers: Array, weights: Array | None) -> dict[str, Any]:
    """Returns points and states that lay quantiles onto those of a normal column, at equal distances there.

    A number of a share ``COMMON`` of the cells, with others on both sides, takes all of its quantiles. A gap
    between two crowds of cells is a piece by itself, or it would have the cells of both crowds.
    """
    seen, levels, frequencies = _levels(numbers, weights)
    scores = _scores(levels)
    number = max(5, 1 + round((scores[-1] - scores[0]) / _KNOT))
    knots = np.linspace(scores[0], scores[-1], min(number, len(scores)))
    many = _common_among(frequencies, len(numbers))
    ends = _scores(levels[many, None] + (1 - _SHRUNK) * frequencies[many, None] * np.array([-0.5, 0.5]))
    free = np.repeat(~many, np.where(many, 2, 1))
    scores, seen = np.repeat(scores, 1 + many), np.repeat(seen, 1 + many)
    scores[~free] = ends.ravel()
    spans = seen[_CROWD:] - seen[:-_CROWD]
    wider = np.diff(seen)[_CROWD:-_CROWD] > np.maximum(spans[: -_CROWD - 1], spans[_CROWD + 1 :])
    gaps = np.flatnonzero(wider) + _CROWD
    pairs = np.column_stack([scores[gaps], scores[gaps + 1]])
    ends = np.concatenate([ends, pairs])
    flanks = pairs + 0.55 * _KNOT * np.array([-1, 1])  # which fall faster than a crowd's middle
    knots = np.sort(np.concatenate([knots, flanks.ravel()]))
    near = (knots[:, None] > ends[:, 0] - _KNOT / 2) & (knots[:, None] < ends[:, 1] + _KNOT / 2)
    near[[0, -1]] = False
    knots = np.unique([*knots[~near.any(1)], *ends.ravel()])
    return {"points": np.interp(knots, scores, seen).tolist(), "states": knots.tolist()}


def _common_among(frequencies: Array, cells: int) -> Array:
    """Marks the common ones of different numbers, in their order; never the least and the largest."""
    many = np.zeros(len(frequencies), dtype=bool)
    if len(frequencies) > FEW_NUMBERS:
        neighbours = np.maximum(frequencies[:-2], frequencies[2:])
        many[1:-1] = (frequencies[1:-1] >= max(COMMON, _CELLS / cells)) & (
            frequencies[1:-1] > _ABOVE * neighbours
        )
    return many


def _levels(seen: Array, weights: Array | None) -> tuple[Array, Array, Array]:
    """Returns different values, the share of the weight below the middle of each, and that of each."""
    values, index = np.unique(seen, return_inverse=True)
    frequencies = np.bincount(index, weights)
    frequencies = frequencies / frequencies.sum()
    return values, np.cumsum(frequencies) - frequencies / 2, frequencies


def _scores(levels: Array) -> Array:
    """Returns the normal quantiles of levels in (0, 1)."""
    scores: Array = torch.special.ndtri(torch.from_numpy(levels)).numpy()
    return scores
