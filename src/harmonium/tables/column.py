"""One column of a table: its name and type, the kind of its unit, and the coding between the two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np

from harmonium import _checks
from harmonium.data import (
    Encoder,
    Frame,
    Series,
    check_form,
    encoder_from_dict,
    from_numbers,
    step_of,
    to_numbers,
)
from harmonium.data.frame import WHOLE, is_number, of_whole_numbers
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.cells import few, shown, values_of
from harmonium.tables.codings import IGNORE, fit_column, options_of
from harmonium.tables.labels import Constant, Labels, Numbered, OneOf
from harmonium.tables.numbers import COMMON, FEW_NUMBERS, Counts, Quantiles
from harmonium.tables.support import Support, Tail

_FEW = 10  # different numbers at most, to be taken for counts or labels: as many as ratings usually have
_REPEATED = 5  # rows for each of them at least: fewer leave the shape of a distribution open
_STATES = 4 * _FEW  # of a unit for few whole numbers at most, the steps between them included
MANY_TEXTS = 20  # more different texts than these, in more than half of the rows, are names, no categories
_RARE = 5  # cells that a label beyond as many texts has to have, for a state of its own
_LARGEST = 1e150  # numbers at most: float64 holds their squares
_ROUNDED = 10  # whole numbers at least, whatever their type, that samples are to be whole for
_DECLARE = {"values", "largest", "low", "high"}  # options that name the ends of a column


@final
@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: Name of the column, or its number.
        dtype: what the column's library calls its type.
        kind: Kind of its unit, a name in ``Layer.registry``; ``IGNORE``: it has none.
        coding: between cells and states, an encoder of one column.
        declared: whether the column's type names the values.
        ordered: whether their order means something.
        form: Form of dates and times, which the coding has as numbers; None: it holds none.
        step: all numbers are multiples of it, and those of samples are rounded to one; None: they are real.
        support: the cells that were seen, and the probability of others; None: those without a state are
            missing, and nothing limits what is filled in.
    """

    name: str | int
    dtype: str
    kind: str
    coding: Encoder
    declared: bool = False
    ordered: bool = False
    form: str | None = None
    step: float | None = None
    support: Support | None = None

    def __post_init__(self) -> None:
        _checks.instance(self.name, "name", str | int, "text or an int")
        _checks.instance(self.dtype, "dtype", str, "text")
        _checks.one_of(self.kind, "kind", (IGNORE, *Layer.registry))
        _checks.instance(self.coding, "coding", Encoder, "an Encoder")
        if self.form is not None:
            check_form(self.form)

    @classmethod
    def fit(
        cls, cells: Series, kind: str | Mapping[str, Any] | None = None, weights: Array | None = None
    ) -> Self:
        """Infers a column's unit and coding from its cells.

        Args:
            cells: Cells, at least one of which is not missing.
            kind: of its unit; None chooses: Bernoulli for at most two values; Categorical for other text,
                booleans and categories; Binomial for few repeated numbers; for other numbers, dates and
                times Gaussian by the likeliest of ``TRANSFORMS``, or with many exact zeros among positive
                ones truncated Gauss-Bernoulli. Or the ``kind`` with what is known beyond the cells: all
                ``values`` of labels, ``rare`` ones, the ``largest`` count, ``low``, ``high``, ``transform``
                and the ``limits`` of what is filled in or drawn (``Support``).
            weights: Cell weights, (rows,), above 0, for means and deviations; None means uniform.

        Raises:
            ValueError: no cell, or cells that the kind does not take; the message names the column.
        """
        where = f"X: column {cells.name!r}"
        if cells.missing.all():
            raise ValueError(f"{where}: expected at least one value, every cell is missing (NaN); drop it")
        options: dict[str, Any] = dict(kind) if isinstance(kind, Mapping) else {"kind": kind}
        asked, limits = options.pop("kind", None), options.pop("limits", None)
        asked = None if asked == "auto" else asked
        plain = asked is not None and Layer.registry.get(asked, Layer).coding in ("states", "one-hot")
        if cells.numeric and (large := np.abs(cells.values) > _LARGEST).any():
            received = f"{cells.values[large.argmax()]:g} at row {large.argmax()}"
            raise ValueError(
                f"{where}: expected numbers of at most {_LARGEST:g}, received {received}; correct it, "
                f'make it missing, or "{IGNORE}" leaves the column out'
            )
        try:
            form = None if plain else cells.form
            numbers = _in_numbers(cells, form)
            chosen, inferred = (asked, {}) if asked else _choose(numbers)
            known = (*options_of(_checks.one_of(chosen, "kind", Layer.registry)), "limits")
            for option in options.keys() - set(known):
                takes = ", ".join(known)
                raise ValueError(f"expected options among {takes}, received {option}={options[option]!r}")
            coding = fit_column(chosen, numbers, inferred | options, weights)
            seen = numbers.values[~numbers.missing]
            whole = not isinstance(coding, Labels) and (form is not None or len(seen) >= _ROUNDED)
            step = step_of(seen, form) if whole else None
            if form is not None and isinstance(limits, Sequence) and not isinstance(limits, str):
                limits = [to_numbers([x], form)[0] if isinstance(x, str) else x for x in limits]
            support = Support.fit(numbers, coding, step, limits, bool(_DECLARE & options.keys()))
        except (TypeError, ValueError, OverflowError) as error:
            asked = f' for "{asked}"' if asked else ""
            raise ValueError(f"{where}{asked}: {error}") from error
        declared = cells.categories is not None
        name = name_of(cells)
        return cls(name, cells.dtype, chosen, coding, declared, cells.ordered, form, step, support)

    @classmethod
    def fit_label(cls, cells: Series) -> Self:
        """Returns the column of a label, with a state for each class.

        Raises:
            ValueError: fewer than two classes, or real numbers.
        """
        seen = cells.values[~cells.missing]
        real = seen[seen != np.round(seen)] if cells.numeric else seen[:0]
        if len(real):
            raise ValueError(
                f"label: expected classes in column {cells.name!r}, received real numbers such as "
                f"{real[0]:g}; a column that is no label is learned like any other, and can be predicted"
            )
        if len(set(seen.tolist())) < 2:
            raise ValueError(
                f"label: expected at least two classes in column {cells.name!r}, received "
                f"{seen[:1].tolist()}; an empty cell is a missing label"
            )
        return cls.fit(cells, "categorical")

    @classmethod
    def ignoring(cls, cells: Series) -> Self:
        """Returns a column without a unit."""
        return cls(name_of(cells), cells.dtype, IGNORE, Constant.of(cells))

    @property
    def learned(self) -> bool:
        """True if the column has a unit."""
        return not isinstance(self.coding, Constant)

    @property
    def values(self) -> tuple[Any, ...]:
        """The labels in the order of their states; empty where states are numbers."""
        return self.coding.values if isinstance(self.coding, Labels) else ()

    @property
    def categories(self) -> tuple[Any, ...] | None:
        """The values that the column's type names, if it does."""
        return self.coding.labels if self.declared and isinstance(self.coding, Labels) else None

    def encode(self, cells: Series, *, beyond: str = "end") -> Array:
        """Returns the states of cells, (rows, width) float64.

        NaN stands in the whole of a unit where the cell is missing, or a label without a state.

        Args:
            cells: Cells of the column.
            beyond: States of numbers beyond the range seen, one of ``BEYOND``.
        """
        values = self._values(cells)
        if self.support is not None and self.support.ends is not None:
            return self.support.states(values, self.coding, beyond)
        states: Array = self.coding.encode(values[:, None])
        return states

    def log_shares(self, cells: Series, beyond: str = "end") -> Array:
        """Returns ln p(cell | its state), (rows,) float64; 0 where it is missing.

        With ln p(state) it is ln p(cell) where states are discrete. Where they are real, add the log of the
        slope (``log_slopes_at``). ``beyond`` is that of the states, see ``Support``.
        """
        support = self.support
        if support is None:
            return np.zeros(len(cells.values))
        values = self._values(cells)
        if support.ends is not None:
            shares = support.log_shares(values, self.coding, beyond)
            strange = np.isnan(values) & ~cells.missing  # text among numbers
        else:
            assert isinstance(self.coding, OneOf | Numbered)
            shares = self.coding.log_shares(values, support.once, support.cells)
            strange = np.zeros(len(shares), dtype=bool)
        return np.where(cells.missing, 0.0, np.where(strange, math.log(support.unseen), shares))

    @property
    def open_tails(self) -> tuple[Tail, ...]:
        """The ends of the range seen beyond which the unit has states."""
        if self.support is None or self.support.ends is None or self.support.step is not None:
            return ()
        return tuple(tail for tail in self.support.tails(self.coding) if tail.open)

    def log_slopes_at(self, states: Array) -> Array:
        """Returns ln of the slope of the states along the cells, (rows,), at states (rows, width)."""
        slopes: Array = self.coding.log_slopes_at(states)[:, 0]
        for tail in self.open_tails:
            out = tail.holds(states[:, 0])
            slopes[out] = tail.log_slopes(states[out, 0])
        return slopes

    def widened(self, cells: Series) -> Column:
        """Returns the column that has seen further cells, see ``Support.widened``."""
        if self.support is None:
            return self
        numbers = _in_numbers(cells, self.form)
        return replace(self, support=self.support.widened(numbers, self.coding))

    def _values(self, cells: Series) -> Array:
        """Returns cells as the coding reads them, (rows,): labels, or numbers."""
        numbers = _in_numbers(cells, self.form)
        if self.form is None and not any(isinstance(value, str) for value in self.values):
            numbers = _parsed(numbers)
        labels = isinstance(self.coding, Labels) and (self.support is None or self.support.ends is None)
        return numbers.values if labels else _numbers_in(numbers)

    def parse(self, text: str) -> Series:
        """Returns a cell from its text: one of the labels by how it is written, else a number.

        Raises:
            ValueError: a fraction in a column of whole numbers.
        """
        value = {str(label): label for label in self.values}.get(text, text)
        try:
            number: float | None = float(value)
        except ValueError:
            number = None
        if number is not None and of_whole_numbers(self.dtype) and number % 1 != 0:
            raise ValueError(f"expected a whole number in column {self.name!r}, received {text!r}")
        if number is not None and (not self.values or number in self.values):
            return Series(self.name, np.array([number]), "float64")
        return Series(self.name, np.array([value], dtype=object), "object")

    def complain(self, cells: Series, row: int, first: int) -> str:
        """Returns the message about a cell without a state, in a row counted from ``first``."""
        received = cells.values[row : row + 1].tolist()[0]
        counts = isinstance(self.coding, Labels) and all(
            type(x) is float and x >= 0 and x.is_integer() for x in (*self.coding.values, received)
        )
        other = ', or fit it as a count, {"kind": "binomial", "largest": N}' if counts else ""
        expected = f"cells of the form {self.form}" if self.form else self.coding.expected()
        number = self.support is not None and self.support.ends is not None and not isinstance(received, str)
        takes = "takes the nearest number" if number else "takes such cells as missing"
        return (
            f"X: column {self.name!r}: expected {expected}, received {shown(received)} "
            f"at row {first + row}; correct it, or set unknown to missing, which {takes}{other}"
        )

    def series(self, states: Array, *, rounded: bool = True, drawn: str | None = None) -> Series:
        """Returns ``decode`` as a column of a frame; dates and types of whole numbers are always rounded."""
        whole = rounded or self.form is not None or self.dtype.lower().partition("[")[0] in WHOLE
        cells = self.decode(states, rounded=whole, drawn=drawn)
        return Series(self.name, cells, self.dtype, self.categories, self.ordered)

    @property
    def ranked(self) -> bool:
        """True if states are ranks of rising numbers, or two of them: a mean lies between them."""
        numbers = all(type(value) is float for value in self.values)
        return isinstance(self.coding, Numbered) and numbers and sorted(self.values) == [*self.values]

    def numbers(self, states: Array) -> Array:
        """Returns the numbers of states, of any shape, along straight lines between ranks."""
        if self.ranked:
            assert isinstance(self.coding, Numbered)
            between: Array = np.interp(states, self.coding.states[: len(self.values)], self.values)
            return between
        found: Array = self.coding.decode(states)
        return found

    def states_of(self, numbers: Array) -> Array:
        """Returns the states that ``numbers`` takes for these."""
        if self.ranked:
            assert isinstance(self.coding, Numbered)
            between: Array = np.interp(numbers, self.values, self.coding.states[: len(self.values)])
            return np.where(np.isnan(numbers), np.nan, between)
        found: Array = self.coding.encode(numbers)
        return found

    def decode(self, states: Array, *, rounded: bool = True, drawn: str | None = None) -> Array:
        """Returns cells (rows,) from states or means; numbers are rounded to what they all were multiples of.

        Args:
            states: (rows, width).
            rounded: whether to round.
            drawn: "rows" of states that are drawn, which may lie somewhat beyond what was seen, "cells" of
                states that are drawn for missing cells, or None of means and most probable states
                (``Support``).
        """
        # A mean of two numbers is rounded to one of them, of more to what they are multiples of.
        between = self.ranked and (not rounded or (drawn is None and len(self.values) > 2))
        step = step_of(np.array(self.values), None) if between else self.step
        if isinstance(self.coding, OneOf) and drawn is None:
            cells: Array = self.coding.most_probable(states)[:, 0]
        elif between:
            cells = self.numbers(states)[:, 0]
        else:
            counts = rounded and isinstance(self.coding, Counts)
            cells = self.coding.decode(np.round(states) if counts else states)[:, 0]
            for tail in self.open_tails if drawn else ():
                out = tail.holds(states[:, 0])
                cells[out] = tail.numbers(states[out, 0])
        if rounded and step is not None:
            cells = _round_to(cells, step)
        limits = self.support and (self.support.drawn if drawn == "rows" else self.support.filled)
        if limits is not None and cells.dtype.kind == "f":
            cells = np.clip(cells, *limits)
        if self.form is not None:
            return from_numbers(cells, self.form)
        name = self.dtype.lower().partition("[")[0]
        if not rounded or cells.dtype.kind != "f" or name not in WHOLE:
            return cells
        whole = np.iinfo(name)
        largest = whole.max if whole.bits < 64 else np.nextafter(float(whole.max), 0)
        return np.clip(np.round(cells), whole.min, largest)

    def holds(self, cells: Series) -> str:
        """Describes what the column holds, of which some cell is not missing, and how it is coded."""
        coding = self.coding
        if isinstance(coding, Labels) and self.form is None:
            if isinstance(coding, OneOf) and coding.rare:
                return f"{len(coding.values) - 1} labels, and {len(coding.rare)} rare ones as one"
            return few(coding.values)
        seen = cells.values[~cells.missing]
        written: Any = "{:.4g}".format if cells.numeric and self.step is None else shown
        if self.form is not None:
            numbers = to_numbers(seen.tolist(), self.form)
            ends = from_numbers(np.array([numbers.min(), numbers.max()]), self.form).tolist()
        else:
            ends = [seen.min(), seen.max()]
        curves = {"Logarithm": ", by the logarithm", "Quantiles": ", by quantiles"}
        curve = curves.get(type(coding).__name__, "")
        if isinstance(coding, Quantiles) and coding.common:
            common: list[Any] = [*coding.common]
            common = from_numbers(np.array(common), self.form).tolist() if self.form else common
            curve += f", {few(common)} by itself"
        return " to ".join(map(str if self.form else written, ends)) + curve

    def to_dict(self) -> dict[str, Any]:
        """In plain JSON types."""
        known = {name: x for name, x in vars(self).items() if x is not None}
        parts = {name: x.to_dict() for name, x in known.items() if name in ("coding", "support")}
        return known | parts

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Self:
        """Rebuilds a column from its description by ``to_dict``.

        Raises:
            TypeError, ValueError: fields that are missing or out of range.
        """
        values = dict(description)
        if "support" in values:
            values["support"] = Support.from_dict(values["support"])
        return cls(coding=encoder_from_dict(values.pop("coding", {})), **values)


def name_of(cells: Series) -> str | int:
    """Returns the name of a column, or its number."""
    name: Any = cells.name
    return int(name) if hasattr(name, "__index__") else str(name)


def _in_numbers(cells: Series, form: str | None) -> Series:
    """Returns the cells of a column of dates, times or amounts as numbers."""
    if form is None or cells.numeric:
        return cells
    return Series(cells.name, to_numbers(cells.values.tolist(), form), cells.dtype)


def _parsed(cells: Series) -> Series:
    """Returns text with its numbers as numbers, for a column that had numbers alone in training."""
    if cells.numeric:
        return cells
    seen = cells.values[~cells.missing].tolist()
    if not any(isinstance(value, str) and is_number(value) for value in seen):
        return cells
    values = np.empty(len(cells.values), dtype=object)
    values[:] = [float(x) if isinstance(x, str) and is_number(x) else x for x in cells.values.tolist()]
    return replace(cells, values=values)


def _round_to(cells: Array, step: float) -> Array:
    """Returns the nearest multiples of a step, of tenths and the like as they are written."""
    if step < 1:
        return np.round(cells, round(-math.log10(step))) + 0.0
    rounded: Array = np.round(cells / step) * step + 0.0
    return rounded


def _numbers_in(cells: Series) -> Array:
    """Returns cells as numbers, (rows,) float64, NaN where one is no number."""
    if cells.numeric:
        return cells.values
    return np.array([v if isinstance(v, (int, float)) else math.nan for v in cells.values], dtype=np.float64)


# The choice of a unit
# ---------------------------------------------------------------------------------


def _choose(cells: Series) -> tuple[str, dict[str, Any]]:
    """Returns the kind of unit for a column, and options of its coding."""
    values, rows = values_of(cells), int((~cells.missing).sum())
    if len(values) <= 2:
        return "bernoulli", {}
    if cells.numeric:
        if len(values) <= _FEW and rows >= _REPEATED * len(values):
            if all(x == round(x) for x in values):
                step = math.gcd(*(int(x - values[0]) for x in values))
                if (values[-1] - values[0]) / step < _STATES:
                    return "binomial", {"lowest": int(values[0]), "step": step}
            return "binomial", {"values": values}
        zeros = float((cells.values == 0).sum()) / rows
        if values[0] == 0 and zeros >= COMMON and len(values) > FEW_NUMBERS:
            return "truncated_gauss_bernoulli", {"transform": "quantile"}
        return "gaussian", {"transform": "auto"}
    return "categorical", {"rare": _RARE} if len(values) > MANY_TEXTS and cells.categories is None else {}


def kind_of(kind: Any) -> Any:
    """Returns the name of a kind of unit that was asked for, "auto" where none was."""
    return "auto" if kind is None else kind.get("kind", "auto") if isinstance(kind, Mapping) else kind


def chosen_kinds(frame: Frame, kinds: str | Mapping[Any, Any] | None) -> dict[Any, Any]:
    """Returns the kinds of columns that are named, by the columns' own names.

    Raises:
        ValueError: no such column, or no such kind.
    """
    names = [cells.name for cells in frame.columns]
    if isinstance(kinds, Mapping):
        if all(isinstance(name, int) for name in names):  # which files of kinds write as text
            numbered = {str(name): name for name in names}
            kinds = {numbered.get(name, name): kind for name, kind in kinds.items()}
        for name in kinds:
            if name not in names:
                raise ValueError(f"kinds: expected columns among {few(names, 10)}, received {name!r}")
    chosen: dict[Any, Any] = dict.fromkeys(names, kinds) if isinstance(kinds, str) else dict(kinds or {})
    known = ("auto", IGNORE, *Layer.registry)
    for name, given in chosen.items():
        if kind_of(given) not in known:
            raise ValueError(
                f"kinds: expected one of {', '.join(known)} for column {name!r}, received {kind_of(given)!r}"
            )
    return chosen
