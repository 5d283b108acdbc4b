"""Training curves and pictures for TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harmonium import _checks
from harmonium.machine import BoltzmannMachine
from harmonium.training.callbacks.update import Update


class TensorBoard:
    """Writes learning rate, gradient norm, diagnostics, metrics and pictures as TensorBoard events.

    Args:
        log_dir: folder of the event files; created if missing.
        every: updates between two records, >= 1; metrics are written whenever they are evaluated.
        pictures: makes pictures of the machine by their names: arrays of bytes, (height, width) or
            (height, width, 3), such as ``harmonium.report.image_grid`` returns. None: no pictures.
        pictures_every: updates between two requests for them, >= 1; the end of the run always has them.

    Raises:
        ImportError: the ``tensorboard`` extra is not installed.
        ValueError: ``every`` or ``pictures_every`` below 1.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        every: int = 100,
        pictures: Callable[[BoltzmannMachine], Mapping[str, NDArray[np.uint8]]] | None = None,
        pictures_every: int = 1000,
    ) -> None:
        try:
            import torch.utils.tensorboard  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "TensorBoard: needs the tensorboard package; pip install 'harmonium[tensorboard]'"
            ) from error
        _checks.positive_int(every, "every")
        self.log_dir = os.fspath(log_dir)
        _checks.positive_int(pictures_every, "pictures_every")
        self.every = every
        self.pictures = pictures
        self.pictures_every = pictures_every
        self._writer: Any = None
        self._step = 0

    def begin(self, machine: BoltzmannMachine, metrics: Sequence[str]) -> None:
        """Start afresh, so that one object may serve several runs."""
        self._step = 0

    def wants(self, step: int, total: int) -> bool:
        """Returns whether there is something to write after so many updates, metrics aside."""
        draws = self.pictures is not None and step % self.pictures_every == 0
        return draws or step % self.every == 0 or step == total

    def __call__(self, update: Update) -> None:
        """Write one record."""
        if update.metrics or update.step % self.every == 0 or update.step == update.total:
            writer = self._open()
            writer.add_scalar("training/learning_rate", update.learning_rate, update.step)
            writer.add_scalar("training/gradient_norm", update.gradient_norm, update.step)
            for name, value in update.diagnostics.items():
                writer.add_scalar(f"diagnostics/{name}", value, update.step)
            for name, value in update.metrics.items():
                writer.add_scalar(f"metrics/{name}", value, update.step)
        if self.pictures is not None and update.step % self.pictures_every == 0:
            self._draw(update.machine, update.step)
        self._step = update.step

    def finish(self, machine: BoltzmannMachine) -> None:
        """Draw the machine that the run leaves."""
        if self.pictures is not None and self._step % self.pictures_every:
            self._draw(machine, self._step)

    def close(self) -> None:
        """Flush and close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that a checkpoint keeps: the last step with valid curves."""
        return {"step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint; events written after it are purged."""
        self._step = _checks.positive_int(state["step"], "TensorBoard: step", minimum=0)

    def _draw(self, machine: BoltzmannMachine, step: int) -> None:
        assert self.pictures is not None
        for name, picture in self.pictures(machine).items():
            formats = "HW" if picture.ndim == 2 else "HWC"
            self._open().add_image(f"pictures/{name}", picture, step, dataformats=formats)

    def _open(self) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(self.log_dir, purge_step=self._step + 1 if self._step else None)
        return self._writer
