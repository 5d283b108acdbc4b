"""Training anew at a lower learning rate where it diverges: the one way of every door."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harmonium import _checks
from harmonium._storage import CHECKPOINT
from harmonium.machine import BoltzmannMachine
from harmonium.training.checkpoint import read_checkpoint
from harmonium.training.divergence import TrainingDiverged
from harmonium.training.run_directory import PREVIOUS
from harmonium.training.state import TrainingRun

_SLOWER, _TIMES = 1 / 3, 4  # of the rate, so many times: 1/81 is as good as none


def train_slower(
    attempt: Callable[..., TrainingRun],
    machine: BoltzmannMachine,
    *,
    advice: str = "",
    run_dir: Path | None = None,
    learning_rate: float = 1.0,
    resume: bool = False,
    overwrite: bool = False,
) -> TrainingRun:
    """Trains, and where that diverges anew, from the same machine, at a third of the learning rate.

    At most five attempts are made. In a folder each replaces the one before. A run that is resumed goes on
    with the attempt of its checkpoint, which is known by its learning rate.

    Args:
        attempt: Trains by ``harmonium.train`` at a factor times the learning rate, ``(factor) -> run``, or
            ``(factor, resume=..., overwrite=...) -> run`` with a folder. Callbacks have to be new ones.
        machine: The machine that it trains, as it is before the first update.
        advice: added to the warning.
        run_dir: Folder of the run; None: there is none.
        learning_rate: Rate of the first attempt, where a folder is given.
        resume: whether to go on from the checkpoint there.
        overwrite: whether to replace the run there.

    Warns:
        RuntimeWarning: an attempt diverged and another one follows.

    Raises:
        TrainingDiverged: the last attempt diverged too.
    """
    begun = {name: tensor.clone() for name, tensor in machine.state_dict().items()}
    factors, first = [_SLOWER**number for number in range(_TIMES + 1)], 0
    if run_dir is not None and resume:
        saved = _saved_rate(run_dir)
        first = max([k for k, factor in enumerate(factors) if learning_rate * factor == saved], default=0)
    for number in range(first, _TIMES + 1):
        again = number > first
        folder = {} if run_dir is None else {"resume": resume and not again, "overwrite": overwrite or again}
        try:
            return attempt(factors[number], **folder)
        except TrainingDiverged as error:
            if number == _TIMES:
                raise
            _checks.warn(
                f"training diverged after {error.step} updates at a learning rate of "
                f"{error.learning_rate:.4g} and begins anew at a third of it; a lower learning_rate needs no "
                f"second attempt{advice}",
                RuntimeWarning,
            )
        machine.load_state_dict(begun)
    raise AssertionError("the last attempt returns or raises")


def _saved_rate(run_dir: Path) -> Any:
    """Returns the learning rate of the run whose checkpoint a folder holds; None: there is no good one."""
    for name in (CHECKPOINT, PREVIOUS):
        try:
            return read_checkpoint(run_dir / name)["settings"].get("learning_rate")
        except (OSError, ValueError):
            continue
    return None
