"""Visible units for an array, whose columns are of one kind, from one pass over its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._rows import Moments
from harmonium.data import Encoder, Identity, OneHot, Rows, Standardise
from harmonium.layers import Layer
from harmonium.tables.column import states_of
from harmonium.tables.line import refuse_beyond
from harmonium.tables.recipe import is_table

_DIFFERENT = 64  # entries of an array that are told apart; more than units of listed states have
_BITS = (0.0, 1.0)  # the states of most two-valued units; data of 0 and 1 become the two states of any


class _Seen(NamedTuple):
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

    def find_other(self, states: Sequence[float] | set[float]) -> float | None:
        """Returns an entry that is none of some states; None where all are."""
        return next((value for value in self.values if value not in states), None)


def visible_for(
    rows: Rows, kind: str = "auto", weights: Tensor | None = None, *, images: bool = False
) -> tuple[Layer, Encoder]:
    """Finds a visible layer for an array, and the encoder that turns data into its states and samples back.

    Args:
        rows: the data, (rows, columns), which are read once.
        kind: "auto": two-valued units where every entry is one of their two values, Bernoulli for 0 and 1 and
            Spin for -1 and +1 (the density of such data has no upper bound), else Gaussian. "bernoulli" takes
            0 and 1; "spin" takes -1 and +1, or 0 and 1 which become them; "categorical" takes integers
            0..q-1, with q one more than the largest; "binomial" takes counts 0..N, with N the largest;
            "gaussian" and its other parametrisations take any numbers and standardise the columns, as does
            "double_relu"; "relu" takes numbers from 0 and scales the columns; "truncated_gaussian" takes any
            numbers and moves the range of all of them to [0, 1], where it is not within [0, 1] already;
            "truncated_gauss_bernoulli" takes numbers in [0, 1], of which exact zeros are a kind of their own.
            Other kinds of listed states take these.
        weights: Row weights, (rows,), above 0, for means and deviations; None means uniform.
        images: whether grey levels, numbers in [0, 1] or whole ones up to 255, are pixels in more columns
            than a table of one kind has. Gaussian units that ``kind`` names then have one mean and one
            deviation for all, so that the contrast of pixels to each other stays.

    Raises:
        ValueError: an unknown kind, or data that the kind does not take; the message names the value.
    """
    _checks.one_of(kind, "visible", ("auto", *Layer.registry))
    images &= kind != "auto"
    seen = _look_at(rows, weights)
    if bool(seen.moments[0].isnan().any()):
        column = int(seen.moments[0].isnan().int().argmax())
        raise ValueError(
            f"X: expected at least one value in every column, all of column {column} is missing (NaN); "
            "drop it"
        )
    if not bool(seen.moments[1].isfinite().all()):
        column = int(seen.moments[1].isfinite().int().argmin())
        raise ValueError(
            f"X: expected numbers of which float64 holds the squares, received others in column {column}; "
            "correct or drop them"
        )
    if kind == "auto":
        pairs = [name for name, layer in Layer.registry.items() if layer.two_values is not None]
        kind = next((name for name in pairs if seen.find_other(states_of(name)) is None), "gaussian")
    try:
        n_states, encoder = _encoder_for(kind, seen)
    except ValueError as error:
        raise ValueError(f'X: for visible="{kind}": {error}') from error
    layer = Layer.registry[kind].plain(rows.width, n_states)
    grey = seen.low >= 0 and seen.high <= (255 if seen.uncounted is None else 1)
    if images and grey and layer.gaussian and not is_table(encoder, [layer], len(rows)):
        encoder = Standardise.from_moments(*seen.moments, per_column=False)
    return layer, encoder


def _encoder_for(kind: str, seen: _Seen) -> tuple[int, Encoder]:
    """Returns the number of states of units of a kind, and the encoder of an array for them."""
    coding, (mean, variance) = Layer.registry[kind].coding, seen.moments
    if coding == "states":
        return _encoder_of_states(states_of(kind), seen)
    refuse_beyond(coding, seen.low, seen.high)
    if coding == "standardised":
        return 2, Standardise.from_moments(mean, variance)
    if coding == "scaled":
        return 2, Standardise.from_moments(torch.zeros_like(mean), variance + mean.square())
    if coding in ("interval", "fractions"):
        within = seen.low >= 0 and seen.high <= 1
        return 2, Identity() if within else Standardise(seen.low, (seen.high - seen.low) or 1.0)
    if coding not in ("one-hot", "counts"):
        raise ValueError("expected columns of a table, received an array")
    if seen.uncounted is not None:
        expected = "integers 0..q-1" if coding == "one-hot" else "counts 0..N"
        raise ValueError(f"expected {expected}, received {seen.uncounted:g}")
    n_states = max(1, int(seen.high)) + 1
    return n_states, OneHot(n_states) if coding == "one-hot" else Identity()


def _encoder_of_states(states: tuple[float, ...], seen: _Seen) -> tuple[int, Encoder]:
    """Returns what ``_encoder_for`` does for units of listed states; data may have 0 and 1 for two."""
    pair, wrong = len(states) == 2, seen.find_other(states)
    if wrong is None:
        return len(states), Identity()
    if pair and seen.find_other(_BITS) is None:
        return 2, Standardise.of_bits(*states)
    bits = " or {0, 1}" if pair and states != _BITS else ""
    wrong = seen.find_other({*states, *_BITS}) if pair else wrong
    received = f"both {states[0]:g} and 0" if wrong is None else f"{wrong:g}"
    remedy = "; hm.data.threshold, or binarise, makes 0 and 1 of grey levels" if pair else ""
    listed = ", ".join(f"{x:g}" for x in states)
    raise ValueError(f"expected values in {{{listed}}}{bits}, received {received}{remedy}")


def _look_at(rows: Rows, weights: Tensor | None) -> _Seen:
    """Reads all rows once."""
    moments, ends, values = Moments(), list[Tensor](), list[float]()
    uncounted: float | None = None
    for span, v, wide in rows.blocks():
        moments.add(wide, None if weights is None else weights[span])
        observed = v[~v.isnan()] if bool(v.isnan().any()) else v.flatten()
        if observed.numel():
            ends += observed.aminmax()
        while len(values) < _DIFFERENT:
            others = observed[~torch.isin(observed, observed.new_tensor(values))]
            if not len(others):
                break
            values += set(others[:_DIFFERENT].tolist())
        if uncounted is None:
            wrong = observed[(observed < 0) | (observed != observed.floor())]
            uncounted = float(wrong[0]) if len(wrong) else None
    if not ends:
        raise ValueError("X: expected a row to learn from, every cell of every row is missing (NaN)")
    low, high = (float(torch.stack(x).amin()) for x in (ends[::2], [-x for x in ends[1::2]]))
    return _Seen(moments.result(), low, -high, values, uncounted)
