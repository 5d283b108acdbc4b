"""The one-page summary of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harmonium._storage import replace_file


def write_summary(
    path: str | os.PathLike[str],
    title: str,
    sections: Mapping[str, Mapping[str, Any]],
    pictures: Mapping[str, str] | None = None,
) -> None:
    """Writes a Markdown page: a table for every section, then the pictures.

    Args:
        path: the file; one that is there is replaced in one step.
        title: heading of the page.
        sections: heading to a table of names and values, such as settings or likelihoods.
        pictures: caption to the picture's path, relative to the page.

    Raises:
        OSError: it cannot be written; a file already there stays as it was.
    """
    lines = [f"# {title}", ""]
    for heading, table in sections.items():
        lines += [f"## {heading}", "", "| | |", "|---|---|"]
        lines += [f"| {_format(name)} | {_format(value)} |" for name, value in table.items()]
        lines.append("")
    for caption, picture in (pictures or {}).items():
        lines += [f"![{caption}]({picture})", "", f"*{caption}*", ""]
    replace_file(Path(path), "\n".join(lines).encode())


def _format(value: Any) -> str:
    """Returns a value as the text of a cell."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
