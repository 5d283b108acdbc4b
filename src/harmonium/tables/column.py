"""One column of a table: its name and type, the kind of its unit, and the coding between the two."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from inspect import signature
from typing import Any, Self

import numpy as np

from harmonium import _checks
from harmonium.data import Series
from harmonium.data._times import FORMS, form_of, from_numbers, step_of, to_numbers
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.codings import (
    Coding,
    Grouped,
    Labels,
    Levels,
    Numbered,
    Pair,
    all_of,
    coding_from_dict,
    few,
    fit_one_hot,
    numbers_of,
    shown,
    values_of,
)
from harmonium.tables.number_codings import Affine, Counts, fit_fractions, fit_real

_WHOLE = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_FEW = 10  # different whole numbers at most, and rows for each at least _REPEATED, to be taken for labels
_REPEATED = 5
_STATES = 4 * _FEW  # of a unit for few whole numbers at most, the steps between them included
MANY_TEXTS = 20  # more different texts than these, in more than half of the rows, are names and no categories
_RARE = 5  # cells that a label beyond as many texts has to have, for a state of its own
_ROUNDED = 10  # whole numbers at least, whatever their type, that samples are to be whole for
_ZEROS = 0.1  # share of exact zeros among real numbers that a unit of its own is for


def fit_states(cells: Series, states: tuple[float, ...], *, values: Sequence[Any] | None = None) -> Levels:
    """Returns the coding of a column for units with some states.

    Numbers that are states of a unit with more than two are coded as they are. Else labels become states, in
    their order: of a unit with two at most two, of another one as many as it has states.

    Args:
        cells: of the column.
        states: of the unit, rising.
        values: the labels; None: those that are there, or that the column's type names.

    Raises:
        ValueError: another number of labels.
    """
    if values is None and len(states) > 2 and cells.numeric and set(values_of(cells)) <= set(states):
        return as_states(states, states)
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
    return as_states(values, states)


def as_states(values: tuple[Any, ...], states: tuple[float, ...]) -> Levels:
    """Returns the coding of values as the first of some states, which rise."""
    return Pair(values, states[0]) if states[1:] == (1.0,) else Numbered(values, states)


def fit_counts(
    cells: Series,
    *,
    largest: int | None = None,
    lowest: int | None = None,
    step: int | None = None,
    values: Sequence[float] | None = None,
) -> Coding:
    """Returns the coding of a column for units that count: of steps, or of the ranks of ``values``.

    Args:
        cells: of the column, numbers.
        largest: number; None: the largest that is there.
        lowest: number; None: 0.
        step: between two numbers; None: 1.
        values: all numbers, each one step above the one before; None: all from ``lowest`` to ``largest``.

    Raises:
        ValueError: numbers that are none of these.
    """
    if values is None:
        return Counts.fit(cells, largest=largest, lowest=lowest, step=step)
    numbers_of(cells)
    return Numbered(tuple(sorted(all_of(cells, values))), tuple(map(float, range(len(values)))))


CODINGS: dict[str, Callable[..., Coding]] = {
    "states": fit_states,
    "one-hot": fit_one_hot,
    "counts": fit_counts,
    "standardised": fit_real,
    "scaled": Affine.scaled,
    "interval": Affine.interval,
    "fractions": fit_fractions,
}
"""Makes the coding of a column from its cells, by the name that a kind of unit has in ``Layer.coding``."""


def coding_for(kind: str) -> Callable[..., Coding]:
    """Returns what makes the coding of a column for units of a kind: an entry of ``CODINGS``.

    Raises:
        ValueError: units whose ``coding`` is none.
    """
    layer = Layer.registry[kind]
    make = CODINGS[_checks.one_of(layer.coding, f"coding of {kind} units", CODINGS)]
    return partial(make, states=states_of(kind)) if layer.coding == "states" else make


@cache
def states_of(kind: str) -> tuple[float, ...]:
    """Lists the states of a unit of a kind whose states are numbers."""
    return tuple(Layer.registry[kind].plain(1).values()[:, 0].tolist())


def options_of(kind: str) -> tuple[str, ...]:
    """Lists the options of a column besides the kind of its unit, each otherwise inferred from its cells."""
    return tuple(name for name, p in signature(coding_for(kind)).parameters.items() if p.default is None)


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: of the column, or its number.
        dtype: what the column's library calls its type.
        kind: of its unit, a name in ``Layer.registry``.
        coding: between cells and states.
        declared: whether the column's type names the values.
        ordered: whether their order means something.
        form: of dates and times, which the coding has as numbers; None: there are none.
        step: all numbers are multiples of it, and those of samples are rounded to one; None: they are real.
    """

    name: str | int
    dtype: str
    kind: str
    coding: Coding
    declared: bool = False
    ordered: bool = False
    form: str | None = None
    step: float | None = None

    def __post_init__(self) -> None:
        _checks.instance(self.name, "name", str | int, "text or an int")
        _checks.instance(self.dtype, "dtype", str, "text")
        _checks.one_of(self.kind, "kind", Layer.registry)
        _checks.instance(self.coding, "coding", Coding, "a Coding")
        if self.form is not None:
            _checks.one_of(self.form, "form", FORMS)

    @classmethod
    def fit(
        cls, cells: Series, kind: str | Mapping[str, Any] | None = None, weights: Array | None = None
    ) -> Column:
        """Infers a column's unit and coding from its cells.

        Args:
            cells: at least one that is not missing.
            kind: of its unit; None chooses: Bernoulli for at most two values; Categorical for other text,
                booleans and categories; Binomial for few repeated numbers; for other numbers, dates and
                times Gaussian by the likeliest of ``TRANSFORMS``, or with many exact zeros among positive
                ones truncated Gauss-Bernoulli. Or the ``kind`` with what is known beyond the cells: all
                ``values`` of labels, ``rare`` ones, the ``largest`` count, ``low``, ``high``, ``transform``.
            weights: of the cells, above 0, where means and deviations are taken. None: all count alike.

        Raises:
            ValueError: no cell, or cells that the kind does not take; the message names the column.
        """
        where = f"X: column {cells.name!r}"
        if cells.missing.all():
            raise ValueError(f"{where}: expected at least one value, every cell is missing (NaN); drop it")
        options: dict[str, Any] = dict(kind) if isinstance(kind, Mapping) else {"kind": kind}
        asked = options.pop("kind", None)
        asked = None if asked == "auto" else asked
        plain = asked is not None and Layer.registry.get(asked, Layer).coding in ("states", "one-hot")
        form = None if plain else time_form_of(cells)
        numbers = _in_numbers(cells, form)
        try:
            chosen, found = (asked, {}) if asked else _choose(numbers)
            known = options_of(_checks.one_of(chosen, "kind", Layer.registry))
            for option in options.keys() - set(known):
                takes = f"among {', '.join(known)}" if known else "none"
                raise ValueError(f"expected options {takes}, received {option}={options[option]!r}")
            options = {**found, **options}
            make = coding_for(chosen)
            if weights is not None and "weights" in signature(make).parameters:
                options["weights"] = weights
            coding = make(numbers, **options)
        except (TypeError, ValueError, OverflowError) as error:
            asked = f' for "{asked}"' if asked else ""
            raise ValueError(f"{where}{asked}: {error}") from error
        seen = numbers.values[~numbers.missing]
        whole = not isinstance(coding, Labels) and (form is not None or len(seen) >= _ROUNDED)
        step = step_of(seen, form) if whole else None
        declared = cells.categories is not None
        return cls(name_of(cells), cells.dtype, chosen, coding, declared, cells.ordered, form, step)

    @property
    def categories(self) -> tuple[Any, ...] | None:
        """The values that the column's type names, if it does."""
        return self.coding.labels if self.declared and isinstance(self.coding, Labels) else None

    def encode(self, cells: Series) -> Array:
        """(rows, width) float64, NaN in the whole of a unit where the cell is missing or has no state."""
        return self.coding.encode(_in_numbers(cells, self.form))

    def complain(self, cells: Series, row: int, first: int) -> str:
        """Says what was expected of a cell that has no state, with what to do about it.

        Args:
            cells: of this column.
            row: of the cell.
            first: number of the first row.
        """
        received = cells.values[row : row + 1].tolist()[0]
        counts = isinstance(self.coding, Labels) and all(
            type(x) is float and x >= 0 and x.is_integer() for x in (*self.coding.values, received)
        )
        other = ', or fit it as a count, {"kind": "binomial", "largest": N}' if counts else ""
        expected = f"dates and times, {self.form}" if self.form else self.coding.expected
        return (
            f"X: column {self.name!r}: expected {expected}, received {shown(received)} "
            f'at row {first + row}; correct it, or unknown="missing" takes such cells as missing{other}'
        )

    def decode(self, states: Array, *, rounded: bool = True, draws: Sequence[Array] = ()) -> Array:
        """Returns cells (rows,) from states or means; counts, and what was whole in training, rounded.

        Args:
            states: (rows, width).
            rounded: whether to round.
            draws: of which the states are the means, each (rows, width): along a curve the mean of a cell is
                theirs, and not the cell of the mean.
        """
        curved = len(draws) > 0 and self.coding.log_slope is None
        cells = np.mean([self.coding.decode(x) for x in draws], 0) if curved else self.coding.decode(states)
        if rounded and isinstance(self.coding, Counts):
            cells = self.coding.decode(np.round(states))
        if rounded and self.step is not None:
            cells = np.round(cells / self.step) * self.step + 0.0
        if self.form is not None:
            return from_numbers(cells, self.form)
        name = self.dtype.lower().partition("[")[0]
        if not rounded or cells.dtype.kind != "f" or name not in _WHOLE:
            return cells
        limits = np.iinfo(name)
        largest = limits.max if limits.bits < 64 else np.nextafter(float(limits.max), 0)
        return np.clip(np.round(cells), limits.min, largest)

    def holds(self, cells: Series) -> str:
        """Describes what the column holds and how it is coded, in a few words.

        Args:
            cells: of this column, at least one that is not missing.
        """
        if isinstance(self.coding, Labels) and self.form is None:
            if isinstance(self.coding, Grouped):
                return f"{len(self.coding.values) - 1} labels, and {len(self.coding.rare)} rare ones as one"
            return few(self.coding.values)
        seen = cells.values[~cells.missing]
        written: Any = "{:.4g}".format if cells.numeric and self.step is None else shown
        ends = (str(end) if self.form else written(end) for end in (seen.min(), seen.max()))
        curve = {"Logarithm": ", by the logarithm", "Quantiles": ", by quantiles"}
        return " to ".join(ends) + curve.get(type(self.coding).__name__, "")

    def to_dict(self) -> dict[str, Any]:
        """In plain JSON types."""
        known = {name: x for name, x in vars(self).items() if x is not None}
        return {**known, "coding": self.coding.to_dict()}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Self:
        """Rebuilds a column from its description by ``to_dict``.

        Raises:
            TypeError, ValueError: fields that are missing or out of range.
        """
        values = dict(description)
        return cls(coding=coding_from_dict(values.pop("coding", {})), **values)


def name_of(cells: Series) -> str | int:
    """Returns the name of a column, or its number."""
    return cells.name if isinstance(cells.name, str) else _number(cells.name)


def _choose(cells: Series) -> tuple[str, dict[str, Any]]:
    """Returns the kind of unit for a column, and options of its coding."""
    values, rows = values_of(cells), int((~cells.missing).sum())
    if len(values) <= 2:
        return "bernoulli", {}
    if cells.numeric:
        if len(values) <= _FEW and rows >= _REPEATED * len(values):
            if all(x == round(x) for x in values):
                spaced = Counts.spaced(values)
                if (values[-1] - values[0]) / spaced["step"] < _STATES:
                    return "binomial", spaced
            return "binomial", {"values": values}
        zeros = float((cells.values == 0).sum()) / rows
        if values[0] == 0 and zeros >= _ZEROS and len(values) > MANY_TEXTS:
            return "truncated_gauss_bernoulli", {"transform": "quantile"}
        return "gaussian", {"transform": "auto"}
    if cells.categories is None and len(values) > _FEW:
        stray = strays_of(values)
        if 2 * len(stray) < len(values):
            remedy = "most are numbers; turn the column into numbers" + (
                f" with missing cells where it says {stray[0]!r}" if stray else ""
            )
            if len(values) > max(MANY_TEXTS, rows / 2):
                raise ValueError(
                    f"expected text that repeats, received {len(values)} different ones in {rows} rows, "
                    f"{few(values)}; {remedy}"
                )
            if stray or any("," in str(value) for value in values):  # else they are codes
                _checks.warn(
                    f"column {cells.name!r}: {len(values)} different texts, {few(values)}, are taken for "
                    f'categories; {remedy}, or ask for "categorical"'
                )
    return "categorical", {"rare": _RARE} if len(values) > MANY_TEXTS and cells.categories is None else {}


def strays_of(values: tuple[Any, ...]) -> list[Any]:
    """Lists those values that are no numbers."""
    return [value for value in values if not _is_number(value)]


def time_form_of(cells: Series) -> str | None:
    """Returns the form of the dates or times in a column (``_times.form_of``); None: there are none."""
    return None if cells.numeric or cells.categories else form_of(cells.values[~cells.missing].tolist())


def _in_numbers(cells: Series, form: str | None) -> Series:
    """Returns the cells of a column of dates or times as numbers."""
    if form is None or cells.numeric:
        return cells
    return Series(cells.name, to_numbers(cells.values.tolist(), form), cells.dtype)


def _is_number(value: Any) -> bool:
    """Returns whether a cell is a finite number, perhaps with a decimal comma."""
    try:
        return math.isfinite(float(str(value).replace(",", ".")))
    except ValueError:
        return False


def _number(name: Any) -> str | int:
    return int(name) if hasattr(name, "__index__") else str(name)
