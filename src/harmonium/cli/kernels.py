"""Kernels by name, for the commands that run chains."""

from __future__ import annotations

from typing import Annotated, get_args

import typer

from harmonium import _checks
from harmonium.chains import Gibbs, GibbsLangevin, Kernel, Langevin, Metropolis
from harmonium.chains.gibbs_langevin import Correction
from harmonium.cli.completion import words

PANEL = "Chains"
KERNELS = ("gibbs", "metropolis", "langevin", "gibbs-langevin")

Name = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=PANEL,
        help=f"What moves the chains: {', '.join(KERNELS)}; gibbs if not given.",
        autocompletion=words(KERNELS),
    ),
]
Size = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=PANEL, help="Step of every other kernel than gibbs, in units of a unit's variance."
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
    chosen = _checks.one_of(name or "gibbs", "kernel", KERNELS)
    takes = {"gibbs": (), "gibbs-langevin": ("step", "inner", "correction")}.get(chosen, ("step",))
    given = {"step": step, "inner": inner, "correction": correction}
    for option, value in given.items():
        if value is not None and option not in takes:
            raise ValueError(f"{option}: expected none with kernel {chosen}, received {value}")
    settings = {option: value for option, value in given.items() if value is not None}
    kinds: dict[str, type[Kernel]] = {
        "gibbs": Gibbs,
        "metropolis": Metropolis,
        "langevin": Langevin,
        "gibbs-langevin": GibbsLangevin,
    }
    return None if name is None else kinds[chosen](**settings)
