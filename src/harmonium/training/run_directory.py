"""The folder of a run and the files in it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harmonium import _checks, backends
from harmonium._storage import CHECKPOINT, LADDER, MACHINE, replace_file
from harmonium.ladder import Ladder, save_ladder
from harmonium.machine import BoltzmannMachine
from harmonium.training.checkpoint import PREVIOUS, DamagedCheckpoint, read_last, write_checkpoint
from harmonium.training.history import write_lines
from harmonium.training.lock import Lock
from harmonium.training.run_toml import RUN_FILE, tables
from harmonium.training.schedules import Schedule
from harmonium.training.state import TrainingState, require_same

AVERAGED = "averaged.safetensors"
_HISTORY = "history.jsonl"
_FILES = (RUN_FILE, CHECKPOINT, PREVIOUS, _HISTORY, MACHINE, AVERAGED, LADDER)


class RunDirectory:
    """A folder with ``run.toml``, two checkpoints, ``history.jsonl`` and, in the end, the machine.

    ``lock.json`` is there while a process trains in it. The last checkpoint and the one before are kept, so
    that damage to one does not lose the run; at every moment one of them is whole. Checkpoints hold all that
    a run goes on from: ``history.jsonl`` is written for others to read.

    Args:
        path: the folder; created with its parents.
        settings: fingerprint of the run, by which it is recognised on resuming.
        text: its settings as ``run.toml`` has them.
        resume: whether to continue the run that the folder may hold.
        overwrite: whether to remove the files of the run that it may hold, once this one has something to
            write: what is refused at its first update removes nothing. Other files are left alone.

    Attributes:
        saved_step: updates made in the checkpoint on the disk, None where there is none.

    Raises:
        ValueError: it holds a run and neither was asked for, another process trains in it, or it is no
            folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Mapping[str, Any],
        text: str,
        *,
        resume: bool,
        overwrite: bool,
    ) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / CHECKPOINT
        self.saved_step: int | None = None
        self._settings, self._text = dict(settings), text
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"run_dir: expected a folder, {self.path} is a file")
        self.path.mkdir(parents=True, exist_ok=True)
        lock, files = self.path / "lock.json", [self.path / name for name in _FILES]
        for file in (*files, lock):
            if file.is_symlink():
                raise ValueError(
                    f"run_dir: expected files of a run's own, {file} is a symbolic link, whose target a run "
                    "would change; remove it, or choose another folder"
                )
        self._lock = Lock(lock)
        try:
            refuse_run(self.path, resume or overwrite)
            for leftover in (x for file in files for x in self.path.glob(f".{file.name}.*") if x.is_file()):
                leftover.unlink()  # of a kill in the middle of writing
        except BaseException:
            self.close()
            raise
        # Files of another run, until this one writes.
        self._replaced = [file for file in files if overwrite and file.exists()]

    def close(self) -> None:
        """Lets other processes train here."""
        self._lock.release()

    def restore(self, state: TrainingState, schedule: str | Schedule) -> None:
        """Loads the last good checkpoint, where there is one, and drops the records after it.

        Raises:
            ValueError: other settings, or no good checkpoint among those that are there.
        """
        content, path, damage = read_last(self.path)
        if content is not None:
            require_same(content["settings"], self._settings, content["step"], schedule)
            try:
                state.load_state_dict(content)
            except Exception as error:  # a callback may fail in any way on a damaged state
                reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
                raise DamagedCheckpoint(f"{path}: damaged ({reason}); overwrite begins again") from error
            if damage:
                _checks.warn(f"{damage}; the run goes on from the checkpoint before, of update {state.step}")
            if path != self.checkpoint:
                # Else the next checkpoint would push the damaged one into the place of the good one.
                os.replace(path, self.checkpoint)
            if content["products"] is not None and content["products"] != str(backends.get_backend()):
                _checks.warn(
                    f"the checkpoint was made with products by {content['products']} and this process "
                    f"multiplies by {backends.get_backend()} ({backends.VARIABLE}): the run goes on, but not "
                    "bit for bit",
                )
            self.saved_step = state.step
        if state.history.records or (self.path / _HISTORY).exists():
            with self._writing(_HISTORY) as file:
                replace_file(file, write_lines(state.history.records))

    def write_config(self) -> None:
        """Writes ``run.toml``; in the place of another run once that is removed."""
        if not self._replaced:
            with self._writing(RUN_FILE) as file:
                content = f"{self._text}{tables(self._settings)}"
                replace_file(file, content.encode("utf-8", "surrogateescape"))

    def append(self, state: TrainingState) -> None:
        """Appends the last record of a run to ``history.jsonl``, or all to a new one."""
        self._replace()
        new = not (self.path / _HISTORY).exists()
        with self._writing(_HISTORY) as path, path.open("ab") as file:
            file.write(write_lines(state.history.records if new else state.history.records[-1:]))

    def save(self, content: Mapping[str, Any]) -> None:
        """Writes ``checkpoint.safetensors``, and keeps the one before as ``checkpoint-previous.safetensors``.

        Raises:
            OSError: it could not be written; the last good one is kept.
            TypeError: a rule, optimiser or callback keeps what a checkpoint cannot.
        """
        self._replace()
        with self._writing(CHECKPOINT) as file:
            write_checkpoint(file, {"settings": self._settings, **content}, self.path / PREVIOUS)
        self.saved_step = content["step"]

    def save_machines(
        self, machine: BoltzmannMachine, averaged: BoltzmannMachine | None, ladder: Ladder | None
    ) -> None:
        """Writes ``machine.safetensors``, and the average and the ladder where there are such."""
        with self._writing(MACHINE) as file:
            machine.save(file, overwrite=True)
        if averaged is not None:
            with self._writing(AVERAGED) as file:
                averaged.save(file, overwrite=True)
        if ladder is not None:
            with self._writing(LADDER) as file:
                save_ladder(file, ladder, overwrite=True)

    def _replace(self) -> None:
        """Removes the run that this one replaces, and writes this one's settings."""
        if self._replaced:
            for file in self._replaced:
                with self._writing(file.name):
                    file.unlink(missing_ok=True)
            self._replaced = []
            self.write_config()

    @contextmanager
    def _writing(self, name: str) -> Iterator[Path]:
        """Yields the path of a file to write; a failure names the file and what is left to resume from."""
        note = "no checkpoint had been written before"
        if self.saved_step is not None:
            note = f"the last good checkpoint, of update {self.saved_step}, was kept"
        try:
            if not self._lock.held():
                note = note.replace("was kept", "is where its files are now, if they are anywhere")
                raise OSError(
                    errno.ESTALE, f"{self.path} or its lock.json was removed, renamed or replaced meanwhile"
                )
            yield self.path / name
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(
                error.errno, f"{name} could not be written ({reason}); {note}", str(self.path / name)
            ) from error


def refuse_run(folder: Path, expected: bool = False) -> None:
    """Refuses a folder with another's ``run.toml`` or, where none is expected, with files of a run.

    Raises:
        ValueError: it does.
    """
    held = [name for name in _FILES if (folder / name).exists()]
    if held == [RUN_FILE] and b"[made_with]" in (folder / RUN_FILE).read_bytes():
        return  # of a run that ended before its first update: nothing to resume or to lose
    if held == [RUN_FILE]:
        raise ValueError(
            f"run_dir: expected a folder of a run's own, {folder / RUN_FILE} is a file of something else; "
            "choose another folder"
        )
    if held and not expected:
        raise ValueError(
            f"run_dir: {folder} already holds a run ({held[0]}); resume continues it, overwrite replaces it"
        )
