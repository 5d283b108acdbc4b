"""``harmonium train``."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from harmonium._settings import Setting, list_unused, settings_of
from harmonium._storage import CHECKPOINT, MACHINE
from harmonium.cli import options, runs
from harmonium.cli.beginning import Beginning
from harmonium.cli.coding import codec_of, read_kinds, rows_of
from harmonium.cli.output import Unfinished, note, working
from harmonium.cli.pictures import SampleImages
from harmonium.cli.run_file import settings_in_force
from harmonium.cli.scores import metrics_of
from harmonium.cli.settings import TrainSettings
from harmonium.data import Rows
from harmonium.distributed import SHARDS, init_process_group
from harmonium.learning import Rule, rules
from harmonium.machine import BoltzmannMachine
from harmonium.training import (
    Callback,
    Objective,
    RunDirectory,
    Steps,
    TrainingRun,
    as_root,
    callbacks,
    fit_labels,
    fit_table,
    say_unused,
    stream_seed,
)
from harmonium.training import train as fit

EXAMPLES = (
    "harmonium train digits runs/digits --binarise sample --hidden 200",
    "harmonium train rows.csv runs/rows --label species --hidden 50",
    "harmonium train digits runs/deep --binarise sample --hidden 200,100 --rule mean_field_pcd",
    "harmonium train --config runs/digits/run.toml runs/again --seed 1",
    "harmonium train --resume runs/digits",
    "harmonium train --from runs/digits runs/slower --learning-rate 0.005",
)

_PICTURED, _PICTURED_SWEEPS = 64, 100  # chains drawn for TensorBoard, every thousand updates


def train(
    ctx: typer.Context,
    settings: TrainSettings,
    config: Annotated[Path | None, Setting(metavar="FILE")] = None,
    resume: Annotated[bool, Setting(option="--resume")] = False,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Train a machine on DATA and keep it in RUN_DIR.

    RUN_DIR/run.toml then holds every setting: --config repeats the run, to the same bytes; --resume RUN_DIR
    continues it; --from RUN_DIR begins another with its machine. Options given beside these win.

    Under torchrun several processes train one machine, to the same bits as one with --shards.

    Ctrl-C or SIGTERM keeps a checkpoint, from which --resume goes on as if nothing had happened. The exit
    status is then 130 or 143.

    Args:
        config: settings, DATA among them, from a TOML file such as RUN/run.toml.
        resume: continue the run in RUN_DIR, with its own settings and DATA.
    """
    settings, stored = settings_in_force(ctx, settings, config, resume)
    run_dir = Path(str(settings.run_dir))
    options.set_threads(settings.threads)
    if not (resume or overwrite) and options.is_leading():
        runs.refuse_existing(run_dir)
    if config is not None:
        stored.warn_of_differences()
    settings.hidden_layers(), _make_rule(settings)  # before the data are read, which may take long
    stored = replace(stored, kinds=read_kinds(settings.kinds) or stored.kinds)
    device = options.as_device(options.own_device(settings.device))
    if settings.from_run is None:
        settings.share(settings.label)
    with working("reading the data"):
        if settings.from_run is None:
            tabular = not (resume and runs.without_table(run_dir))
            beginning = Beginning.new(settings, stored.kinds, tabular)
        else:
            beginning = Beginning.trained(settings)
        machine, X = beginning.machine, beginning.X
        settings, share = _decide(settings, beginning)
        rule = _make_rule(settings)
        if share is not None:
            rule = rules.hybrid(rule, range(len(machine.visible) - 1), share)
            machine.metadata["objective"] = settings.objective
        held = _held_out(machine, settings)
        metrics = (
            None if held is None else metrics_of(codec_of(machine), settings.metric, held, settings.seed)
        )
    if unused := list_unused(settings, settings.method):
        names = [f"--{(settings_of(TrainSettings)[name].option or name).lstrip('-')}" for name in unused]
        note(f"warning: {say_unused([name.replace('_', '-') for name in names], settings.method)}")
    if settings.method == "exact":
        return _train_at_once(settings, beginning, share, held, stored.text(settings), resume, overwrite)
    if resume:
        runs.require_same_encoding(run_dir, machine)
        if not overwrite and not run_dir.exists():
            note(f"there is nothing to resume in {run_dir}: a new run starts")
    watchers: list[Callback] = [runs.Describe(run_dir, overwrite, stored.text(settings))]
    if settings.early_stopping is not None and metrics is not None:
        watchers.append(callbacks.EarlyStopping(next(iter(metrics)), settings.early_stopping))
    if settings.tensorboard:
        drawn = SampleImages.of(machine, X, _PICTURED, _PICTURED_SWEEPS, settings.seed)
        watchers.append(callbacks.TensorBoard(run_dir / runs.EVENTS, pictures=drawn and drawn.pictures))
    again = f"{shlex.join(['harmonium', 'train', '--resume', str(run_dir)])} continues the run"

    try:
        with init_process_group(device):
            run = fit(
                machine,
                X,
                rule=rule,
                **{field.name: getattr(settings, field.name) for field in fields(Steps)},
                sample_weight=beginning.weights,
                seed=stream_seed(as_root(settings.seed), "train"),
                device=device,
                validation=None if held is None else held.all(),
                metrics=metrics,
                evaluate_every=settings.evaluate_every,
                callbacks=watchers,
                run_dir=run_dir,
                checkpoint_every=settings.checkpoint_every,
                resume=resume,
                overwrite=overwrite,
                distributed=None if settings.shards is None else "auto",
                shards=SHARDS if settings.shards is None else settings.shards,
            )
    except KeyboardInterrupt:
        note(f"interrupted; the last checkpoint in {run_dir}, if any, is kept: {again}")
        raise
    if not options.is_leading():
        return {}
    result = _summary(run, beginning, rule, watchers)
    if run.status == "interrupted":
        note(f"interrupted after {run.updates} updates; {run_dir / CHECKPOINT} is kept: {again}")
        assert run.signal is not None
        raise Unfinished(result, 128 + run.signal)
    return result


def _train_at_once(
    settings: TrainSettings,
    beginning: Beginning,
    share: float | None,
    held: Rows | None,
    text: str,
    resume: bool,
    overwrite: bool,
) -> dict[str, Any]:
    """Trains a table's machine by exact sums over its hidden units, and keeps it as a run.

    Args:
        settings: of the run, as decided.
        beginning: the machine and its rows.
        share: weight of ln p(rest, label) in the objective; None without a label.
        held: rows that the metrics are of; None: there are none.
        text: the content of ``run.toml``.
        resume: whether the run that the folder may hold is to go on: it is whole.
        overwrite: whether it is to be replaced.
    """
    run_dir, start = Path(str(settings.run_dir)), time.monotonic()
    seed = stream_seed(as_root(settings.seed), "train")
    if resume and (run_dir / MACHINE).exists():
        runs.require_same_encoding(run_dir, beginning.machine)
        note(f"the run in {run_dir} is whole: it was made at once, and has no more updates to make")
        return {"run": run_dir, "status": "completed", "files": [MACHINE]}
    machine = beginning.machine.to(options.as_device(options.own_device(settings.device)))
    v = beginning.X.all().to(machine.device)
    objective = Objective() if share is None else Objective([*machine.visible[:-1]], share)
    judged = None if share is None else ~v[:, beginning.recipe.width :].isnan().any(1)
    learn = fit_table if objective.joint == 1 else fit_labels
    with working("summing over the hidden units"):
        done = learn(machine, v, beginning.weights, objective=objective, judged=judged, seed=seed)
    done.machine.metadata = machine.metadata
    values = {}
    if held is not None:
        followed = settings.metric or ("likelihood" if share is None else None)
        metrics = metrics_of(codec_of(done.machine), followed, held, settings.seed)
        values = {name: float(metric(done.machine, held.all())) for name, metric in metrics.items()}
    seconds = time.monotonic() - start
    records = [
        {"step": each["step"], "seconds": seconds, "held_out_log_likelihood": each["validation_score"]}
        for each in done.history
        if "validation_score" in each and each["step"] < done.updates
    ]
    records.append({"step": max(1, done.updates), "seconds": seconds, **values})
    rule = rules.exact()
    directory = RunDirectory(
        run_dir,
        {"rule": rule.name, "seed": settings.seed, "rows": len(v)},
        resume=resume,
        overwrite=overwrite,
    )
    try:
        directory.write_whole(done.machine, records)
        runs.Describe(run_dir, overwrite, text).write(done.machine)
    finally:
        directory.close()
    run = TrainingRun(
        done.machine, None, done.history, "completed", done.updates, seconds, run_dir, None, values
    )
    return _summary(run, beginning, rule, [])


def _decide(settings: TrainSettings, beginning: Beginning) -> tuple[TrainSettings, float | None]:
    """Returns the settings with what depends on the data decided, and the share of ln p(rest, label).

    Raises:
        ValueError: an objective that does not suit the label, or no row with a label.
    """
    coding, goes_on = codec_of(beginning.machine), settings.from_run is not None
    label = None if coding.label is None else str(coding.label.name)
    learned = coding.objective if goes_on and label is not None else None
    objective, share = replace(settings, objective=settings.objective or learned).share(label)
    learns_label = goes_on and label is not None and objective != "joint"
    if learns_label and bool(beginning.X.all()[:, -coding.label_width :].isnan().all()):
        raise ValueError(
            f"DATA: expected labels in a column {label!r}, which the machine learns to tell, received none; "
            "--objective joint learns of rows without them"
        )
    weights = beginning.weights
    settings = settings.decided(
        beginning.recipe, len(beginning.X), None if weights is None else float(weights.sum())
    )
    several = options.count_processes() > 1
    return replace(
        settings,
        objective=objective,
        joint=share if objective == "hybrid" else None,
        threads=torch.get_num_threads(),
        shards=SHARDS if several and settings.shards is None else settings.shards,
    ), share


def _make_rule(settings: TrainSettings) -> Rule:
    """Returns the rule of settings."""
    shared = options.count_processes() > 1 or settings.shards is not None  # shards deal out the chains
    return settings.made_rule(
        settings.make_kernel(), settings.optimizer, None if shared else settings.batch_size
    )


def _held_out(machine: BoltzmannMachine, settings: TrainSettings) -> Rows | None:
    """Reads the rows of --validation.

    Raises:
        ValueError: what is followed on them without them.
    """
    if settings.validation is None:
        for name in ("metric", "early_stopping"):
            value = getattr(settings, name)
            if value is not None:
                raise ValueError(f"{name}: expected together with --validation, received {value} without")
        return None
    coding = codec_of(machine)
    return rows_of(coding, coding.read(settings.validation), missing=True)


def _summary(
    run: TrainingRun, beginning: Beginning, rule: Rule, watchers: Sequence[Callback]
) -> dict[str, Any]:
    """Returns the outcome of a run."""
    assert run.run_dir is not None
    best: dict[str, Any] = {}
    for each in watchers:
        if isinstance(each, callbacks.EarlyStopping) and each.best is not None:
            best = {"best": {each.metric: each.best, "updates": each.best_step}}
    return {
        "run": run.run_dir,
        "status": run.status,
        "updates": run.updates,
        "seconds": round(run.seconds, 3),
        "data": beginning.dataset.name,
        "rows": int(beginning.dataset.samples.shape[0]),
        **({} if beginning.weights is None else {"effective_rows": float(beginning.weights.sum())}),
        "layers": [str(layer) for layer in run.machine.layers],
        "rule": rule.name,
        "bias": rule.bias,
        "metrics": run.metrics,
        **best,
        "files": [name for name in (MACHINE, runs.AVERAGED, CHECKPOINT) if (run.run_dir / name).exists()],
    }
