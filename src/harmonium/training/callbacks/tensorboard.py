"""Training curves for TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from harmonium import _checks
from harmonium.machine import BoltzmannMachine
from harmonium.training.callbacks.update import Update


class TensorBoard:
    """Writes learning rate, gradient norm, diagnostics and metrics as TensorBoard events.

    Args:
        log_dir: folder of the event files; created if missing.
        every: updates between two records, >= 1; metrics are written whenever they are evaluated.

    Raises:
        ImportError: the ``tensorboard`` extra is not installed.
        ValueError: ``every`` below 1.
    """

    def __init__(self, log_dir: str | os.PathLike[str], every: int = 100) -> None:
        try:
            import torch.utils.tensorboard  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "TensorBoard: needs the tensorboard package; pip install 'harmonium[tensorboard]'"
            ) from error
        _checks.positive_int(every, "every")
        self.log_dir = os.fspath(log_dir)
        self.every = every
        self._writer: Any = None
        self._step = 0

    def begin(self, machine: BoltzmannMachine, metrics: Sequence[str]) -> None:
        """Start afresh, so that one object may serve several runs."""
        self._step = 0

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
        self._step = update.step

    def close(self) -> None:
        """Flush and close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: how far the curves are valid."""
        return {"step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint; events written after it are purged."""
        self._step = _checks.positive_int(state["step"], "TensorBoard: step", minimum=0)

    def _open(self) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(self.log_dir, purge_step=self._step + 1 if self._step else None)
        return self._writer
