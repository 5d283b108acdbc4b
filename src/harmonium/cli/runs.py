"""Folders of runs: what the command line adds to them, and the machine that they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, final

import torch

from harmonium._storage import CHECKPOINT, MACHINE, is_machine_file, parsed, replace_file
from harmonium.cli.output import note
from harmonium.cli.rows_file import SUFFIXES
from harmonium.exchange import read, recognised
from harmonium.machine import BoltzmannMachine, load, rebuild
from harmonium.training import (
    AVERAGED,
    PREVIOUS,
    DamagedCheckpoint,
    Update,
    read_checkpoint,
    remove_leftovers,
)

DESCRIPTION, EVENTS, RUN_FILE = "machine.json", "tensorboard", "run.toml"


@final
class Describe:
    """A callback that puts ``machine.json`` and ``run.toml`` into the folder of a run that has begun.

    The first says how to build the machine and what encodes its data, which a checkpoint alone does not; the
    second how to repeat the run.

    Args:
        run_dir: Folder of the run.
        overwrite: whether it may hold another run.
        settings: Text of ``run.toml``.
    """

    def __init__(self, run_dir: Path, overwrite: bool, settings: str) -> None:
        self._run_dir, self._overwrite = run_dir, overwrite
        self._settings = settings
        self._written = False

    def __call__(self, update: Update) -> None:
        """Writes the files at the first update, when no other process has the folder.

        Events of the run that is replaced go, or TensorBoard would draw both.
        """
        if not self._written:
            self.write(update.machine)
            self._written = True

    def write(self, machine: BoltzmannMachine) -> None:
        """Writes the files."""
        if self._overwrite:
            for events in (self._run_dir / EVENTS).glob("events.out.tfevents.*"):
                events.unlink()
        description = json.dumps(describe(machine), indent=2) + "\n"
        for name, text in ((DESCRIPTION, description), (RUN_FILE, self._settings)):
            remove_leftovers(self._run_dir / name)
            replace_file(self._run_dir / name, text.encode("utf-8", "surrogateescape"))


def describe(machine: BoltzmannMachine) -> dict[str, Any]:
    """Layers and metadata of a machine, as they come back from JSON."""
    content = {**machine.config(), "metadata": machine.metadata}
    description: dict[str, Any] = json.loads(json.dumps(content))
    return description


def require_same_encoding(run_dir: Path, machine: BoltzmannMachine) -> None:
    """Refuses to resume a run whose data were encoded otherwise.

    Raises:
        ValueError: they were, or ``machine.json`` is damaged.
    """
    path = run_dir / DESCRIPTION
    if not path.exists():
        return
    stored, made = _read(path)["metadata"], describe(machine)["metadata"]
    for part in ("encoder", "label", "objective"):
        if stored.get(part) != made.get(part):
            raise ValueError(
                f"DATA: expected the encoding of the run to resume, {part} {stored.get(part)}, received "
                f"{machine.metadata.get(part)}; give the same DATA and the same of --visible, --binarise, "
                "--kinds, --unknown, --label and --objective"
            )


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
    if not checkpoint.exists() and not (run / PREVIOUS).exists():
        raise FileNotFoundError(f"RUN: {run} holds neither {path.name} nor {CHECKPOINT}")
    if not (run / DESCRIPTION).exists():
        raise FileNotFoundError(
            f"RUN: {run} holds an unfinished run without {DESCRIPTION}; harmonium train --resume ends it"
        )
    content, checkpoint = _last_good(run)
    tensors = content.get("averaged" if averaged else "machine", {})
    if tensors is None:
        raise FileNotFoundError(f"averaged: the run {run} was trained without --averaging")
    try:
        machine = rebuild(_read(run / DESCRIPTION), tensors, device)
    except ValueError as error:
        raise ValueError(f"RUN: {checkpoint} with {run / DESCRIPTION} makes no machine, {error}") from error
    note(f"{run}: the run is unfinished, this is its checkpoint after {content.get('step')} updates")
    return machine, checkpoint


def _last_good(run: Path) -> tuple[dict[str, Any], Path]:
    """Reads the last checkpoint of a run; the one before where that is missing or damaged."""
    checkpoint, previous = run / CHECKPOINT, run / PREVIOUS
    try:
        return read_checkpoint(checkpoint), checkpoint
    except (DamagedCheckpoint, FileNotFoundError) as error:
        if not previous.exists():
            raise
        content = read_checkpoint(previous)
        note(f"warning: {error}; {previous} is used")
        return content, previous


def _read(path: Path) -> dict[str, Any]:
    """The mapping with ``layers`` and ``metadata`` in a file."""
    try:
        description = parsed(path.read_text(encoding="utf-8"))
        if not isinstance(description, dict) or not {"layers", "metadata"} <= set(description):
            raise ValueError("damaged, expected layers and metadata")
        if not isinstance(description["metadata"], dict):
            received = type(description["metadata"]).__name__
            raise ValueError(f"damaged, expected a mapping of metadata, received {received}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return description
