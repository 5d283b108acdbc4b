"""Results as notebooks show them: small tables, and text in its columns."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def table(title: str, rows: Iterable[tuple[str, object]], notes: Iterable[str] = ()) -> str:
    """Returns a table of names and values as HTML; ``notes`` stand below it, a line each."""
    cells = "".join(
        f"<tr><th style='text-align: left'>{escape(name)}</th>"
        f"<td style='text-align: left'>{escape(str(value))}</td></tr>"
        for name, value in rows
    )
    below = "".join(f"<div>{escape(note)}</div>" for note in notes)
    return f"<div><strong>{escape(title)}</strong><table>{cells}</table>{below}</div>"


def text(words: str) -> str:
    """Returns text as HTML that keeps its lines and columns."""
    return f"<pre>{escape(words)}</pre>"
