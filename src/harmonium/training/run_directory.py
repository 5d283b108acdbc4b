"""The folder of a run and the files in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harmonium.machine.storage import replace_file
from harmonium.training.checkpoint import read_checkpoint, write_checkpoint
from harmonium.training.fingerprint import require_same
from harmonium.training.history import Record
from harmonium.training.schedules import Schedule
from harmonium.training.state import TrainingState


class RunDirectory:
    """A folder with ``config.json``, ``checkpoint.pt``, ``history.jsonl`` and, in the end, the machine.

    Args:
        path: the folder; created with its parents.
        settings: fingerprint of the run, by which it is recognised on resuming.
        resume: whether to continue the run that the folder may hold.
        overwrite: whether to remove the files of the run that it may hold; other files are left alone.

    Attributes:
        saved_step: updates made in the checkpoint on the disk, None where there is none.

    Raises:
        ValueError: it holds a run and neither was asked for, or it is no folder.
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: Mapping[str, Any], *, resume: bool, overwrite: bool
    ) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint.pt"
        self.saved_step: int | None = None
        self._settings = dict(settings)
        self._config = self.path / "config.json"
        self._history = self.path / "history.jsonl"
        self._machine = self.path / "machine.safetensors"
        self._averaged = self.path / "averaged.safetensors"
        files = (self._config, self.checkpoint, self._history, self._machine, self._averaged)
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"run_dir: expected a folder, {self.path} is a file")
        found = [file for file in files if file.exists()]
        # A configuration alone is of a run that ended before its first update: nothing to resume or to lose.
        if found not in ([], [self._config]) and not (resume or overwrite):
            raise ValueError(
                f"run_dir: {self.path} already holds a run ({found[0].name}); "
                "resume=True continues it, overwrite=True replaces it"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        for file in files:
            if overwrite:
                file.unlink(missing_ok=True)
            # A kill while a file was being written leaves an unfinished copy behind.
            for leftover in self.path.glob(f".{file.name}.*"):
                leftover.unlink()

    def restore(self, state: TrainingState, schedule: str | Schedule) -> None:
        """Load the checkpoint, where there is one, and drop the records after it.

        Raises:
            ValueError: other settings, or a damaged file.
        """
        if not self.checkpoint.exists():
            self._keep_records(0)
            return
        content = read_checkpoint(self.checkpoint)
        require_same(content["settings"], self._settings, content["step"], schedule)
        state.restore(content, self._keep_records(content["history"]["length"]))
        self.saved_step = state.step

    def write_config(self) -> None:
        """Write ``config.json``: the settings, and the versions of what runs them."""
        versions = {name: version(name) for name in ("harmonium", "torch")}
        text = json.dumps({**self._settings, "versions": versions}, indent=2)
        with self._writing(self._config):
            replace_file(self._config, f"{text}\n".encode())

    def append(self, record: Record) -> None:
        """Append one record to ``history.jsonl``."""
        with self._writing(self._history), open(self._history, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def save(self, state: TrainingState) -> None:
        """Write ``checkpoint.pt``.

        Raises:
            OSError: it could not be written; the last good one is kept.
            TypeError: a rule, optimiser or callback keeps what a checkpoint cannot.
        """
        if self._history.exists():
            # The checkpoint counts the records, so they must not reach the disk after it.
            with self._writing(self._history), open(self._history, "ab") as file:
                os.fsync(file.fileno())
        with self._writing(self.checkpoint):
            write_checkpoint(self.checkpoint, {"settings": self._settings, **state.content()})
        self.saved_step = state.step

    def save_machines(self, state: TrainingState) -> None:
        """Write ``machine.safetensors`` and, where there is an average, ``averaged.safetensors``."""
        with self._writing(self._machine):
            state.machine.save(self._machine, overwrite=True)
        if state.averaged is not None:
            with self._writing(self._averaged):
                state.averaged.save(self._averaged, overwrite=True)

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        """Say of a failure which file it was and what is left to resume from."""
        try:
            yield
        except OSError as error:
            kept = "no checkpoint had been written before"
            if self.saved_step is not None:
                kept = f"the last good checkpoint, of update {self.saved_step}, was kept"
            reason = error.strerror or str(error)
            raise OSError(
                error.errno, f"{path.name} could not be written ({reason}); {kept}", str(path)
            ) from error

    def _keep_records(self, length: int) -> list[Record]:
        """The first ``length`` records of ``history.jsonl``, which is cut to them."""
        lines = self._history.read_text(encoding="utf-8").splitlines() if self._history.exists() else []
        if len(lines) < length:
            raise ValueError(
                f"{self._history}: expected {length} records, as the checkpoint says, found {len(lines)}"
            )
        try:
            records: list[Record] = [json.loads(line) for line in lines[:length]]
        except ValueError as error:
            raise ValueError(f"{self._history}: damaged ({error})") from error
        if len(lines) > length:
            replace_file(self._history, "".join(line + "\n" for line in lines[:length]).encode())
        return records
