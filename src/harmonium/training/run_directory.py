"""The folder of a run and the files in it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from harmonium import _checks, backends
from harmonium._storage import (
    CHECKPOINT,
    LADDER,
    MACHINE,
    replace_file,
)
from harmonium.ladder import Ladder, save_ladder
from harmonium.machine import BoltzmannMachine
from harmonium.training.checkpoint import DamagedCheckpoint, read_checkpoint, write_checkpoint
from harmonium.training.history import Record, read_lines, write_line
from harmonium.training.lock import Lock
from harmonium.training.run_toml import RUN_FILE, read_run_file, tables
from harmonium.training.schedules import Schedule
from harmonium.training.state import TrainingState, require_same

PREVIOUS = "checkpoint-previous.safetensors"
AVERAGED = "averaged.safetensors"
EVENTS = "tensorboard"
_HISTORY, _LOCK = "history.jsonl", "lock.json"
_FILES = (RUN_FILE, CHECKPOINT, PREVIOUS, _HISTORY, MACHINE, AVERAGED, LADDER)


class RunDirectory:
    """A folder with ``run.toml``, two checkpoints, ``history.jsonl`` and, in the end, the machine.

    ``lock.json`` is there while a process trains in it. The last checkpoint and the one before are kept, so
    that damage to one does not lose the run; the older is renamed before the newer comes into its place, and
    at every moment one of them is whole.

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
        self._previous = self.path / PREVIOUS
        self._next = self.path / "checkpoint-next.safetensors"
        self._settings, self._text = dict(settings), text
        self._config = self.path / RUN_FILE
        self._history = self.path / _HISTORY
        self._machine = self.path / MACHINE
        self._averaged = self.path / AVERAGED
        self._ladder = self.path / LADDER
        self._replaced: list[Path] = []  # files of another run, until this one writes
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"run_dir: expected a folder, {self.path} is a file")
        self.path.mkdir(parents=True, exist_ok=True)
        for file in (self.path / name for name in (*_FILES, _LOCK)):
            if file.is_symlink():
                raise ValueError(
                    f"run_dir: expected files of a run's own, {file} is a symbolic link, whose target a run "
                    "would change; remove it, or choose another folder"
                )
        self._lock = Lock(self.path / _LOCK)
        try:
            self._begin(resume, overwrite)
        except BaseException:
            self.close()
            raise

    def _begin(self, resume: bool, overwrite: bool) -> None:
        files = [self.path / name for name in _FILES]
        alone = [file for file in files if file.exists()] == [self._config]
        if alone and not _is_run_file(self._config):
            raise ValueError(
                f"run_dir: expected a folder of a run's own, {self._config} is a file of something else; "
                "choose another folder"
            )
        if not (resume or overwrite):
            refuse_run(self.path)
        events = (self.path / EVENTS).glob("events.out.tfevents.*")  # TensorBoard would draw those of both
        self._replaced = [file for file in (*files, *events) if overwrite and file.exists()]
        self._next.unlink(missing_ok=True)
        for file in (*files, self._next):
            remove_leftovers(file)

    def close(self) -> None:
        """Lets other processes train here."""
        self._lock.release()

    def restore(self, state: TrainingState, schedule: str | Schedule) -> None:
        """Loads the last good checkpoint, where there is one, and drops the records after it.

        Raises:
            ValueError: other settings, or no good checkpoint among those that are there.
        """
        damages = []
        for path in (self.checkpoint, self._previous):
            if not path.exists():
                continue
            try:
                self._restore(path, state, schedule)
            except DamagedCheckpoint as error:
                damages.append(error)
                continue
            if path == self._previous:
                # Else the next checkpoint would push the damaged one into the place of the good one.
                os.replace(path, self.checkpoint)
            if damages:
                _checks.warn(
                    f"{damages[0]}; the run goes on from the checkpoint before, of update {state.step}",
                )
            self.saved_step = state.step
            break
        else:
            if damages:
                there = self._machine.exists()
                finished = f", {self._machine} still holds the trained machine" if there else ""
                raise ValueError(
                    f"{'; '.join(map(str, damages))}. There is no other checkpoint to resume from{finished}; "
                    "overwrite begins anew"
                ) from damages[0]
        self._write_history(state)

    def _restore(self, path: Path, state: TrainingState, schedule: str | Schedule) -> None:
        content = read_checkpoint(path)
        require_same(content["settings"], self._settings, content["step"], schedule)
        state.require_callbacks(content)
        records = self._read_history(content["history"]["length"], content["step"])
        try:
            state.load_state_dict(content, records)
        except Exception as error:  # a callback may fail in any way on a damaged state
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise DamagedCheckpoint(f"{path}: damaged ({reason})") from error
        if content["threads"] != torch.get_num_threads():
            _checks.warn(
                f"the checkpoint was made with {content['threads']} torch threads and this process has "
                f"{torch.get_num_threads()}: the run goes on, but not bit for bit",
            )
        if content["products"] is not None and content["products"] != str(backends.get_backend()):
            _checks.warn(
                f"the checkpoint was made with products by {content['products']} and this process multiplies "
                f"by {backends.get_backend()} ({backends.VARIABLE}): the run goes on, but not bit for bit",
            )

    def write_config(self) -> None:
        """Writes ``run.toml``; in the place of another run once that is removed."""
        if not self._replaced:
            with self._name_failures(self._config):
                content = f"{self._text}{tables(self._settings)}"
                replace_file(self._config, content.encode("utf-8", "surrogateescape"))

    def append(self, state: TrainingState) -> None:
        """Appends the last record of a run to ``history.jsonl``; the next checkpoint writes it whole."""
        self._replace()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        with self._name_failures(self._history), open(os.open(self._history, flags, 0o666), "ab") as file:
            file.write(write_line(state.history.records[-1]))

    def save(self, state: TrainingState, content: Mapping[str, Any]) -> None:
        """Writes ``checkpoint.safetensors``, and keeps the one before as ``checkpoint-previous.safetensors``.

        Raises:
            OSError: it could not be written; the last good one is kept.
            TypeError: a rule, optimiser or callback keeps what a checkpoint cannot.
        """
        self._replace()
        if state.history.records:
            # The checkpoint counts the records, so they must not reach the disk after it.
            self._write_history(state)
        with self._name_failures(self.checkpoint):
            write_checkpoint(self._next, {"settings": self._settings, **content})
            if self.checkpoint.exists():
                os.replace(self.checkpoint, self._previous)
            os.replace(self._next, self.checkpoint)
        self.saved_step = state.step

    def save_machines(
        self, machine: BoltzmannMachine, averaged: BoltzmannMachine | None, ladder: Ladder | None
    ) -> None:
        """Writes ``machine.safetensors``, and the average and the ladder where there are such."""
        with self._name_failures(self._machine):
            machine.save(self._machine, overwrite=True)
        if averaged is not None:
            with self._name_failures(self._averaged):
                averaged.save(self._averaged, overwrite=True)
        if ladder is not None:
            with self._name_failures(self._ladder):
                save_ladder(self._ladder, ladder, overwrite=True)

    def _replace(self) -> None:
        """Removes the run that this one replaces, and writes this one's settings."""
        if self._replaced:
            for file in self._replaced:
                with self._name_failures(file):
                    file.unlink(missing_ok=True)
            self._replaced = []
            self.write_config()

    @contextmanager
    def _name_failures(self, path: Path) -> Iterator[None]:
        """Names, in a failure, the file and what is left to resume from."""
        kept = "no checkpoint had been written before"
        if self.saved_step is not None:
            kept = f"the last good checkpoint, of update {self.saved_step}, was kept"
        try:
            if not self._lock.held():
                kept = kept.replace("was kept", "is where its files are now, if they are anywhere")
                raise OSError(
                    errno.ESTALE, f"{self.path} or its lock.json was removed, renamed or replaced meanwhile"
                )
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(
                error.errno, f"{path.name} could not be written ({reason}); {kept}", str(path)
            ) from error

    def _read_history(self, length: int, step: int) -> list[Record]:
        """Reads the first ``length`` records of ``history.jsonl``, of a run that made ``step`` updates."""
        lines = self._history.read_bytes().splitlines(keepends=True) if self._history.exists() else []
        whole = [line for line in lines[:length] if line.endswith(b"\n")]
        if len(whole) < length:
            raise DamagedCheckpoint(
                f"{self._history}: expected {length} records, as the checkpoint says, found {len(whole)}"
            )
        try:
            return read_lines(whole, step)
        except ValueError as error:
            raise DamagedCheckpoint(f"{self._history}: damaged ({error})") from error

    def _write_history(self, state: TrainingState) -> None:
        content = b"".join(map(write_line, state.history.records))
        if content or self._history.exists():
            with self._name_failures(self._history):
                replace_file(self._history, content)


def _is_run_file(path: Path) -> bool:
    """Returns whether a file is the ``run.toml`` of a run."""
    try:
        return "harmonium" in read_run_file(path)["made_with"]
    except (OSError, ValueError, TypeError, KeyError):
        return False


def refuse_run(folder: Path, *others: str) -> None:
    """Refuses a folder that holds files of a run, or ``others``.

    Raises:
        ValueError: it does.
    """
    held = [name for name in (*_FILES, *others) if (folder / name).exists()]
    # A configuration alone is of a run that ended before its first update: nothing to resume or to lose.
    if held not in ([], [RUN_FILE]):
        raise ValueError(
            f"run_dir: {folder} already holds a run ({held[0]}); resume continues it, overwrite replaces it"
        )


def remove_leftovers(path: Path) -> None:
    """Removes what a kill in the middle of writing a file has left beside it."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        if not leftover.is_dir():
            leftover.unlink()
