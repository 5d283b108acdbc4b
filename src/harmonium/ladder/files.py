"""Ladders in files: the rungs that a training has kept, and the way from them to a machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from harmonium import _checks, _random
from harmonium._storage import FORMAT, check_free, pack, replace_file, unpack
from harmonium.ladder.kernel import Ladder
from harmonium.ladder.rungs import as_rung, laws_of, require_bottom
from harmonium.ladder.spacing import Pilots
from harmonium.machine import BoltzmannMachine, Hamiltonian

_FORM, _VERSION = f"{FORMAT} ladder", 1


def save_ladder(path: str | os.PathLike[str], ladder: Ladder, *, overwrite: bool = False) -> None:
    """Writes the rungs of a ladder, with their ages and its settings, as a safetensors file.

    Args:
        path: the file.
        ladder: one with rungs.
        overwrite: whether to replace a file that is there.

    Raises:
        ValueError: a ladder without rungs.
        FileExistsError: the file is there.
    """
    path = Path(path)
    if ladder.rungs is None:
        raise ValueError("ladder: expected one with rungs, which nothing but a machine makes, received none")
    check_free(path, overwrite)
    tensors = {str(i): torch.stack(each).cpu() for i, each in enumerate(zip(*ladder.rungs, strict=True))}
    settings = {
        "sweeps": ladder.sweeps,
        "acceptance": ladder.acceptance,
        "max_rungs": ladder.max_rungs,
        "max_bytes": ladder.max_bytes,
        "ages": None if ladder.ages is None else list(ladder.ages),
    }
    replace_file(path, pack(tensors, {"format": _FORM, "version": _VERSION, "settings": settings}))


def load_ladder(path: str | os.PathLike[str], machine: BoltzmannMachine) -> Ladder:
    """Reads the ladder of a machine, such as ``ladder.safetensors`` of a run; its kernel is Gibbs.

    Args:
        path: the file.
        machine: at its top, or another of the same graph.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged file, or rungs of another graph than the machine's.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path: {path} is not a file")
    try:
        tensors, header = unpack(path, _FORM, _VERSION)
        stacked = [tensors[str(i)] for i in range(len(tensors))]
        rungs = [[x.clone() for x in each] for each in zip(*stacked, strict=True)]
        settings: dict[str, Any] = header["settings"]
        Ladder(rungs, **settings)
    except Exception as error:  # whatever a damaged file leads to
        raise ValueError(f"path: {path} is damaged, or not a ladder of harmonium ({error})") from error
    try:
        require_bottom(machine.hamiltonian(), rungs)
    except ValueError as error:
        raise ValueError(f"path: {path} has the ladder of another machine, {error}") from error
    law = machine.hamiltonian()
    return Ladder([[x.to(law.device, law.dtype) for x in rung] for rung in rungs], **settings)


def laws_along(machine: BoltzmannMachine, ladder: Ladder) -> list[Hamiltonian]:
    """Returns the laws of all machines of a ladder from the bottom, the last that of the machine.

    Raises:
        ValueError: rungs of another graph, or none.
    """
    law = machine.hamiltonian()
    require_bottom(law, ladder.rungs or ())
    return laws_of(law, ladder.rungs or ())


@torch.no_grad()
def lead_to(ladder: Ladder, machine: BoltzmannMachine, *, seed: int | torch.Generator = 0) -> Ladder:
    """Returns a ladder that goes on from its last rung to a machine, with more rungs where exchanges fail.

    They lie on the straight way in natural parameters, and have the age of the last rung.

    Args:
        ladder: one with rungs, such as those of another training, or of averages.
        machine: its new top, of the same graph.
        seed: an int or a generator.

    Raises:
        ValueError: rungs of another graph, or more than the ladder allows.
    """
    _checks.instance(ladder, "ladder", Ladder, "a ladder.Ladder")
    law, generator = machine.hamiltonian(), _random.as_generator(seed, machine.device)
    require_bottom(law, ladder.rungs or ())
    assert ladder.rungs is not None
    most = ladder.most(as_rung(law)) - len(ladder.rungs)
    pilots = Pilots.climb(law, ladder.rungs, generator)
    added, _, _ = pilots.reach(law, ladder.acceptance, most, generator)
    return ladder.with_rungs(
        [*ladder.rungs, *added],
        None if ladder.ages is None else [*ladder.ages, *[ladder.ages[-1]] * len(added)],
    )
