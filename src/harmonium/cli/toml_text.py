"""Values as TOML, which the standard library reads and does not write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def toml_text(value: Any) -> str:
    """A value as it stands to the right of ``=`` in a TOML file.

    Args:
        value: a string, number, truth value, or a sequence or mapping of them.

    Raises:
        TypeError: anything else, such as None, which TOML does not have.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")  # the one that JSON leaves
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{json.dumps(key)} = {toml_text(item)}" for key, item in value.items()) + " }"
        )
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(toml_text, value)) + "]"
    raise TypeError(f"value: expected text, a number, a list or a table, received {type(value).__name__}")
