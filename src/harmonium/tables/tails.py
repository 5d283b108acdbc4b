"""Cells beyond what was seen: they have the mass of one more row, and fall with the square of the distance.

Of n + 1 cells the one to come may be new. A label without a state has the probability 1 / (n + 1). So have
numbers without one of columns in steps, in the state of the nearest number. A real number beyond the range
has the mass of the states beyond that of the range's end, about one cell of n + 1.
"""

from __future__ import annotations

from math import inf, log, log1p
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from harmonium.data.transforms import Array

if TYPE_CHECKING:
    from harmonium.tables.column import ColumnCodec

Ends = tuple[float, float]
"""A lower and an upper number, of which the first may be -inf and the second inf."""
_NO_ROOM = 1e-3  # of the mass of one cell, for what lies beyond a bound that was declared


def log_unseen(seen: int) -> float:
    """Returns ln p of a cell other than those seen."""
    return -log(seen + 1)


class Tail(NamedTuple):
    """Real numbers beyond one end of the range seen, at distances d in units of the slope there.

    Where states have no bound, that of a number lies ln(1 + d) beyond the end's. Numbers and states are then
    one to one and slopes have no jump, so that scores and draws are of one distribution, and every
    conditional adds up to 1, whatever the machine. Where they have one, a number keeps the state of the end,
    and its density falls from there as 1 / (1 + d / room)², with the mass of the states up to the bound.
    A cell far out costs a logarithm: it must not outweigh the rest of its row.

    Attributes:
        sign: 1 above the range, -1 below it.
        end: Number at the end.
        state: its state.
        slope: of the states along the numbers there.
        room: Distance from the state to the bound of states; inf: there is none.
    """

    sign: int
    end: float
    state: float
    slope: float
    room: float

    @property
    def open(self) -> bool:
        """True if the unit has states beyond the end."""
        return self.room == inf

    def distances(self, numbers: Array) -> Array:
        """Returns how far numbers lie beyond the end, in units of the slope; 0 within."""
        return np.maximum(self.sign * (numbers - self.end), 0.0) * self.slope

    def states(self, numbers: Array) -> Array:
        """Returns the states of numbers beyond the end."""
        return self.state + self.sign * np.log1p(self.distances(numbers))

    def holds(self, states: Array) -> Array:
        """Marks states that lie beyond that of the end."""
        beyond: Array = (self.sign * (states - self.state) > 0) & self.open
        return beyond

    def numbers(self, states: Array) -> Array:
        """Returns the numbers of states beyond that of the end."""
        return self.end + self.sign * np.expm1(self.sign * (states - self.state)) / self.slope

    def log_slopes(self, states: Array) -> Array:
        """Returns ln of the slope at states beyond that of the end."""
        return log(self.slope) - self.sign * (states - self.state)

    def log_falls(self, numbers: Array) -> Array:
        """Returns ln of the density of numbers by that at the end, whose state they are given.

        Where states have no bound it falls as that of a normal column does at the end.
        """
        d = self.distances(numbers)
        return -max(self.sign * self.state, 1.0) * d if self.open else -2 * np.log1p(d / self.room)


def tails_of(column: ColumnCodec) -> tuple[Tail, ...]:
    """Returns what lies below and above a column of real numbers; none of others."""
    if column.ends is None or column.grid is not None:
        return ()
    ends = np.array(column.ends)
    states = column.states_of(ends)
    slopes = np.exp(column.log_slopes_of(states))
    least_room, tails = _NO_ROOM / (column.seen + 1), []
    for i, (sign, bound) in enumerate(zip((-1, 1), column.bounds, strict=True)):
        room = inf if bound is None else max(abs(bound - float(states[i])), least_room)
        tails.append(Tail(sign, float(ends[i]), float(states[i]), float(slopes[i]), room))
    return tuple(tails)


def log_falls(column: ColumnCodec, values: Array, beyond: str) -> Array:
    """Returns ln p(value | the state it is given), (rows,); of a label without one ln p(label)."""
    known, unseen = -log1p(1 / column.seen), log_unseen(column.seen)
    if column.ends is None:
        new = np.isnan(column.states_of(values).reshape(len(values), -1)).all(1)
        return np.where(new, unseen, known)
    (low, high), tails = column.ends, tails_of(column)
    if column.grid is not None:
        d = np.maximum(np.maximum(low - values, values - high), 0.0) / column.grid
        far = unseen - np.log(np.maximum(d, 1.0) * (1.0 + d))  # whose sum over 1, 2, … is 1
        between = unseen - log(max(column.grid, 1.0))
        return np.where(d > 0, far, np.where(column.nearest(values) == values, known, between))
    falls = sum(tail.log_falls(values) for tail in tails if beyond == "end" or not tail.open)
    if column.atom is None:
        return falls + np.zeros(len(values))
    # Below a probability a density falls that is no larger, in whatever units.
    unit = max(1.0, 1 / tails[0].slope)
    below = unseen - log(unit) - 2 * np.log1p(np.maximum(column.atom - values, 0.0) / unit)
    return np.where(values < low, below, np.where(values == low, known, tails[1].log_falls(values)))
