"""The cells that a column may hold: what training saw, and what may lie beyond it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, floor, inf, isfinite, log
from typing import Any, NamedTuple, Self, final

import numpy as np

from harmonium import _checks
from harmonium.data import Encoder, Series, Standardise
from harmonium.data.transforms import Array
from harmonium.tables.labels import Numbered, OneOf
from harmonium.tables.numbers import Counts, Quantiles

_TAIL = 0.1  # share of the cells that tell how a tail falls: fewer are a matter of chance in small tables

Ends = tuple[float, float]
"""A lower and an upper number, of which the first may be -inf and the second inf."""
BEYOND = ("end", "tail", "line")
"""States of real numbers beyond the range seen: that of its end, their own (``Tail``), or the coding's."""


class Tail(NamedTuple):
    """Real numbers beyond one end of the range seen, and their states.

    At a distance d, in units of the slope there, the state lies ln(1 + d) beyond that of the end. Numbers and
    states are one to one and slopes have no jump, so that scores and draws are of one distribution, and every
    conditional adds up to 1, whatever the machine. The density of a normal column falls as exp(-(c + 1)d) at
    first, for a state c of the end, and more slowly further out: held-out cells lie further out than an
    exponential has it, and one of them must not outweigh the rest of its row.

    Where states have a bound, a number keeps the state of the end, and its density falls from there as
    exp(-rate · d), with the mass of the states up to the bound, those of about one of n + 1 cells. What lies
    beyond a bound that was declared has next to none.

    Attributes:
        sign: 1 above the range, -1 below it.
        end: Number at the end.
        state: its state.
        slope: of the states along the numbers at the end, that of the cells nearest to it.
        rate: at which the density of a normal or bounded column falls, per state.
        open: whether the unit has states beyond the end.
    """

    sign: int
    end: float
    state: float
    slope: float
    rate: float
    open: bool

    def distances(self, numbers: Array) -> Array:
        """Returns how far numbers lie beyond the end, in units of the slope; 0 within."""
        return np.maximum(self.sign * (numbers - self.end), 0.0) * self.slope

    def states(self, numbers: Array) -> Array:
        """Returns the states of numbers beyond the end."""
        return self.state + self.sign * np.log1p(self.distances(numbers))

    def holds(self, states: Array) -> Array:
        """Marks states that lie beyond that of the end."""
        beyond: Array = self.sign * (states - self.state) > 0
        return beyond

    def numbers(self, states: Array) -> Array:
        """Returns the numbers of states beyond that of the end."""
        return self.end + self.sign * np.expm1(self.sign * (states - self.state)) / self.slope

    def log_slopes(self, states: Array) -> Array:
        """Returns ln of the slope at states beyond that of the end."""
        return log(self.slope) - self.sign * (states - self.state)


@final
@dataclass(frozen=True)
class Support:
    """The cells that training saw of a column, and how probable others are.

    A number without a state of its own has that of the nearest number with one. Its probability in that state
    falls with the distance: geometrically beyond counts, where ``below`` and ``above`` are the mean
    distances; real numbers have a ``Tail``. A label never seen has the probability ``unseen`` (Good and
    Turing), and so has a number between the steps of a column.

    Attributes:
        cells: Cells that were not missing, at least 1.
        once: Number of labels that were seen once, at least 1, as which those never seen count; 1 of numbers.
        ends: the least and the largest number with a state; None: the column has labels.
        below: Mean distance below the least number, in the units of the data, of what falls by steps, or from
            the probability of 0 beside real numbers.
        above: Mean distance above the largest number, likewise.
        beyond: Probabilities that a cell in the first or last state lies beyond it; 0 where states are real.
        step: Distance of two states; None: they are real.
        filled: Limits of cells that are filled in; None: there are none.
        drawn: Limits of cells in rows that are drawn; None: there are none.
    """

    cells: int
    once: int = 1
    ends: Ends | None = None
    below: float = 1.0
    above: float = 1.0
    beyond: Ends = (0.0, 0.0)
    step: float | None = None
    filled: Ends | None = None
    drawn: Ends | None = None

    def __post_init__(self) -> None:
        for name in ("ends", "beyond", "filled", "drawn"):
            pair = getattr(self, name)
            if pair is not None:
                low, high = (end if x is None else float(x) for x, end in zip(pair, (-inf, inf), strict=True))
                if not (low <= high or name == "beyond"):
                    raise ValueError(f"{name}: expected a lower and an upper number, received {list(pair)}")
                object.__setattr__(self, name, (low, high))

    @property
    def unseen(self) -> float:
        """The probability of what was never seen, by Good and Turing."""
        return self.once / (self.cells + self.once)

    @classmethod
    def fit(
        cls,
        cells: Series,
        coding: Encoder,
        step: float | None,
        limits: Any = None,
        declared: bool = False,
    ) -> Self:
        """Looks at the cells of a column.

        Args:
            cells: Cells, numbers in place of dates and times, at least one of which is not missing.
            coding: Coding of the cells.
            step: all cells are multiples of it; None: they are real.
            limits: the least and the largest number that may be filled in or drawn, -inf and inf for none;
                None: what is filled in stays within what was seen, and what is drawn may lie beyond it, but
                not below 0 where all was above.
            declared: whether the range of the coding was given, so that it limits too.
        """
        seen = cells.values[~cells.missing]
        count = len(seen)
        if isinstance(coding, OneOf) or not cells.numeric:
            once = max(1, sum(number == 1 for number in Counter(seen.tolist()).values()))
            if limits is not None:
                raise ValueError(f"limits: expected none for labels, received {limits!r}")
            return cls(count, once)
        first, last = float(seen.min()), float(seen.max())
        low, high = _ends_of(coding)
        if isinstance(coding, Standardise) and coding.high is not None:
            # Bounds that were chosen by the cells have room beyond them.
            low, high = (
                (low, high) if declared or (coding.mean, coding.scale) == (0.0, 1.0) else (first, last)
            )
        low, high = (first if low is None else low), (last if high is None else high)
        grid = _step_of(coding)
        shortest = grid / 2 if grid is not None else max((last - first) / count, 1e-6 * max(abs(last), 1e-6))
        falls, at_ends = [1.0, 1.0], [0.0, 0.0]
        for i, end in enumerate((low, high)):
            if grid is not None or (i == 0 and isinstance(coding, Quantiles) and coding.zero):
                at_ends[i] = 1 / (max(1, int((seen == end).sum())) + 2)
                falls[i] = max(shortest, _mean_excess(seen if i else -seen))
        given = _limits_of(limits, first, last)
        filled = given or ((low, high) if declared else (first, last))
        below, above = falls
        made = cls(count, 1, (low, high), below, above, (at_ends[0], at_ends[1]), grid, filled)
        drawn = given or ((low, high) if declared or grid is not None else made._drawn(coding))
        if step is not None and given is None:  # the limits are cells of the column themselves
            least, most = (end / step if isfinite(end) else end for end in drawn)
            drawn = (
                min(ceil(least - 1e-6) * step, filled[0]) if isfinite(least) else least,
                max(floor(most + 1e-6) * step, filled[1]) if isfinite(most) else most,
            )
        return replace(made, drawn=drawn)

    def _drawn(self, coding: Encoder) -> Ends:
        """Returns what limits real cells that are drawn: what was all on one side of 0 stays there."""
        assert self.ends is not None
        (low, high), (below, above) = self.ends, self.tails(coding)
        if low < 0 < high:
            return -inf, inf
        if low >= 0:
            return (low * low / (low + 1 / below.slope) if low else 0.0), inf
        return -inf, -(high * high / (1 / above.slope - high) if high else 0.0)

    def tails(self, coding: Encoder) -> tuple[Tail, Tail]:
        """Returns what lies below and above a column of real numbers."""
        ends = np.array([self.ends])
        states = coding.encode(ends.T)
        slopes = np.exp(coding.log_slopes_at(states))[:, 0].tolist()
        found = []
        for sign, end, state, slope, bound in zip(
            (-1, 1), *ends.tolist(), states[:, 0].tolist(), slopes, _bounds_of(coding), strict=True
        ):
            if bound is None:
                rate = max(sign * state, 1.0)
            else:  # without room by a thousandth of what one more cell would have
                rate = 1 / max(abs(bound - state), 1e-3 / (self.cells + 1))
            found.append(Tail(sign, end, state, slope, rate, bound is None))
        return found[0], found[1]

    def widened(self, cells: Series, coding: Encoder) -> Support:
        """Returns what is known with further cells: real numbers may then lie as far out as these."""
        seen = cells.values[~cells.missing] if cells.numeric else np.empty(0)
        count = self.cells + int((~cells.missing).sum())
        if self.ends is None or not len(seen):
            return replace(self, cells=count)
        first, last = float(seen.min()), float(seen.max())
        fixed = _ends_of(coding)
        ends = tuple(
            end if bound is not None else function(end, x)
            for end, bound, function, x in zip(self.ends, fixed, (min, max), (first, last), strict=True)
        )
        filled, drawn = (
            limits and (min(limits[0], ends[0]), max(limits[1], ends[1]))
            for limits in (self.filled, self.drawn)
        )
        return replace(self, cells=count, ends=ends, filled=filled, drawn=drawn)  # type: ignore[arg-type]

    def nearest(self, numbers: Array, coding: Encoder) -> Array:
        """Returns the nearest numbers with a state, (rows,), NaN where missing."""
        assert self.ends is not None
        inside = np.clip(numbers, *self.ends)
        if isinstance(coding, Counts):
            return np.round((inside - coding.lowest) / coding.step) * coding.step + coding.lowest
        if isinstance(coding, Numbered):
            known = np.sort(np.array(coding.values, dtype=np.float64))
            places = np.searchsorted((known[1:] + known[:-1]) / 2, inside)
            return np.where(np.isnan(inside), np.nan, known[places.clip(max=len(known) - 1)])
        return inside

    def states(self, numbers: Array, coding: Encoder, beyond: str) -> Array:
        """Returns the states of numbers, (rows, 1), NaN where missing.

        Args:
            numbers: Numbers, (rows,).
            coding: Coding of the column.
            beyond: one of ``BEYOND``; numbers in steps have the state of the nearest with one, but by "line".
        """
        if beyond == "line":
            states: Array = coding.encode(numbers[:, None])
            return states
        states = coding.encode(self.nearest(numbers, coding)[:, None])
        if beyond == "tail" and self.step is None:
            for tail in self.tails(coding):
                out = (tail.distances(numbers) > 0) & tail.open
                states[out, 0] = tail.states(numbers[out])
        return states

    def log_shares(self, numbers: Array, coding: Encoder, beyond: str = "end") -> Array:
        """Returns ln p(cell | its state) of numbers, (rows,); 0 where one is missing.

        Beyond real states it is the fall of the density from that at the end, ln 1 there.

        Args:
            numbers: Numbers, (rows,).
            coding: Coding of the column.
            beyond: of ``BEYOND``, as of the states. Those of a tail have no further share.
        """
        assert self.ends is not None
        shares = np.zeros(len(numbers))
        there = ~np.isnan(numbers)
        tails = (None, None) if self.step is not None else self.tails(coding)
        outside = np.zeros(len(numbers), dtype=bool)
        sides = zip((-1, 1), self.ends, (self.below, self.above), self.beyond, tails, strict=True)
        for sign, end, mean, p, tail in sides:
            distance = sign * (numbers - end)
            out = there & (distance > 0)
            outside |= out
            if self.step is not None:
                q = mean / (mean + self.step)  # of a geometric distribution with this mean
                steps, first = distance[out] / self.step, log(p) + log(1 - q)
                last = np.log1p(-p) + np.log1p(-self.unseen)
                falling = last + steps * (first - last)
                shares[out] += np.where(steps < 1, falling, first + (steps - 1) * log(q))
            elif p > 0:  # a density beside a probability: no more of it, in whatever units
                shares[out] += log(p) - log(max(mean, 1.0)) - distance[out] / mean
            elif tail is not None and (beyond == "end" or not tail.open):
                shares[out] -= tail.rate * tail.distances(numbers[out])
            if p > 0:
                shares[there & (distance == 0)] += np.log1p(-p)
        if self.step is not None:
            between = there & ~outside & (self.nearest(numbers, coding) != numbers)
            shares[between] += log(self.unseen) - log(max(self.step, 1.0))
            shares[there & ~outside & ~between] += np.log1p(-self.unseen)
        return shares

    def to_dict(self) -> dict[str, Any]:
        """In plain JSON types, None for an end that is infinite."""
        return {
            name: [end if abs(end) < inf else None for end in x] if isinstance(x, tuple) else x
            for name, x in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Self:
        """Rebuilds it from its description by ``to_dict``."""
        values: dict[str, Any] = {k: tuple(x) if isinstance(x, list) else x for k, x in description.items()}
        return cls(**values)


def _ends_of(coding: Encoder) -> tuple[float | None, float | None]:
    """Returns the least and the largest number that a coding has a state for; None: it has no such end."""
    if isinstance(coding, Counts):
        return float(coding.lowest), float(coding.largest)
    if isinstance(coding, Numbered):
        return float(min(coding.values)), float(max(coding.values))
    if isinstance(coding, Quantiles) and coding.zero:
        return 0.0, coding.points[-1]
    if isinstance(coding, Standardise):
        mean, scale = float(np.min(coding.mean)), float(np.min(coding.scale))
        low, high = (None if x is None else mean + x * scale for x in (coding.low, coding.high))
        return low, high
    return None, None


def _bounds_of(coding: Encoder) -> tuple[float | None, float | None]:
    """Returns the least and the largest state that a unit of real numbers has; None: it has no such bound."""
    if isinstance(coding, Quantiles) and coding.zero:
        return 0.0, 1.0
    return (coding.low, coding.high) if isinstance(coding, Standardise) else (None, None)


def _step_of(coding: Encoder) -> float | None:
    """Returns the distance of two states in the units of the data; None where states are real."""
    if isinstance(coding, Counts):
        return float(coding.step)
    if isinstance(coding, Numbered):
        values = sorted(map(float, coding.values))
        return (values[-1] - values[0]) / (len(values) - 1) if len(values) > 1 else 1.0
    return None


def _mean_excess(numbers: Array) -> float:
    """Returns the mean distance of the largest tenth of numbers from the largest of the others."""
    ordered = np.sort(numbers)
    tail = max(1, ceil(_TAIL * len(ordered)))
    return float(np.mean(ordered[-tail:]) - ordered[max(0, len(ordered) - tail - 1)])


def _limits_of(limits: Sequence[Any] | None, first: float, last: float) -> Ends | None:
    """Checks limits that were given."""
    if limits is None:
        return None
    if isinstance(limits, str) or not isinstance(limits, Sequence) or len(limits) != 2:
        raise ValueError(f"limits: expected two numbers, such as [0, 120] or [0, inf], received {limits!r}")
    low, high = (
        end if x is None else x if x in (-inf, inf) else _checks.real(x, "limits")
        for x, end in zip(limits, (-inf, inf), strict=True)
    )
    if not (low <= first and last <= high):
        raise ValueError(
            f"limits: expected two numbers around {first:g} to {last:g}, which are there, "
            f"received {low:g} and {high:g}"
        )
    return float(low), float(high)
