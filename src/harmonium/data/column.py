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
from harmonium.data.codings import (
    Affine,
    Coding,
    Counts,
    Labels,
    Levels,
    Numbered,
    OneOf,
    Pair,
    all_of,
    coding_from_dict,
    few,
    shown,
    values_of,
)
from harmonium.data.sheet import Cells
from harmonium.data.transforms import Array
from harmonium.layers import Layer

_WHOLE = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_FEW = 10  # different whole numbers at most, and rows for each at least _REPEATED, to be taken for labels
_REPEATED = 5
_TEXTS = 20  # more different texts than these, in more than half of the rows, are names and no categories


def fit_states(cells: Cells, states: tuple[float, ...], *, values: Sequence[Any] | None = None) -> Levels:
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


CODINGS: dict[str, Callable[..., Coding]] = {
    "states": fit_states,
    "one-hot": OneOf.fit,
    "counts": Counts.fit,
    "standardised": Affine.standardised,
    "scaled": Affine.scaled,
    "interval": Affine.interval,
    "fractions": Affine.unmoved,
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
    """

    name: str | int
    dtype: str
    kind: str
    coding: Coding
    declared: bool = False
    ordered: bool = False

    def __post_init__(self) -> None:
        _checks.instance(self.name, "name", str | int, "text or an int")
        _checks.instance(self.dtype, "dtype", str, "text")
        _checks.one_of(self.kind, "kind", Layer.registry)
        _checks.instance(self.coding, "coding", Coding, "a Coding")

    @classmethod
    def fit(
        cls, cells: Cells, kind: str | Mapping[str, Any] | None = None, weights: Array | None = None
    ) -> Column:
        """Infers a column's unit and coding from its cells.

        Args:
            cells: at least one that is not missing.
            kind: of its unit; None chooses: Bernoulli for at most two values, Categorical for other text,
                booleans, categories and few repeated whole numbers, else Gaussian. Or the ``kind`` with what
                is known beyond the cells: all ``values`` of labels, the ``largest`` count, ``low``, ``high``.
            weights: of the cells, above 0, where means and deviations are taken. None: all count alike.

        Raises:
            ValueError: no cell, cells that the kind does not take, or texts that are names of rows; the
                message names the column.
        """
        where = f"X: column {cells.name!r}"
        if cells.missing.all():
            raise ValueError(f"{where}: expected at least one value, every cell is missing (NaN); drop it")
        options: dict[str, Any] = dict(kind) if isinstance(kind, Mapping) else {"kind": kind}
        asked = options.pop("kind", None)
        asked = None if asked == "auto" else asked
        try:
            chosen = asked or _kind(cells)
            known = options_of(_checks.one_of(chosen, "kind", Layer.registry))
            for option in options.keys() - set(known):
                takes = f"among {', '.join(known)}" if known else "none"
                raise ValueError(f"expected options {takes}, received {option}={options[option]!r}")
            make = coding_for(chosen)
            if weights is not None and "weights" in signature(make).parameters:
                options["weights"] = weights
            coding = make(cells, **options)
        except (TypeError, ValueError, OverflowError) as error:
            asked = f' for "{asked}"' if asked else ""
            raise ValueError(f"{where}{asked}: {error}") from error
        name = cells.name if isinstance(cells.name, str) else _number(cells.name)
        return cls(name, cells.dtype, chosen, coding, cells.categories is not None, cells.ordered)

    @property
    def categories(self) -> tuple[Any, ...] | None:
        """The values that the column's type names, if it does."""
        return self.coding.values if self.declared else None

    def encode(self, cells: Cells, unknown: str, first: int = 0) -> Array:
        """(rows, width) float64, NaN in the whole of a row's unit where the cell is missing.

        Args:
            cells: of this column.
            unknown: "error" or "missing", what a cell that the unit has no state for is taken as.
            first: number of the first row, for the message.

        Raises:
            ValueError: such a cell with "error"; the message names the column, the value and the row.
        """
        states = self.coding.encode(cells)
        wrong = np.isnan(states[:, 0]) & ~cells.missing
        if wrong.any() and unknown == "error":
            row = int(wrong.argmax())
            received = cells.values[row : row + 1].tolist()[0]
            counts = isinstance(self.coding, Labels) and all(
                type(x) is float and x >= 0 and x.is_integer() for x in (*self.coding.values, received)
            )
            other = ', or fit it as a count, {"kind": "binomial", "largest": N}' if counts else ""
            raise ValueError(
                f"X: column {self.name!r}: expected {self.coding.expected}, received {shown(received)} "
                f'at row {first + row}; correct it, or unknown="missing" takes such cells as missing{other}'
            )
        return states

    def decode(self, states: Array) -> Array:
        """Returns cells (rows,) from states or means; counts, and numbers of whole types, rounded."""
        cells = self.coding.decode(states)
        if isinstance(self.coding, Counts):
            cells = np.round(cells)
        name = self.dtype.lower().partition("[")[0]
        if cells.dtype.kind != "f" or name not in _WHOLE:
            return cells
        limits = np.iinfo(name)
        largest = limits.max if limits.bits < 64 else np.nextafter(float(limits.max), 0)
        return np.clip(np.round(cells), limits.min, largest)

    def to_dict(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {**vars(self), "coding": self.coding.to_dict()}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Self:
        """Rebuilds a column from its description by ``to_dict``.

        Raises:
            TypeError, ValueError: fields that are missing or out of range.
        """
        values = dict(description)
        return cls(coding=coding_from_dict(values.pop("coding", {})), **values)


def _kind(cells: Cells) -> str:
    values, rows = values_of(cells), int((~cells.missing).sum())
    if len(values) <= 2:
        return "bernoulli"
    if cells.numeric:
        few_repeated = len(values) <= _FEW and rows >= _REPEATED * len(values)
        return "categorical" if few_repeated and all(x == round(x) for x in values) else "gaussian"
    if cells.categories is None and len(values) > _FEW:
        stray = [value for value in values if not _is_number(value)]
        mostly_numbers, names = 2 * len(stray) < len(values), len(values) > max(_TEXTS, rows / 2)
        remedy = (
            'drop the column if they name rows, or ask for "categorical" (kinds, on the command line --kinds)'
        )
        if mostly_numbers:
            remedy = "most are numbers; turn the column into numbers" + (
                f" with missing cells where it says {stray[0]!r}" if stray else ""
            )
        if names:
            raise ValueError(
                f"expected text that repeats, received {len(values)} different ones in {rows} rows, "
                f"{few(values)}; {remedy}"
            )
        if mostly_numbers and (stray or any("," in str(value) for value in values)):  # else they are codes
            _checks.warn(
                f"column {cells.name!r}: {len(values)} different texts, {few(values)}, are taken for "
                f'categories; {remedy}, or ask for "categorical"'
            )
    return "categorical"


def _is_number(value: Any) -> bool:
    """Returns whether a cell is a finite number, perhaps with a decimal comma."""
    try:
        return math.isfinite(float(str(value).replace(",", ".")))
    except ValueError:
        return False


def _number(name: Any) -> str | int:
    return int(name) if hasattr(name, "__index__") else str(name)
