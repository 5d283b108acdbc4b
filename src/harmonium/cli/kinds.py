"""A file that says what kinds of units columns have."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

EXAMPLE = 'age = "gaussian", or visits = { kind = "binomial", largest = 20 }'


def read_kinds(path: Path | None) -> dict[str, Any]:
    """Kinds of columns by name, for ``harmonium.data.Table.fit``; without a file there are none.

    Raises:
        FileNotFoundError: no such file.
        ValueError: neither TOML nor JSON, or something else than columns and their kinds.
    """
    if path is None:
        return {}
    if not path.is_file():
        raise FileNotFoundError(f"kinds: expected a .toml or .json file, there is no {path}")
    parse = {".toml": tomllib.loads, ".json": json.loads}.get(path.suffix.lower())
    if parse is None:
        raise ValueError(f"kinds: expected a name that ends in .toml or .json, received {path}")
    try:
        found = parse(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"kinds: {path} is no {path.suffix[1:].upper()} ({error}); write {EXAMPLE}"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(kind, str | dict) for kind in found.values()):
        raise ValueError(f"kinds: expected a kind for each column in {path}, such as {EXAMPLE}")
    return found
