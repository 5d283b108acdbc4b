"""Columns of a table that have no unit, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np

from harmonium.data import Frame, Series
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.tables.codings import shown, values_of
from harmonium.tables.column import MANY_TEXTS, name_of, strays_of, time_form_of

IGNORE = "ignore"
"""In place of the kind of a unit: the column has none."""


@final
@dataclass(frozen=True)
class LeftOut:
    """A column of a table that has no unit: nothing is learned of it.

    Attributes:
        name: of the column, or its number.
        dtype: what the column's library calls its type.
        numeric: whether it holds numbers.
        constant: its only value; None: there are several, or none.
    """

    name: str | int
    dtype: str
    numeric: bool
    constant: str | float | None = None

    @classmethod
    def of(cls, cells: Series) -> Self:
        """Describes a column that is to be left out."""
        seen = cells.values[~cells.missing]
        one = seen[0] if len(seen) and (seen == seen[0]).all() else None
        constant = one.item() if isinstance(one, np.generic) else one
        known = isinstance(constant, (str, float, int)) or constant is None
        return cls(name_of(cells), cells.dtype, cells.numeric, constant if known else None)

    def cells(self, rows: int) -> Series:
        """Returns so many cells: the only value, or missing ones."""
        missing = np.nan if self.numeric else None
        value = missing if self.constant is None else self.constant
        return Series(self.name, np.full(rows, value, float if self.numeric else object), self.dtype)

    def to_dict(self) -> dict[str, Any]:
        """In plain JSON types."""
        return dict(vars(self))


def why_left_out(cells: Series) -> str | None:
    """Returns why nothing is to be learned from a column that nobody gave a unit; None: it is learned."""
    rows = int((~cells.missing).sum())
    if not rows:
        return "empty"
    values = values_of(cells)
    if len(values) == 1:
        return f"one value, {shown(values[0])}"
    if len(values) <= MANY_TEXTS or cells.categories is not None or time_form_of(cells):
        return None
    if cells.numeric:
        start, span = values[0], values[-1] - values[0] + 1
        every = len(values) == rows and not (cells.values[~cells.missing] % 1).any()
        return "row numbers" if every and 0 <= 10 * start < rows and 2 * rows >= span else None
    if len(values) <= rows / 2 or 2 * len(strays_of(values)) < len(values):
        return None
    return f"{len(values)} different texts in {rows} rows"


def without_unit(frame: Frame, kinds: str | Mapping[Any, Any] | None = None) -> dict[Any, str]:
    """Returns the columns that get no unit, and why: ``IGNORE`` for those whose kind says so.

    Args:
        frame: the rows.
        kinds: see ``Table.fit``.
    """
    chosen, found = chosen_kinds(frame, kinds), dict[Any, str]()
    for cells in frame.columns:
        kind = _kind(chosen.get(cells.name))
        reason = IGNORE if kind == IGNORE else why_left_out(cells) if kind == "auto" else None
        if reason is not None:
            found[cells.name] = reason
    return found


def _kind(given: Any) -> Any:
    return "auto" if given is None else given.get("kind", "auto") if isinstance(given, Mapping) else given


def chosen_kinds(frame: Frame, kinds: str | Mapping[Any, Any] | None) -> dict[Any, Any]:
    """Returns the kinds of columns that are named, by the columns' own names.

    Raises:
        ValueError: no such column, or no such kind.
    """
    names = [cells.name for cells in frame.columns]
    if isinstance(kinds, Mapping):
        if all(isinstance(name, int) for name in names):  # which files of kinds write as text
            own = {str(name): name for name in names}
            kinds = {own.get(name, name): kind for name, kind in kinds.items()}
        for name in kinds:
            if name not in names:
                raise ValueError(f"kinds: expected columns among {few_names(names)}, received {name!r}")
    chosen: dict[Any, Any] = dict.fromkeys(names, kinds) if isinstance(kinds, str) else dict(kinds or {})
    known = ("auto", IGNORE, *Layer.registry)
    for name, given in chosen.items():
        if _kind(given) not in known:
            raise ValueError(
                f"kinds: expected one of {', '.join(known)} for column {name!r}, received {_kind(given)!r}"
            )
    return chosen


def few_names(names: list[Any]) -> str:
    """Returns the first of some names, in words."""
    return ", ".join(repr(name) for name in names[:10]) + (", …" if len(names) > 10 else "")


def blank_rows(X: Any, encoder: Any = None, kinds: Any = None) -> Array:
    """Returns which rows show nothing in any column that is learned, (rows,) bool.

    Args:
        X: a ``Frame``, or a matrix of numbers; a sparse one has no such rows.
        encoder: of the rows; None: it is still to be fitted,
        kinds: of these columns, see ``Table.fit``.
    """
    if isinstance(X, Frame):
        out = [x.name for x in encoder.left_out] if encoder is not None else without_unit(X, kinds)
        holes = [cells.missing for cells in X.columns if cells.name not in out]
        return np.all(holes, axis=0) if holes else np.zeros(len(X), dtype=bool)
    plain = isinstance(X, np.ndarray) and X.dtype.kind == "f"
    return np.isnan(X).all(1) if plain else np.zeros(X.shape[0], dtype=bool)
