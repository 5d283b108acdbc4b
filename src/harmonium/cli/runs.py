"""Folders of runs: the machine that they hold."""

from __future__ import annotations

from pathlib import Path

import torch

from harmonium._storage import CHECKPOINT, MACHINE, is_machine_file
from harmonium.cli.output import note
from harmonium.cli.rows_file import SUFFIXES
from harmonium.machine import BoltzmannMachine, load, rebuild
from harmonium.training import AVERAGED, read_last


def load_machine(
    run: Path, averaged: bool, device: torch.device | None = None, evidence: Path | None = None
) -> tuple[BoltzmannMachine, Path]:
    """The machine of a run and the file that it came from.

    An unfinished run gives the machine of its checkpoint.

    Args:
        run: the folder of a run, a machine file, or a file of another program.
        averaged: whether to take the averaged parameters of a run.
        device: where to put the machine; None: the CPU.
        evidence: observed variables of a file of UAI.

    Raises:
        FileNotFoundError: no such run, or it holds no such machine.
        ValueError: a damaged file, or ``averaged`` with a file.
    """
    device = device or torch.device("cpu")
    if not run.exists():
        raise FileNotFoundError(f"RUN: there is no file or folder {run}")
    if evidence is not None and (run.is_dir() or is_machine_file(run)):
        raise ValueError(f"evidence: expected beside a file of UAI, received beside {run}")
    if run.is_file():
        if averaged:
            raise ValueError(f"averaged: expected with a run's folder, received the file {run}")
        if is_machine_file(run):
            return load(run, device=device), run
        from harmonium.exchange import read, recognised  # all its formats, which few commands need

        if run.suffix.lower() in SUFFIXES and not recognised(run):
            raise ValueError(
                f"RUN: expected a run's folder, a .safetensors file or one of another program, received "
                f"{run}; DATA come after it"
            )
        return read(run, evidence=evidence).machine.to(device), run
    path, checkpoint = run / (AVERAGED if averaged else MACHINE), run / CHECKPOINT
    if path.exists():
        if checkpoint.exists() and checkpoint.stat().st_mtime > path.stat().st_mtime:
            note(f"warning: {checkpoint} is newer than {path}, which is used; --resume would finish that run")
        return load(path, device=device), path
    content, checkpoint, damage = read_last(run)
    if content is None:
        raise FileNotFoundError(f"RUN: {run} holds neither {path.name} nor {CHECKPOINT}")
    if damage:
        note(f"warning: {damage}; {checkpoint} is used")
    tensors = content["averaged" if averaged else "machine"]
    if tensors is None:
        raise FileNotFoundError(f"averaged: the run {run} was trained without --averaging")
    try:
        machine = rebuild(content["description"], tensors, device)
    except ValueError as error:
        raise ValueError(f"RUN: {checkpoint} makes no machine, {error}") from error
    note(f"{run}: the run is unfinished, this is its checkpoint after {content.get('step')} updates")
    return machine, checkpoint
