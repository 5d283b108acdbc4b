"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from harmonium import _checks
from harmonium.cli.completion import words

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or a machine's .safetensors file.")]
Averaged = Annotated[bool, typer.Option("--averaged", help="Take the run's averaged parameters.")]
Seed = Annotated[int, typer.Option(help="Where all randomness comes from.")]
Device = Annotated[str | None, typer.Option(help="Where to compute, such as cpu or cuda.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads; torch's own choice if not given.")]
Unknown = Annotated[
    str | None,
    typer.Option(
        help="What a cell is taken as that its column has no state for, such as a new category: refuse or "
        "missing; as in training if not given.",
        autocompletion=words(("refuse", "missing")),
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is already there.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def set_threads(threads: int | None) -> None:
    """Limit this process to a number of CPU threads."""
    if threads is not None:
        torch.set_num_threads(_checks.positive_int(threads, "threads"))


def as_device(name: str | None) -> torch.device:
    """A device by its name, the CPU by default, that torch can put a tensor on.

    Raises:
        ValueError: it cannot.
    """
    try:
        device = torch.device(name or "cpu")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device: {name} cannot be used ({str(error).splitlines()[0]})") from error
    return device


def unknown_of(text: str | None) -> str | None:
    """Translates ``--unknown`` into the argument ``unknown`` of ``harmonium.data.Table``; None stays None.

    Raises:
        ValueError: neither "refuse" nor "missing".
    """
    if text is None:
        return None
    return {"refuse": "error", "missing": "missing"}[_checks.one_of(text, "unknown", ("refuse", "missing"))]


def image_shape_of(text: str | None) -> tuple[int, ...] | None:
    """(28, 28) from "28x28", (32, 32, 3) from "32x32x3"; None stays None.

    Raises:
        ValueError: another form.
    """
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) not in (2, 3) or not all(side.isdecimal() and int(side) > 0 for side in sides):
        raise ValueError(f"image_shape: expected a form such as 28x28 or 32x32x3, received {text!r}")
    return tuple(int(side) for side in sides)
