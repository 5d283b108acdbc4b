"""``harmonium train --pretrain``: pairs of neighbouring layers are trained before all layers together."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from torch import Tensor

from harmonium._storage import CHECKPOINT
from harmonium.cli import options, runs
from harmonium.cli.output import Unfinished, note
from harmonium.cli.settings import TrainSettings
from harmonium.data import Rows
from harmonium.training import PREVIOUS, Recipe, RunDirectory, as_root, stream_seed

FOLDER = "pretraining"
"""The folder of the pairs' runs in that of the run."""


def check_pretraining(settings: TrainSettings, recipe: Recipe) -> None:
    """Refuses pretraining of a machine that has no pairs of layers, and by several processes.

    Raises:
        ValueError: naming what stands against it.
    """
    if settings.pretrain is None:
        return
    if not recipe.machine.graph.is_chain:
        raise ValueError(
            "pretrain: expected none for a machine with several visible layers, as tables and --label have, "
            f"received {settings.pretrain}"
        )
    if options.count_processes() > 1:
        raise ValueError(
            f"pretrain: expected none with several processes, received {settings.pretrain}; pretrain in one, "
            "such as with --updates 1, and go on from its run by --from"
        )


def pretrain(
    recipe: Recipe,
    rows: Rows,
    weights: Tensor | None,
    settings: TrainSettings,
    describe: runs.Describe,
    device: torch.device,
    again: str,
    *,
    resume: bool,
    overwrite: bool,
) -> None:
    """Pretrains a new machine as asked for; does nothing where its run has a checkpoint to resume from.

    Every pair has a run of its own, from whose checkpoint ``resume`` goes on. So the machine is the same, bit
    for bit, whether pretraining was interrupted or not.

    Args:
        recipe: Recipe of the machine, which is filled in place.
        rows: visible states.
        weights: row weights, (rows,); None means uniform.
        settings: Settings of the run, all decided.
        describe: what writes ``run.toml`` at the first update.
        device: Device to train on.
        again: what is said of how the run goes on after an interruption.
        resume: whether to go on where the folder holds runs of pairs.
        overwrite: whether to remove the run that the folder holds.

    Raises:
        Unfinished: a signal came, and a checkpoint was written.
    """
    run_dir = Path(str(settings.run_dir))
    if settings.pretrain is None or (resume and any((run_dir / x).exists() for x in (CHECKPOINT, PREVIOUS))):
        return
    if overwrite:  # else a later --resume would take the checkpoint of the run that is replaced
        RunDirectory(run_dir, {}, resume=False, overwrite=True).clear()
        for folder in (run_dir / FOLDER).glob("pair-*"):
            shutil.rmtree(folder)
    done = recipe.pretrain_(
        rows,
        weights,
        settings.pretrain,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        schedule=settings.schedule,
        clip_norm=settings.clip_norm,
        seed=stream_seed(as_root(settings.seed), "pretraining"),
        device=device,
        callbacks=[describe],
        run_dir=run_dir / FOLDER,
        resume=resume,
    )
    last = done[-1]
    if last.status == "interrupted":
        pairs = len(recipe.machine.layers) - 1
        note(f"interrupted in pretraining, pair {len(done)} of {pairs}, a checkpoint is kept: {again}")
        assert last.signal is not None
        found = {"run": run_dir, "status": last.status, "pair": len(done), "updates": last.updates}
        raise Unfinished(found, 128 + last.signal)
