"""Results as texts: values, and the small tables that notebooks show."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any


def table(title: str, rows: Iterable[tuple[str, object]], notes: Iterable[str] = ()) -> str:
    """Returns a table of names and values as HTML; ``notes`` stand below it, a line each."""
    cells = "".join(
        f"<tr><th style='text-align: left'>{escape(name)}</th>"
        f"<td style='text-align: left'>{escape(str(value))}</td></tr>"
        for name, value in rows
    )
    below = "".join(f"<div>{escape(note)}</div>" for note in notes)
    return f"<div><strong>{escape(title)}</strong><table>{cells}</table>{below}</div>"


def format_value(value: Any) -> str:
    """Returns a value of a result as text: numbers by six digits, "-" where there is none."""
    if value is None or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(format_value, value)) or "-"
    return str(value)
