"""Shell completion of arguments and of the values of options."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import typer

from harmonium.data import BUILT_IN
from harmonium.learning import rules

Completion = Callable[[str], list[str]]


def words(known: Collection[str]) -> Completion:
    """Completes an argument to one of some words, those of a registry as it is then."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return complete


def data(incomplete: str) -> list[str]:
    """DATA: built-in names, files and folders."""
    names = [name for name in BUILT_IN if name.startswith(incomplete)]
    folder = Path(incomplete if incomplete.endswith("/") else Path(incomplete).parent)
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    paths = [f"{path}/" if path.is_dir() else str(path) for path in files if not path.name.startswith(".")]
    return names + [path for path in paths if path.startswith(incomplete)]


def rule_option(ctx: typer.Context, incomplete: str) -> list[str]:
    """NAME= of what the rule that was named before takes."""
    rule = ctx.params.get("rule") or "pcd"
    known = rules.options(rule) if rule in rules.RECIPES else ()
    return [f"{name}=" for name in known if name.startswith(incomplete)]
