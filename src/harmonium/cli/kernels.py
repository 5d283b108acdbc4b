"""Kernels by name, for the commands that run chains."""

from __future__ import annotations

from inspect import signature
from typing import Annotated, get_args

import typer

from harmonium import _checks
from harmonium.chains import Correction, Kernel
from harmonium.cli.completion import words

PANEL = "Chains"

Name = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=PANEL,
        help=f"What moves the chains: {', '.join(Kernel.registry)}; gibbs if not given.",
        autocompletion=words(Kernel.registry),
    ),
]
Size = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=PANEL, help="Step of the kernels that make steps, in units of a unit's variance."
    ),
]
Inner = Annotated[
    int | None, typer.Option(rich_help_panel=PANEL, help="Langevin steps of a sweep of gibbs-langevin.")
]
Corrected = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=PANEL,
        help=f"Of gibbs-langevin: {', '.join(get_args(Correction))}.",
        autocompletion=words(get_args(Correction)),
    ),
]


def kernel_from(
    name: str | None, step: float | None, inner: int | None, correction: str | None
) -> Kernel | None:
    """The kernel that the options describe; None where none was named.

    Raises:
        ValueError: an unknown name, or an option that the kernel does not take.
    """
    chosen = Kernel.registry[_checks.one_of(name or "gibbs", "kernel", Kernel.registry)]
    given = {"step": step, "inner": inner, "correction": correction}
    settings = {option: value for option, value in given.items() if value is not None}
    for option, value in settings.items():
        if option not in signature(chosen).parameters:
            raise ValueError(f"{option}: expected none with kernel {chosen.kind}, received {value}")
    return None if name is None else chosen(**settings)
