"""``harmonium reproduce``."""

from __future__ import annotations

import ast
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

import harmonium
from harmonium.cli.output import note

EXAMPLES = (
    "harmonium reproduce",
    "harmonium reproduce meeting_times --budget quick",
)

INDEX = "experiments/index.toml"
CONTEXT = {"ignore_unknown_options": True}


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="An experiment; without one they are listed.")
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGUMENTS]...", help="For its script; -- --help lists them."),
    ] = None,
) -> None:
    """List the experiments behind the documentation's figures, or run one again.

    They are scripts in a clone of the project, which the installed package does not hold.
    """
    clone = _clone()
    index = tomllib.loads((clone / INDEX).read_text("utf-8"))
    if name is None:
        for each, about in index.items():
            typer.echo(f"{each}\n    {_about(clone, each)}")
            typer.echo(f"    cost: {about['cost']}\n    record: {_records(about)}")
        return
    if name not in index:
        raise ValueError(f"name: expected one of {', '.join(index)}, received {name!r}")
    given = list(arguments or [])
    if "out" in index[name] and "--out" not in given:
        given += ["--out", index[name]["out"]]  # or the script would replace the record
        (clone / index[name]["out"]).parent.mkdir(parents=True, exist_ok=True)
    command = [f"experiments/{name}.py", *given]
    note(f"in {clone}: python {shlex.join(command)}   ({index[name]['cost']})")
    status = subprocess.run([sys.executable, *command], cwd=clone, check=False).returncode
    if status:
        raise typer.Exit(status if status > 0 else 128 - status)
    note(f"the record to compare with: {_records(index[name])}; docs/experiments.md says what it shows")


def _clone() -> Path:
    """The clone that this package is run from, or else the one of the current folder.

    Raises:
        FileNotFoundError: there is none.
    """
    for folder in (Path(harmonium.__file__).resolve().parents[2], Path.cwd(), *Path.cwd().parents):
        if (folder / INDEX).is_file():
            return folder
    raise FileNotFoundError(
        f"reproduce: expected {INDEX} here; the experiments are in a clone of the project and in its source "
        "distribution (the .tar.gz beside the wheel), and not in the installed package: unpack one and give "
        "this command in its folder"
    )


def _about(clone: Path, name: str) -> str:
    """The first sentence of a script."""
    text = ast.get_docstring(ast.parse((clone / "experiments" / f"{name}.py").read_text("utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _records(about: dict[str, Any]) -> str:
    return ", ".join(f"experiments/results/{each}" for each in about["records"]) or "none kept"
