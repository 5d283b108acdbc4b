"""Codecs of columns: what a column's cells are, the states of its unit for them, and cells for states."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from math import inf
from typing import Any, ClassVar, Self

import numpy as np
import torch

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
from harmonium.data.frame import WHOLE, is_number
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.cells import few, numbers_of, shown, values_of, weights_of
from harmonium.tables.tails import Ends, Tail, log_falls, log_unseen, tails_of

IGNORE = "ignore"
"""In place of the kind of a unit: the column has none."""
MANY_TEXTS = 20
"""More different texts than these, in more than half of the rows, are names, no categories."""
COMMON = 0.1
"""Share of a column's cells with one number, from which on this is a value by itself."""
FEW_NUMBERS = 20
"""As many different numbers at most are a coarse scale, on which each is common."""
_FEW = 10  # different numbers at most, to be taken for counts or labels: as many as ratings usually have
_REPEATED = 5  # rows for each of them at least: fewer leave the shape of a distribution open
_STATES = 4 * _FEW  # of a unit for few whole numbers at most, the steps between them included
_RARE = 5  # cells that a label beyond as many texts has to have, for a state of its own
_LARGEST = 1e150  # numbers at most: float64 holds their squares
_ROUNDED = 10  # whole numbers at least, whatever their type, that samples are to be whole for
_DISTINCT = 10  # values at least, to choose a transform by: fewer fit any curve
_MARGIN, _BEYOND = 0.05, 0.01  # of the range, and of draws beyond it, from which on a curve invents values


@dataclass(frozen=True, kw_only=True)
class ColumnCodec(Encoder, ABC):
    """One column of a table: its name and type, its unit, and the way between cells and states.

    A kind of column is a final subclass in a file of its own, a dataclass of numbers, text and tuples of
    them, which registers itself. Units name what they take by ``Layer.coding``, and kinds of columns what
    they serve. Methods with a body serve discrete states.

    Attributes:
        name: Name of the column, or its number.
        dtype: what the column's library calls its type.
        kind: Kind of its unit, a name in ``Layer.registry``; ``IGNORE``: it has none.
        declared: whether the column's type names the values.
        ordered: whether their order means something.
        form: Form of dates and times, which are coded as numbers; None: it holds none.
        step: all numbers are multiples of it, and those of samples are rounded to one; None: they are real.
        seen: Cells that were not missing; 0: nothing is known of what the column may hold.
        ends: the least and the largest number with a state; None: it has labels, or nothing is known.
    """

    name: str | int
    dtype: str = "float64"
    kind: str
    declared: bool = False
    ordered: bool = False
    form: str | None = None
    step: float | None = None
    seen: int = 0
    ends: Ends | None = None

    serves: ClassVar[tuple[str, ...]] = ()
    """Names of ``Layer.coding`` of the units whose columns may be of this kind."""
    transform: ClassVar[str | None] = None
    """Name by which it is chosen among others that serve the same units; None: it is the usual one."""
    curved: ClassVar[bool] = False
    """True if the slope of states along cells differs from state to state."""
    values: ClassVar[tuple[Any, ...]] = ()
    """Distinct values in the order of their states, labels or numbers; empty for others."""

    def __post_init__(self) -> None:
        _checks.instance(self.name, "name", str | int, "text or an int")
        _checks.instance(self.dtype, "dtype", str, "text")
        _checks.one_of(self.kind, "kind", (IGNORE, *Layer.registry))
        _checks.instance(self.seen, "seen", int, "a number of cells")
        if self.form is not None:
            check_form(self.form)
        if self.ends is not None:
            low, high = (
                end if x is None else float(x) for x, end in zip(self.ends, (-inf, inf), strict=True)
            )
            if not low <= high:
                raise ValueError(f"ends: expected a lower and an upper number, received {list(self.ends)}")
            object.__setattr__(self, "ends", (low, high))

    # What a kind of column is
    # ---------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def fields_of(cls, cells: Series, unit: type[Layer], weights: Array | None) -> dict[str, Any]:
        """Finds the fields of this kind for a column, its ``ends`` where they are not those of the cells.

        Further keywords with the default None are options of the column, for users to give.

        Args:
            cells: Cells, numbers in place of dates and times, at least one of which is not missing.
            unit: Kind of the column's unit.
            weights: Cell weights, (rows,); None means uniform.

        Raises:
            ValueError: cells that it does not take.
        """

    @abstractmethod
    def states_of(self, values: Array) -> Array:
        """Returns the states of values, along a last axis where the width is not 1; NaN: there is none."""

    @abstractmethod
    def cells_of(self, states: Array) -> Array:
        """Returns the values of states or means; NaN or None for NaN."""

    def log_slopes_of(self, states: Array) -> Array:
        """Returns ln |slope| of ``states_of`` where it makes these states; 0 where they are discrete."""
        return np.zeros(states.shape)

    def log_shares_of(self, values: Array, beyond: str) -> Array:
        """Returns ln p(value | its state), (rows,), see ``log_shares``."""
        return log_falls(self, values, beyond)

    def nearest(self, numbers: Array) -> Array:
        """Returns the nearest numbers with a state."""
        assert self.ends is not None
        return np.clip(numbers, *self.ends)

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The least and the largest state that a unit of real numbers has; None: it has no such bound."""
        return None, None

    @property
    def grid(self) -> float | None:
        """Distance of two states in the units of the data; None where states are real, or labels."""
        return None

    @property
    def atom(self) -> float | None:
        """The least real number, where it has a probability in place of a density."""
        return None

    @property
    def complexity(self) -> int:
        """Numbers fitted to the cells beyond a mean and a deviation."""
        return 1

    # Fitting it to cells
    # ---------------------------------------------------------------------------------

    @classmethod
    def fit(
        cls, cells: Series, kind: str | Mapping[str, Any] | None = None, weights: Array | None = None
    ) -> ColumnCodec:
        """Infers a column's unit and its kind of column from its cells.

        Args:
            cells: Cells, at least one of which is not missing.
            kind: of its unit, with what is known beyond the cells, see ``Table.fit``; None chooses.
            weights: Cell weights, (rows,), above 0, for means and deviations; None means uniform.

        Raises:
            ValueError: no cell, or cells that the kind does not take; the message names the column.
        """
        where = f"X: column {cells.name!r}"
        if cells.missing.all():
            raise ValueError(f"{where}: expected at least one value, every cell is missing (NaN); drop it")
        if cells.numeric and (large := np.abs(cells.values) > _LARGEST).any():
            received = f"{cells.values[large.argmax()]:g} at row {large.argmax()}"
            raise ValueError(
                f"{where}: expected numbers of at most {_LARGEST:g}, received {received}; correct it, "
                f'make it missing, or "{IGNORE}" leaves the column out'
            )
        options: dict[str, Any] = dict(kind) if isinstance(kind, Mapping) else {"kind": kind}
        asked = options.pop("kind", None)
        asked = None if asked == "auto" else asked
        try:
            labels = asked is not None and Layer.registry.get(asked, Layer).coding in ("states", "one-hot")
            form = None if labels else cells.form
            numbers = cells
            if form is not None:
                numbers = Series(cells.name, to_numbers(cells.values.tolist(), form), cells.dtype)
            chosen, inferred = (asked, {}) if asked else _choose(numbers)
            unit = Layer.registry[_checks.one_of(chosen, "kind", Layer.registry)]
            seen = numbers.values[~numbers.missing]
            about = {"name": name_of(cells), "dtype": cells.dtype, "kind": chosen, "form": form}
            about |= {"declared": cells.categories is not None, "ordered": cells.ordered, "seen": len(seen)}
            codec = _fit_kind(numbers, unit, inferred | options, weights, about)
            if not codec._numeric or codec.width > 1:
                return codec
            first, last = float(seen.min()), float(seen.max())
            low, high = codec.ends or (-inf, inf)
            codec = replace(codec, ends=(first if low == -inf else low, last if high == inf else high))
            whole = form is not None or len(seen) >= _ROUNDED or codec.values
            step = step_of(np.array(codec.values) if codec.values else seen, form) if whole else None
            return replace(codec, step=step)
        except (TypeError, ValueError, OverflowError) as error:
            asked = f' for "{asked}"' if asked else ""
            raise ValueError(f"{where}{asked}: {error}") from error

    @classmethod
    def fit_label(cls, cells: Series) -> ColumnCodec:
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

    def widened(self, cells: Series) -> Self:
        """Returns the column that has seen further cells: real numbers may then lie as far out as these."""
        seen = self._values(cells)[~cells.missing]
        codec = replace(self, seen=self.seen + len(seen)) if self.seen else self
        if self.ends is None or self.grid is not None or np.isnan(seen).all():
            return codec
        low, high = (
            (old, old) if bound is not None else (old, new)
            for old, bound, new in zip(
                self.ends, self.bounds, (np.nanmin(seen), np.nanmax(seen)), strict=True
            )
        )
        return replace(codec, ends=(min(low), max(high)))

    # From cells to states
    # ---------------------------------------------------------------------------------

    def encode(self, cells: Series, *, beyond: str = "end") -> Array:  # type: ignore[override]
        """Returns the states of cells, (rows, width) float64.

        NaN stands in the whole of a unit where the cell is missing, or a label without a state.

        Args:
            cells: Cells of the column.
            beyond: States of numbers beyond what was seen: "end", that of the nearest number; "tail", of
                real numbers their own (``Tail``); "line", those of ``states_of``, NaN where it has none.
        """
        values = self._values(cells)
        near = self.ends is not None and beyond != "line"
        states = self.states_of(self.nearest(values) if near else values)
        for tail in self.open_tails if beyond == "tail" else ():
            out = tail.distances(values) > 0
            states[out] = tail.states(values[out])
        return states.reshape(len(values), self.width)

    def log_shares(self, cells: Series, beyond: str = "end") -> Array:
        """Returns ln p(cell | its state), (rows,) float64; 0 where it is missing.

        With ln p(state) it is ln p(cell) where states are discrete. Where they are real, add the log of the
        slope (``log_jacobian``). ``beyond`` is that of the states; those of a tail have no further share.
        """
        if not self.seen:
            return np.zeros(len(cells.values))
        values = self._values(cells)
        log_shares = self.log_shares_of(values, beyond)
        if values.dtype.kind == "f":  # text among numbers
            log_shares = np.where(np.isnan(values), log_unseen(self.seen), log_shares)
        return np.where(cells.missing, 0.0, log_shares)

    def log_jacobian(self, states: Array) -> Array:
        """Returns ln of the slope of the states along the cells, (rows, 1), at states (rows, width)."""
        states = states[:, :1]
        slopes = np.where(np.isnan(states), np.nan, self.log_slopes_of(states))
        for tail in self.open_tails:
            slopes = np.where(tail.holds(states), tail.log_slopes(states), slopes)
        return slopes

    @property
    def open_tails(self) -> tuple[Tail, ...]:
        """The ends of the range seen beyond which the unit has states."""
        return tuple(tail for tail in tails_of(self) if tail.open)

    @property
    def _numeric(self) -> bool:
        return all(type(value) is float for value in self.values)

    def _values(self, cells: Series) -> Array:
        """Returns cells as ``states_of`` takes them, (rows,): labels, or numbers."""
        if cells.numeric:
            return cells.values
        values: list[Any] = cells.values.tolist()
        if self.form is not None:
            return to_numbers(values, self.form)
        if not any(isinstance(value, str) for value in self.values):  # text has numbers of other files
            values = [float(x) if isinstance(x, str) and is_number(x) else x for x in values]
        if self._numeric:
            return np.array([x if isinstance(x, (int, float)) else math.nan for x in values], np.float64)
        return np.array(values, dtype=object)

    def refuse(self, cells: Series, row: int) -> None:
        """Refuses a cell without a state."""
        expected = "cells that were seen"
        if self.form is not None:
            expected = f"cells of the form {self.form}"
        elif self.values:
            expected = f"one of {few(self.values)}"
        elif self.ends is not None:
            expected = f"a number from {shown(self.ends[0])} to {shown(self.ends[1])}"
        received = shown(cells.values[row : row + 1].tolist()[0])
        raise ValueError(
            f"X: column {self.name!r}: expected {expected} as in fit, received {received} at row {row}"
        )

    # And back
    # ---------------------------------------------------------------------------------

    def decode(  # type: ignore[override]
        self, states: Array, *, rounded: bool = True, drawn: str | None = None
    ) -> Array:
        """Returns cells (rows,) from states or means; numbers are rounded to what they all were multiples of.

        Args:
            states: (rows, width).
            rounded: whether to round.
            drawn: "rows" of states that are drawn, which may lie somewhat beyond what was seen, "cells" of
                states that are drawn for missing cells, or None of means and most probable states.
        """
        one = states[:, 0] if self.width == 1 else states
        if self.ranked and (not rounded or (drawn is None and len(self.values) > 2)):
            cells = self.numbers(one)  # a mean of two numbers is one of them, of more it lies between
        else:
            cells = self.cells_of(np.round(one) if rounded and self.grid is not None else one)
            for tail in self.open_tails if drawn else ():
                cells = np.where(tail.holds(one), tail.numbers(one), cells)
        if rounded and self.step is not None:
            cells = _round_to(cells, self.step)
        limits = self.drawn if drawn == "rows" else self.ends
        if limits is not None:
            cells = np.clip(cells, *limits)
        if self.form is not None:
            return from_numbers(cells, self.form)
        name = self.dtype.lower().partition("[")[0]
        if not rounded or cells.dtype.kind != "f" or name not in WHOLE:
            return cells
        whole = np.iinfo(name)
        largest = whole.max if whole.bits < 64 else np.nextafter(float(whole.max), 0)
        return np.clip(np.round(cells), whole.min, largest)

    def series(self, states: Array, *, rounded: bool = True, drawn: str | None = None) -> Series:
        """Returns ``decode`` as a column of a frame; dates and types of whole numbers are always rounded."""
        whole = rounded or self.form is not None or self.dtype.lower().partition("[")[0] in WHOLE
        cells = self.decode(states, rounded=whole, drawn=drawn)
        return Series(self.name, cells, self.dtype, self.categories, self.ordered)

    @property
    def drawn(self) -> Ends | None:
        """Limits of cells in rows that are drawn: what was all on one side of 0 stays there."""
        if self.ends is None or self.grid is not None:
            return self.ends
        pairs = zip(self.ends, tails_of(self), strict=True)
        low, high = (x * abs(x) / (abs(x) + 1 / tail.slope) if x else 0.0 for x, tail in pairs)
        if step := self.step:  # they are cells of the column themselves
            low = min(math.ceil(low / step - 1e-6) * step, self.ends[0])
            high = max(math.floor(high / step + 1e-6) * step, self.ends[1])
        return (low if self.ends[0] >= 0 else -inf), (high if self.ends[1] <= 0 else inf)

    @property
    def categories(self) -> tuple[Any, ...] | None:
        """The values that the column's type names, if it does."""
        return self.values if self.declared and self.values else None

    @property
    def learned(self) -> bool:
        """True if the column has a unit."""
        return self.width > 0

    @property
    def ranked(self) -> bool:
        """True if states are ranks of rising numbers, or two of them: a mean lies between them."""
        return self.grid is not None and self.values != () and sorted(self.values) == [*self.values]

    def numbers(self, states: Array) -> Array:
        """Returns the numbers of states, of any shape, along straight lines between ranks."""
        if not self.ranked:
            return self.cells_of(states)
        between: Array = np.interp(states, self.states_of(np.array(self.values)), self.values)
        return np.where(np.isnan(states), np.nan, between)

    def between(self, numbers: Array) -> Array:
        """Returns the states that ``numbers`` takes for these."""
        if not self.ranked:
            return self.states_of(numbers)
        states: Array = np.interp(numbers, self.values, self.states_of(np.array(self.values)))
        return np.where(np.isnan(numbers), np.nan, states)

    def holds(self, cells: Series) -> str:
        """Describes what the column holds, of which some cell is not missing, and how it is coded."""
        if self.values and self.form is None:
            return few(self.values)
        seen = cells.values[~cells.missing]
        ends = seen if self.form is None else to_numbers(seen.tolist(), self.form)
        ends = np.array([ends.min(), ends.max()])
        written: Any = "{:.4g}".format if self.form is None and self.step is None else shown
        listed = map(written, ends) if self.form is None else map(str, from_numbers(ends, self.form))
        return " to ".join(listed) + (f", by the transform {self.transform}" if self.curved else "")

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> ColumnCodec:
        """Rebuilds a column from its description by ``to_dict``.

        Raises:
            TypeError, ValueError: fields that are missing or out of range, or no column.
        """
        codec = encoder_from_dict(description)
        _checks.instance(codec, "column", ColumnCodec, "a ColumnCodec")
        return codec  # type: ignore[return-value]


# Fitting a kind of column
# ---------------------------------------------------------------------------------


def codecs_for(kind: str) -> list[type[ColumnCodec]]:
    """Lists the kinds of columns for units of a kind, the usual one first; ValueError: there are none."""
    every = [codec_class for codec_class in Encoder.registry.values() if issubclass(codec_class, ColumnCodec)]
    coding = Layer.registry[kind].coding
    served = {name for codec_class in every for name in codec_class.serves}
    _checks.one_of(coding, f"coding of {kind} units", served)
    serving = [codec_class for codec_class in every if coding in codec_class.serves]
    return sorted(
        serving, key=lambda codec_class: (codec_class.transform is not None, codec_class.serves.index(coding))
    )


def _fit_kind(
    cells: Series, unit: type[Layer], options: dict[str, Any], weights: Array | None, about: dict[str, Any]
) -> ColumnCodec:
    """Fits the kind of column that options ask for, among those that serve a unit.

    A transform "auto" is that of the likeliest normal states, with the penalty of the Bayesian information
    criterion, which hardly leaves the range of the cells; one that tells common numbers apart, if there are.
    """
    offered = codecs_for(unit.kind)
    transforms = dict.fromkeys(kind.transform or "none" for kind in offered)
    known = dict.fromkeys(option for kind in offered for option in _options_of(kind))
    known |= dict.fromkeys(["transform"] if len(transforms) > 1 else ())
    for option in options.keys() - known:
        raise ValueError(f"expected options among {', '.join(known)}, received {option}={options[option]!r}")
    transform = options.pop("transform", None) or "none"
    automatic = ("auto",) if unit.coding == "standardised" else ()
    _checks.one_of(transform, "transform", (*automatic, *transforms))
    if transform != "auto":
        offered = [kind for kind in offered if transform == (kind.transform or "none")]
        fits = next(kind for kind in offered if options.keys() <= {*_options_of(kind)} or kind is offered[-1])
        return fits(**about | fits.fields_of(cells, unit, weights, **options))
    seen, row_weights = numbers_of(cells), weights_of(cells, weights)
    rows = len(seen) if row_weights is None else float(row_weights.sum())
    fitted = list[tuple[float, ColumnCodec]]()
    for kind in offered if len(np.unique(seen)) >= _DISTINCT else offered[:1]:
        try:
            codec = kind(**about | kind.fields_of(cells, unit, weights))
        except ValueError:  # numbers of which it takes no logarithm
            continue
        if getattr(codec, "common", None):
            return codec
        states = codec.states_of(seen)
        score = np.average(codec.log_slopes_of(states) - 0.5 * states**2, weights=row_weights)
        fitted.append((float(score) - codec.complexity * 0.5 * math.log(rows) / rows, codec))
    likely = [pair for pair in fitted if _share_beyond(pair[1], seen) <= _BEYOND + 2 / rows]
    return max(likely or fitted[:1], key=lambda pair: pair[0])[1]


def _options_of(kind: type[ColumnCodec]) -> list[str]:
    """Lists the options of a column of a kind, each otherwise inferred from its cells."""
    return [name for name, p in signature(kind.fields_of).parameters.items() if p.default is None]


def _share_beyond(column: ColumnCodec, seen: Array) -> float:
    """Returns how much of a normal column lies beyond the range of the cells by 5 % of it."""
    margin = _MARGIN * (seen.max() - seen.min())
    ends = column.states_of(np.array([seen.min() - margin, seen.max() + margin]))
    low, high = torch.special.ndtr(torch.from_numpy(ends)).tolist()
    return float(1 - high + (0.0 if math.isnan(low) else low))


@cache
def states_of(kind: str) -> tuple[float, ...]:
    """Lists the states of a unit of a kind whose states are numbers."""
    return tuple(Layer.registry[kind].plain(1).values()[:, 0].tolist())


def name_of(cells: Series) -> str | int:
    """Returns the name of a column, or its number."""
    name: Any = cells.name
    return int(name) if hasattr(name, "__index__") else str(name)


def _round_to(cells: Array, step: float) -> Array:
    """Returns the nearest multiples of a step, of tenths and the like as they are written."""
    if step < 1:
        return np.round(cells, round(-math.log10(step))) + 0.0
    rounded: Array = np.round(cells / step) * step + 0.0
    return rounded


# The choice of a unit
# ---------------------------------------------------------------------------------


def _choose(cells: Series) -> tuple[str, dict[str, Any]]:
    """Returns the kind of unit for a column, and options of the column."""
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
    """Returns kinds by the columns' own names; ValueError: no such column, or no such kind."""
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
    for name, choice in chosen.items():
        if kind_of(choice) not in known:
            raise ValueError(
                f"kinds: expected one of {', '.join(known)} for column {name!r}, received {kind_of(choice)!r}"
            )
    return chosen
