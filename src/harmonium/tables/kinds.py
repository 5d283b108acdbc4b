"""Kinds of columns, as users write them beside a table."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harmonium.data import Frame, Series, question_of
from harmonium.tables.cells import shown, values_of
from harmonium.tables.column import IGNORE, MANY_TEXTS, chosen_kinds, kind_of

_KINDS = 'age = "gaussian", or visits = { kind = "binomial", largest = 20 }'


def read_kinds(source: str) -> dict[str, Any]:
    """Reads kinds of columns by name, for ``Table.fit``.

    Args:
        source: a file of TOML, or a line of it such as ``age = "gaussian"``.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no TOML, or something else than columns and their kinds.
    """
    path = Path(source)
    if "=" not in source and not path.is_file():
        raise FileNotFoundError(f"kinds: expected a file of TOML, or {_KINDS}; there is no {path}")
    try:
        kinds = tomllib.loads(path.read_text("utf-8") if path.is_file() else source)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"kinds: {source} is no TOML ({error}); write {_KINDS}") from error
    if not all(isinstance(kind, str | dict) for kind in kinds.values()):
        raise ValueError(f"kinds: expected a kind for each column in {source}, such as {_KINDS}")
    return kinds


def without_unit(frame: Frame, kinds: str | Mapping[Any, Any] | None = None) -> dict[Any, str]:
    """Returns the columns that get no unit by ``Table.fit``, and why: ``IGNORE`` where their kind is that."""
    chosen, reasons = chosen_kinds(frame, kinds), dict[Any, str]()
    for cells in frame.columns:
        kind = kind_of(chosen.get(cells.name))
        free = kind == "auto" and not (isinstance(chosen.get(cells.name), Mapping) and chosen[cells.name])
        reason = IGNORE if kind == IGNORE else _why_left_out(cells) if free else None
        if reason is not None:
            reasons[cells.name] = reason
    return reasons


def _why_left_out(cells: Series) -> str | None:
    """Returns why nothing is to be learned from a column; None: it is learned."""
    seen, values = cells.values[~cells.missing], values_of(cells)
    if not len(seen):
        return "empty"
    if len(values) == 1:
        return f"one value, {shown(values[0])}"
    if len(values) <= MANY_TEXTS or cells.categories is not None or cells.form is not None:
        return None
    if cells.numeric:  # whole numbers from 0 or 1, each of them once: they name rows
        counted = len(values) == len(seen) and not (seen % 1).any() and values[-1] - values[0] < 2 * len(seen)
        return "row numbers" if counted and 0 <= 10 * values[0] < len(seen) else None
    if len(values) <= len(seen) / 2:
        return None
    return question_of(cells) or f"{len(values)} different texts in {len(seen)} rows"
