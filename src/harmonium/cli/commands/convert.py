"""``harmonium convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from harmonium._settings import From0, Setting
from harmonium._storage import is_machine_file
from harmonium.cli import options
from harmonium.cli.output import check_target
from harmonium.cli.runs import load_machine
from harmonium.exchange import FORMATS, SUFFIXES, Exchanged, read, write

_OWN = ".safetensors"

EXAMPLES = (
    "harmonium convert rbm.h5 machine.safetensors",
    "harmonium convert runs/digits machine.txt",
)


def convert(
    path: Annotated[Path, Setting(metavar="FILE", argument=True)],
    out: Annotated[Path, Setting(metavar="OUT", argument=True)],
    form: Annotated[str | None, Setting(FORMATS)] = None,
    update: From0 | None = None,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Convert a machine of another program, or for another program.

    Args:
        path: a file of rbms, RestrictedBoltzmannMachines.jl, adabmDCA, plmc or UAI, a machine's file,
            or a run.
        out: .safetensors for harmonium, .h5 for rbms, .hdf5 for RestrictedBoltzmannMachines.jl,
            .dat for adabmDCA, .uai, or .txt.
        form: what FILE is, where that cannot be told.
        update: of a file with several ages; the last if not given.
    """
    check_target(out, (_OWN, *SUFFIXES), overwrite)
    if path.is_dir() or (form is None and path.is_file() and is_machine_file(path)):
        if update is not None or form is not None:
            raise ValueError("update, form: expected with a file of another program")
        exchanged = Exchanged(load_machine(path, False)[0], None, "harmonium")
    else:
        exchanged = read(path, form=form or "auto", update=update)
    machine, target = exchanged.machine, SUFFIXES.get(out.suffix.lower())
    if target is None:
        machine.save(out, overwrite=overwrite)
    else:
        write(machine, out, form=target.form, chains=exchanged.chains, overwrite=overwrite)
    return {
        "file": out,
        "read": exchanged.form,
        "form": "harmonium" if target is None else target.form,
        "layers": [str(layer) for layer in machine.layers],
        "chains": 0 if exchanged.chains is None else len(exchanged.chains),
    }
