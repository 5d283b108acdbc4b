"""Fits of codings, from the cells of a column or from all entries of an array, by the kind of unit.

A coding is an ``Encoder`` of columns, (rows, columns) of float64 or of objects, and takes NaN, None and what
it has no state for as NaN in the whole of a unit. ``FITS`` finds those of a kind of unit by ``Layer.coding``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium.data import Encoder, Identity, OneHot, Series, Standardise
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.cells import all_of, few, numbers_of as numbers_of, values_of, weights_of as weights_of
from harmonium.tables.labels import Numbered, OneOf
from harmonium.tables.numbers import (
    Counts,
    Curved as Curved,
    Logarithm,
    Quantiles,
    common_among,
    mean_deviation,
    steps_in_words,
)

IGNORE = "ignore"
"""In place of the kind of a unit: the column has none."""
OTHERS = "other"
"""The name of a state that stands for several rare labels."""
_COMMON = 50  # labels at most with a state of their own beside rare ones: a unit has as many states
_DISTINCT = 10  # values at least, to choose a transform by: fewer fit any curve
_BEYOND = 0.01  # share of draws beyond the range of the cells, from which on a curve invents values


# From the cells of a column
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
        raise ValueError(f"expected counts from {least}{steps_in_words(step)}, received {wrong[0]:g}")
    most = max(least + step, int(seen.max()))
    if largest is not None and largest < most:
        raise ValueError(f"largest: expected at least {most}, which is there, received {largest}")
    return Counts(most if largest is None else largest, least, step)


def _fit_straight(cells: Series, weights: Array | float = 1.0) -> Standardise:
    return Standardise(*mean_deviation(numbers_of(cells), weights_of(cells, weights)))


TRANSFORMS: dict[str, Callable[[Series, Array | float], Encoder]] = {
    **{"none": _fit_straight, "log": Logarithm.fit, "quantile": Quantiles.normal}
}
"""Codings of numbers for real units, each from the cells of a column and their weights, by name."""


def fit_real(cells: Series, weights: Array | float = 1.0, *, transform: str | None = None) -> Encoder:
    """Returns the coding of numbers for real units, by one of ``TRANSFORMS``.

    "auto" chooses the likeliest of them as a normal column, with the penalty of the Bayesian information
    criterion, among those that hardly leave the range of the cells; "quantile" where a number is common.
    """
    chosen = _checks.one_of(transform or "none", "transform", ("auto", *TRANSFORMS))
    if chosen != "auto":
        return TRANSFORMS[chosen](cells, weights)
    seen, row_weights = numbers_of(cells), weights_of(cells, weights)
    best: Encoder = _fit_straight(cells, weights)
    values, index = np.unique(seen, return_inverse=True)
    if len(values) < _DISTINCT:
        return best
    shares = np.bincount(index, row_weights)
    if common_among(shares / shares.sum(), len(seen)).any():
        return Quantiles.normal(cells, weights)
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


def refuse_negative(low: float) -> None:
    """Refuses numbers of which the least is negative."""
    if low < 0:
        raise ValueError(f"expected numbers from 0, received {low:g}")


def refuse_beyond_1(low: float, high: float) -> None:
    """Refuses numbers that are not all in [0, 1]."""
    if low < 0 or high > 1:
        remedy = "divide grey levels by their largest value"
        raise ValueError(f"expected numbers in [0, 1], received {low:g} to {high:g}; {remedy}")


def fit_scaled(cells: Series, weights: Array | float = 1.0) -> Standardise:
    """Returns the coding of numbers from 0, which divides by their root mean square."""
    seen = numbers_of(cells)
    refuse_negative(seen.min())
    square = np.average(seen**2, weights=weights_of(cells, weights))
    return Standardise(0.0, float(np.sqrt(square)) or 1.0, 0.0)


def fit_interval(cells: Series, *, low: float | None = None, high: float | None = None) -> Standardise:
    """Returns the coding of numbers from ``low`` to ``high`` in [0, 1].

    Without either, numbers in [0, 1] stay as they are, and others are moved by little more than their range.
    """
    seen = numbers_of(cells)
    first, last = float(seen.min()), float(seen.max())
    if low is None and high is None and first >= 0 and last <= 1:
        return Standardise(0.0, 1.0, 0.0, 1.0)
    room = (last - first) / len(seen)  # for one cell beyond an end that the cells have chosen
    bottom = first - room if low is None else _checks.real(low, "low")
    top = last + room if high is None else _checks.real(high, "high")
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


def encoder_of_bits(low: float, high: float) -> Encoder:
    """Returns what turns 0 and 1 into the two states of a unit."""
    return Identity() if (low, high) == BITS else Standardise(-low / (high - low), 1 / (high - low))


def _array_of_states(kind: str, seen: Seen) -> tuple[int, Encoder]:
    states = states_of(kind)
    pair, wrong = len(states) == 2, seen.beside(states)
    if wrong is None:
        return len(states), Identity()
    if pair and seen.beside(BITS) is None:
        return 2, encoder_of_bits(*states)
    listed = f"{{{', '.join(f'{x:g}' for x in states)}}}" + (" or {0, 1}" if pair and states != BITS else "")
    wrong = seen.beside({*states, *BITS}) if pair else wrong
    received = f"both {states[0]:g} and 0" if wrong is None else f"{wrong:g}"
    remedy = "; binarise makes 0 and 1 of grey levels"
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
