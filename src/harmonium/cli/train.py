"""``harmonium train``."""

from __future__ import annotations

import shlex
from pathlib import Path

import torch
import typer
from torch import Tensor

from harmonium import _checks
from harmonium.cli import kernels, options, processes, runs
from harmonium.cli import train_options as given
from harmonium.cli.beginning import Beginning
from harmonium.cli.coding import codec_of, read_for, read_kinds, rows_of
from harmonium.cli.hidden import default_hidden, hidden_layers
from harmonium.cli.metrics import Metric, metrics_of
from harmonium.cli.objective import length, objective_of, refuse_unlabelled
from harmonium.cli.observers import observers
from harmonium.cli.outcome import outcome
from harmonium.cli.output import note, show, working
from harmonium.cli.repeatable import Repeatable
from harmonium.cli.rule_options import rule_from
from harmonium.cli.run_file import RunFile
from harmonium.data import Rows
from harmonium.distributed import SHARDS, together
from harmonium.layers import Layer
from harmonium.learning import rules
from harmonium.learning.discriminative import label_rate
from harmonium.machine import BoltzmannMachine
from harmonium.machine.storage import CHECKPOINT
from harmonium.training import train as fit

COMMAND = Repeatable


def train(
    ctx: typer.Context,
    data: given.Data = None,
    run_dir: given.RunDir = None,
    config: given.Config = None,
    from_run: given.FromRun = None,
    label: given.Label = None,
    objective: given.Objective = None,
    joint: given.Joint = None,
    kinds: given.Kinds = None,
    unknown: given.Unknown = None,
    visible: given.Visible = "auto",
    hidden: given.Hidden = None,
    hidden_kind: given.HiddenKind = "bernoulli",
    hidden_states: given.HiddenStates = 2,
    binarise: given.Binarise = "none",
    initial_std: given.InitialStd = None,
    rule: given.Rule = "pcd",
    sweeps: given.Sweeps = None,
    chains: given.Chains = None,
    replicas: given.Replicas = None,
    burn_in: given.BurnIn = None,
    rule_option: given.RuleOption = None,
    kernel: kernels.Name = None,
    step: kernels.Size = None,
    inner: kernels.Inner = None,
    correction: kernels.Corrected = None,
    centred: given.Centred = False,
    updates: given.Updates = None,
    epochs: given.Epochs = None,
    batch_size: given.BatchSize = 100,
    learning_rate: given.LearningRate = None,
    schedule: given.Schedule = None,
    optimizer: given.Optimizer = None,
    momentum: given.Momentum = 0.0,
    weight_decay: given.WeightDecay = 0.0,
    l1: given.L1 = 0.0,
    clip_norm: given.ClipNorm = None,
    averaging: given.Averaging = None,
    validation: given.Validation = None,
    metric: given.Metric = None,
    evaluate_every: given.EvaluateEvery = None,
    early_stopping: given.EarlyStopping = None,
    tensorboard: given.Tensorboard = False,
    seed: options.Seed = 0,
    device: options.Device = None,
    threads: options.Threads = None,
    checkpoint_every: given.CheckpointEvery = None,
    shards: given.Shards = None,
    resume: given.Resume = False,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Train a machine on DATA and keep it in RUN_DIR.

    RUN_DIR/run.toml then holds every setting: --config repeats the run, to the same bytes; --resume RUN_DIR
    continues it; --from RUN_DIR begins another with its machine. Options given beside these win.

    Under torchrun several processes train one machine, to the same bits as one with --shards.

    Ctrl-C or SIGTERM keeps a checkpoint, from which --resume goes on as if nothing had happened. The exit
    status is then 130 or 143.
    """
    assert data is not None and run_dir is not None
    stored: RunFile = ctx.obj
    options.set_threads(threads)
    if not (resume or overwrite) and processes.leads():
        runs.refuse_existing(run_dir)
    if config is not None:
        stored.act_alike()
    asked = {
        "k": sweeps,
        "chains": chains,
        "replicas": replicas,
        "burn_in": burn_in,
        "kernel": kernels.kernel_from(kernel, step, inner, correction),
    }
    learning_rule = rule_from(rule, {**asked, "centred": centred or None}, rule_option or [])

    def upper(width: int) -> list[Layer]:
        return hidden_layers(hidden or default_hidden(width), hidden_kind, hidden_states)

    upper(1)  # before the data are read, which may take long
    columns = read_kinds(kinds) or stored.kinds
    where = options.as_device(processes.device(device))
    if from_run is None:
        objective, share = objective_of(label, objective, joint)
    with working("reading the data"):
        if from_run is None:
            cells = options.unknown_of(unknown) or "error"
            tabular = not (resume and runs.without_table(run_dir))
            beginning = Beginning.new(
                data, upper, label, columns, cells, visible, binarise, initial_std, seed, tabular
            )
        else:
            beginning = Beginning.trained(from_run, data, options.unknown_of(unknown))
            known = codec_of(beginning.machine)
            label = None if known.label is None else str(known.label.name)
            learned = objective or (None if label is None else known.objective)
            objective, share = objective_of(label, learned, joint)
            if known.label is not None and objective != "joint":
                refuse_unlabelled(known.label, beginning.X.all())
        machine, X = beginning.machine, beginning.X
        if share is not None:
            learning_rule = rules.hybrid(learning_rule, range(len(machine.visible) - 1), share)
            machine.metadata["objective"] = objective
        if updates is None and epochs is None:
            rows = Rows.of(X, dtype=machine.dtype, missing=True)
            epochs = length(label, len(rows), batch_size)
        held_out, metrics = _validation(machine, validation, metric, early_stopping, seed)
    if clip_norm is None and not beginning.plain:
        clip_norm = 1.0  # one outlier would throw Gaussian units out of range
    if learning_rate is None:
        learning_rate = given.RATE if share is None else label_rate(beginning.data_width)
    optimizer = optimizer or ("sgd" if label is None else "adam")
    schedule = schedule or ("constant" if beginning.plain else "linear")
    if processes.started() > 1 and shards is None:
        shards = SHARDS
    if resume:
        runs.require_same_encoding(run_dir, machine)
        if not overwrite and not run_dir.exists():
            note(f"there is nothing to resume in {run_dir}: a new run starts")
    resolved = {
        **ctx.params,
        "objective": objective,
        "joint": share if objective == "hybrid" else None,
        "hidden": hidden or default_hidden(beginning.data_width),
        "epochs": epochs,
        "learning_rate": learning_rate,
        "schedule": schedule,
        "optimizer": optimizer,
        "clip_norm": clip_norm,
        "threads": torch.get_num_threads(),
        "shards": shards,
    }
    settings = RunFile.of(resolved, columns, stored.commands)
    watchers = observers(
        run_dir,
        beginning,
        metrics,
        early_stopping=early_stopping,
        tensorboard=tensorboard,
        overwrite=overwrite,
        settings=lambda: settings.text(ctx.command.params),
        seed=seed,
    )

    try:
        with together(where):
            run = fit(
                machine,
                X,
                rule=learning_rule,
                updates=updates,
                epochs=epochs,
                batch_size=batch_size,
                optimizer=optimizer,
                learning_rate=learning_rate,
                schedule=schedule,
                momentum=momentum,
                clip_norm=clip_norm,
                weight_decay=weight_decay,
                l1=l1,
                averaging=averaging,
                seed=seed,
                device=where,
                validation=held_out,
                metrics=metrics,
                evaluate_every=evaluate_every,
                callbacks=watchers,
                run_dir=run_dir,
                checkpoint_every=checkpoint_every,
                resume=resume,
                overwrite=overwrite,
                distributed=None if shards is None else "auto",
                shards=SHARDS if shards is None else shards,
            )
    except KeyboardInterrupt:
        note(f"interrupted; the last checkpoint in {run_dir}, if any, is kept: {_again(run_dir)}")
        raise
    if not processes.leads():
        return
    show(outcome(run, beginning, learning_rule, watchers), as_json)
    if run.status == "interrupted":
        note(f"interrupted after {run.updates} updates; {run_dir / CHECKPOINT} is kept: {_again(run_dir)}")
        assert run.signal is not None
        raise typer.Exit(128 + run.signal)


def _again(run_dir: Path) -> str:
    return f"{shlex.join(['harmonium', 'train', '--resume', str(run_dir)])} continues the run"


def _validation(
    machine: BoltzmannMachine,
    source: str | None,
    metric: str | None,
    early_stopping: int | None,
    seed: int,
) -> tuple[Tensor | None, dict[str, Metric] | None]:
    """Held-out states, and what is followed on them."""
    if source is None:
        for name, value in (("metric", metric), ("early_stopping", early_stopping)):
            if value is not None:
                raise ValueError(f"{name}: expected together with --validation, received {value} without")
        return None, None
    if early_stopping is not None:
        _checks.positive_int(early_stopping, "early_stopping")
    coding = codec_of(machine)
    rows = rows_of(coding, read_for(coding, source), missing=True)
    return next(rows.chunks(len(rows))), metrics_of(coding, metric, rows, seed)
