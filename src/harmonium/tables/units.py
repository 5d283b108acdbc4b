"""Visible units for arrays: their kind, number of states and encoder, found in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._rows import Moments, Rows
from harmonium.data import Encoder, Identity, OneHot, Standardise
from harmonium.layers import Layer
from harmonium.tables.column import states_of
from harmonium.tables.table import Group, Table

_BITS = (0.0, 1.0)
Test = Callable[[Tensor], Tensor]  # marks the entries that a kind does not take, NaN aside


class Seen(NamedTuple):
    """Statistics from one pass over rows.

    Attributes:
        moments: mean and variance of each column, (width,), NaN where it was never observed.
        low: the smallest entry, in the dtype of the rows.
        high: the largest.
        others: the first entry that each test marks; None where there is none.
    """

    moments: tuple[Tensor, Tensor]
    low: float
    high: float
    others: dict[Any, float | None]


def look_at(rows: Rows, tests: dict[Any, Test], weights: Tensor | None = None) -> Seen:
    """Reads all rows once."""
    moments, ends = Moments(), list[Tensor]()
    others: dict[Any, float | None] = dict.fromkeys(tests)
    for span, v, wide in rows.blocks():
        moments.add(wide, None if weights is None else weights[span])
        hole = v.isnan()
        seen = v[~hole] if bool(hole.any()) else v
        if seen.numel():
            ends += seen.aminmax()
        for name, test in tests.items():
            if others[name] is None:
                bad = test(v) & ~hole
                others[name] = float(v[bad][0]) if bool(bad.any()) else None
    low, high = (float(torch.stack(x).amin()) for x in (ends[::2], [-x for x in ends[1::2]]))
    return Seen(moments.result(), low, -high, others)


def is_none_of(values: tuple[float, ...]) -> Test:
    """Returns the test for entries other than some values."""
    return lambda x: torch.stack([x != value for value in values]).all(0)


def is_no_count(x: Tensor) -> Tensor:
    """Marks entries that are no whole number from 0."""
    return (x < 0) | (x != x.floor())


def fit_units(rows: Rows, kind: str = "auto", weights: Tensor | None = None) -> tuple[Group, Encoder]:
    """Finds the visible units for an array, a table whose columns are of one kind, and their encoder.

    Args:
        rows: the data, which are read once.
        kind: see ``visible_for``.
        weights: of the rows, (rows,), above 0, for means and deviations; None: all count alike.

    Raises:
        ValueError: an unknown kind, or data that the kind does not take; the message names the value.
    """
    kinds = Layer.registry
    chosen = [_checks.one_of(kind, "visible", ("auto", *kinds))]
    if kind == "auto":
        chosen = [name for name, each in kinds.items() if each.two_values is not None]
    tests: dict[Any, Test] = {"count": is_no_count}
    for name in chosen:
        if kinds[name].coding == "states":
            states = states_of(name)
            for values in (states, *((_BITS, tuple(sorted({*states, *_BITS}))) if len(states) == 2 else ())):
                tests[values] = is_none_of(values)
    seen = look_at(rows, tests, weights)
    if bool(seen.moments[0].isnan().any()):
        column = int(seen.moments[0].isnan().int().argmax())
        raise ValueError(
            f"X: expected at least one value in every column, all of column {column} is missing (NaN); "
            "drop it"
        )
    if kind == "auto":
        kind = next((name for name in chosen if seen.others[states_of(name)] is None), "gaussian")
    n_states, encoder = _FITS[kinds[kind].coding](kind, seen)
    return Group(kind, rows.width, n_states), encoder


def encoder_of_bits(kind: str) -> Encoder:
    """Returns what turns 0 and 1 into the two states of units of a kind."""
    low, high = states_of(kind)
    return Identity() if (low, high) == _BITS else Standardise(-low / (high - low), 1 / (high - low))


def _fit_states(kind: str, seen: Seen) -> tuple[int, Encoder]:
    states = states_of(kind)
    if seen.others[states] is None:
        return len(states), Identity()
    pair = len(states) == 2
    if pair and seen.others[_BITS] is None:
        return 2, encoder_of_bits(kind)
    wrong = seen.others[tuple(sorted({*states, *_BITS}))] if pair else seen.others[states]
    received = f"both {states[0]:g} and 0" if wrong is None else f"{wrong:g}"
    listed = f"{{{', '.join(f'{x:g}' for x in states)}}}"
    remedy = ""
    if pair:
        listed += "" if states == _BITS else " or {0, 1}"
        remedy = "; binarise the data first (harmonium.data.threshold, harmonium.data.bernoulli_binarise)"
    raise ValueError(f'X: expected values in {listed} for visible="{kind}", received {received}{remedy}')


def _largest(kind: str, seen: Seen, expected: str) -> int:
    wrong = seen.others["count"]
    if wrong is not None:
        raise ValueError(f'X: expected {expected} for visible="{kind}", received {wrong:g}')
    return max(1, int(seen.high))


def _fit_one_hot(kind: str, seen: Seen) -> tuple[int, Encoder]:
    n_states = _largest(kind, seen, "integers 0..q-1") + 1
    return n_states, OneHot(n_states)


def _fit_scaled(kind: str, seen: Seen) -> tuple[int, Encoder]:
    if seen.low < 0:
        raise ValueError(f'X: expected numbers from 0 for visible="{kind}", received {seen.low:g}')
    mean, variance = seen.moments
    return 2, Standardise.from_moments(torch.zeros_like(mean), variance + mean.square())


def _fit_interval(kind: str, seen: Seen) -> tuple[int, Encoder]:
    if seen.low >= 0 and seen.high <= 1:
        return 2, Identity()
    return 2, Standardise(seen.low, (seen.high - seen.low) or 1.0)


def _fit_fractions(kind: str, seen: Seen) -> tuple[int, Encoder]:
    if seen.low < 0 or seen.high > 1:
        raise ValueError(
            f'X: expected values in [0, 1] for visible="{kind}", received '
            f"{seen.low if seen.low < 0 else seen.high:g}; divide grey levels by their largest value"
        )
    return 2, Identity()


_FITS: dict[str, Callable[[str, Seen], tuple[int, Encoder]]] = {
    "states": _fit_states,
    "one-hot": _fit_one_hot,
    "counts": lambda kind, seen: (_largest(kind, seen, "counts 0..N") + 1, Identity()),
    "standardised": lambda kind, seen: (2, Standardise.from_moments(*seen.moments)),
    "scaled": _fit_scaled,
    "interval": _fit_interval,
    "fractions": _fit_fractions,
}
"""Returns the states of a unit, and the encoder of an array, by ``Layer.coding``."""


def visible_for(rows: Rows, kind: str = "auto") -> tuple[Layer, Encoder]:
    """A visible layer for data, and the encoder that turns data into its states and samples back.

    Args:
        rows: the data, (rows, columns).
        kind: "auto": two-valued units where every entry is one of their two values, Bernoulli for 0 and 1 and
            Spin for -1 and +1 (the density of such data has no upper bound), else Gaussian. "bernoulli" takes
            0 and 1; "spin" takes -1 and +1, or 0 and 1 which become them; "categorical" takes integers
            0..q-1, with q one more than the largest; "binomial" takes counts 0..N, with N the largest;
            "gaussian" and its other parametrisations take any numbers and standardise the columns, as does
            "double_relu"; "relu" takes numbers from 0 and scales the columns; "truncated_gaussian" takes any
            numbers and moves the range of all of them to [0, 1], where it is not within [0, 1] already;
            "truncated_gauss_bernoulli" takes numbers in [0, 1], of which exact zeros are a kind of their own.
            Other kinds take what their ``coding`` says.

    Raises:
        ValueError: an unknown kind, or data that the kind does not take; the message names the value.
    """
    group, encoder = fit_units(rows, kind)
    return layer_of(group), encoder


def layer_of(group: Group) -> Layer:
    """Returns a layer of the units of a group."""
    return Layer.registry[group.kind].plain(group.n_units, group.n_states)


def visible_layers(table: Table) -> list[Layer]:
    """The visible layers of a table, one for every group of its columns, side by side in their order."""
    return [layer_of(group) for group in table.groups]
