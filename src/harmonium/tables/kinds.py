"""Kinds of columns, as users write them beside a table."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harmonium.tables.column import IGNORE

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


def without_units(kinds: Mapping[str, Any]) -> list[str]:
    """Lists the columns that kinds leave without a unit."""
    return [name for name, kind in kinds.items() if kind in (IGNORE, {"kind": IGNORE})]
