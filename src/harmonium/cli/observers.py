"""Callbacks of ``harmonium train``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from harmonium.cli.beginning import Beginning
from harmonium.cli.fantasies import Fantasies
from harmonium.cli.runs import EVENTS, Describe
from harmonium.training import Callback, callbacks

_PICTURED, _PICTURED_SWEEPS = 64, 100  # chains drawn for TensorBoard, every thousand updates


def observers(
    run_dir: Path,
    beginning: Beginning,
    metrics: Iterable[str] | None,
    *,
    early_stopping: int | None,
    tensorboard: bool,
    overwrite: bool,
    settings: Callable[[], str],
    seed: int,
) -> list[Callback]:
    """The callbacks of a run.

    Args:
        run_dir: its folder.
        beginning: its machine and data.
        metrics: names of what is evaluated, the one that early stopping follows first.
        early_stopping: evaluations without a better one after which the run ends; None: it does not.
        tensorboard: whether events are written.
        overwrite: whether what another run left in the folder goes.
        settings: makes the content of ``run.toml``.
        seed: of the samples that are drawn.
    """
    made: list[Callback] = [Describe(run_dir, overwrite, settings)]
    if early_stopping is not None and metrics is not None:
        made.append(callbacks.EarlyStopping(next(iter(metrics)), early_stopping))
    if tensorboard:
        drawn = Fantasies.of(beginning, _PICTURED, _PICTURED_SWEEPS, seed)
        made.append(callbacks.TensorBoard(run_dir / EVENTS, pictures=drawn and drawn.pictures))
    return made
