"""``harmonium train``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from harmonium.cli import kernels, options, processes, runs
from harmonium.cli.beginning import Beginning
from harmonium.cli.coding import Coding
from harmonium.cli.encoding import BINARISE
from harmonium.cli.hidden import hidden_layers
from harmonium.cli.kinds import read_kinds
from harmonium.cli.metrics import METRICS, Metric, metrics_of
from harmonium.cli.objective import LABEL_EPOCHS, LABEL_UPDATES, OBJECTIVES, SHARE, label_epochs, objective_of
from harmonium.cli.observers import observers
from harmonium.cli.outcome import outcome
from harmonium.cli.output import note, show, working
from harmonium.cli.repeatable import Repeatable
from harmonium.cli.rule_options import rule_from
from harmonium.cli.run_file import RunFile
from harmonium.cli.watch import can_watch
from harmonium.data import Rows
from harmonium.distributed import SHARDS
from harmonium.learning import rules
from harmonium.machine import HIDDEN_KINDS, VISIBLE_KINDS, BoltzmannMachine
from harmonium.machine.storage import CHECKPOINT
from harmonium.training import SCHEDULES
from harmonium.training import train as fit

COMMAND = Repeatable

_EPOCHS = 10
_RATE, _JOINT_RATE = 0.05, 0.01  # as hm.RBMClassifier has them


_MACHINE, _RULE, _LEARNING = "Machine", "Learning rule", "Length and steps"
_WATCHING = "What is followed"


def _option(panel: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **settings)


def train(
    ctx: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="A file, a folder of images, or a built-in name."),
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Argument(metavar="RUN_DIR", help="Folder for the run.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Settings, DATA among them, from a TOML file such as RUN/run.toml."
        ),
    ] = None,
    from_run: Annotated[
        Path | None,
        _option(
            _MACHINE,
            "--from",
            metavar="RUN",
            help="Begin with the machine of another run, and its settings where no others are given.",
        ),
    ] = None,
    label: Annotated[
        str | None,
        _option(
            _MACHINE,
            metavar="COLUMN",
            help="A column of labels, or label for those beside an array; empty cells are missing labels.",
        ),
    ] = None,
    objective: Annotated[
        str | None,
        _option(_RULE, help=f"With --label, what is learned: {', '.join(OBJECTIVES)}; hybrid if not given."),
    ] = None,
    joint: Annotated[
        float | None,
        _option(_RULE, help=f"Share of ln p(rest, label) in --objective hybrid; {SHARE} if not given."),
    ] = None,
    kinds: Annotated[
        Path | None,
        _option(_MACHINE, metavar="FILE", help="TOML or JSON: what kinds of units some columns have."),
    ] = None,
    unknown: Annotated[
        str | None,
        _option(
            _MACHINE,
            help="What later cells are taken as that a column has no state for: refuse (if not given) or "
            "missing.",
        ),
    ] = None,
    visible: Annotated[
        str, _option(_MACHINE, help=f"Kind of visible units: {', '.join(VISIBLE_KINDS)}.")
    ] = "auto",
    hidden: Annotated[
        list[str] | None,
        _option(
            _MACHINE,
            help="Hidden units, 500 if not given; 500,1000 for two layers, relu:100 or categorical:50:4 for "
            "a kind and states of its own; repeatable.",
        ),
    ] = None,
    hidden_kind: Annotated[
        str, _option(_MACHINE, help=f"Kind of hidden units: {', '.join(HIDDEN_KINDS)}.")
    ] = "bernoulli",
    hidden_states: Annotated[
        int, _option(_MACHINE, help="States of each hidden unit, where the kind leaves it open.")
    ] = 2,
    binarise: Annotated[
        str, _option(_MACHINE, help=f"What to do to grey levels: {', '.join(BINARISE)}.")
    ] = "none",
    initial_std: Annotated[
        float | None,
        _option(
            _MACHINE,
            help="Standard deviation of the first couplings; if not given 0.01, and a start from the data "
            "beside Gaussian visible units.",
        ),
    ] = None,
    rule: Annotated[str, _option(_RULE, help=f"Learning rule: {', '.join(rules.RECIPES)}.")] = "pcd",
    sweeps: Annotated[int | None, _option(_RULE, help="Sweeps of the rule's chains at every update.")] = None,
    chains: Annotated[
        int | None, _option(_RULE, help="Chains of the rule; the batch size if not given.")
    ] = None,
    replicas: Annotated[int | None, _option(_RULE, help="Temperatures of tempered_pcd.")] = None,
    burn_in: Annotated[
        int | None, _option(_RULE, help="Sweeps that noise_cd leaves out of its average.")
    ] = None,
    rule_option: Annotated[
        list[str] | None,
        _option(_RULE, metavar="NAME=VALUE", help="Anything else that the rule takes; repeatable."),
    ] = None,
    kernel: kernels.Name = None,
    step: kernels.Size = None,
    inner: kernels.Inner = None,
    correction: kernels.Corrected = None,
    centred: Annotated[bool, _option(_RULE, "--centred/--no-centred", help="Centre the gradient.")] = False,
    updates: Annotated[int | None, _option(_LEARNING, help="Length of the run, or use --epochs.")] = None,
    epochs: Annotated[
        int | None,
        _option(
            _LEARNING,
            help=f"Passes over the data; {_EPOCHS} where --updates is not given either, with --label at "
            f"least {LABEL_EPOCHS} and {LABEL_UPDATES} updates.",
        ),
    ] = None,
    batch_size: Annotated[int, _option(_LEARNING, help="Rows of every update.")] = 100,
    learning_rate: Annotated[
        float | None,
        _option(_LEARNING, help=f"At the start; {_RATE} if not given, {_JOINT_RATE} with --objective joint."),
    ] = None,
    schedule: Annotated[
        str | None,
        _option(
            _LEARNING,
            help=f"Of the learning rate: {', '.join(SCHEDULES)}; constant if not given, linear with --label.",
        ),
    ] = None,
    optimizer: Annotated[
        str | None, _option(_LEARNING, help="sgd or adam; sgd if not given, adam with --label.")
    ] = None,
    momentum: Annotated[float, _option(_LEARNING, help="Of sgd, in [0, 1).")] = 0.0,
    weight_decay: Annotated[float, _option(_LEARNING, help="L2 penalty on the couplings.")] = 0.0,
    l1: Annotated[float, _option(_LEARNING, help="L1 penalty on the couplings.")] = 0.0,
    clip_norm: Annotated[
        float | None,
        _option(
            _LEARNING, help="Largest norm of the gradient; 1 beside Gaussian units or a label if not given."
        ),
    ] = None,
    averaging: Annotated[
        float | None,
        _option(_LEARNING, help="Decay of a running average of the parameters, such as 0.999."),
    ] = None,
    validation: Annotated[
        str | None, _option(_WATCHING, metavar="DATA", help="Held-out data for the metric.")
    ] = None,
    metric: Annotated[
        str | None,
        _option(
            _WATCHING,
            help=f"Of --validation: {', '.join(METRICS)}; what the machine has if not given. likelihood is a "
            "bound for deep machines, with ln Z by a short AIS.",
        ),
    ] = None,
    evaluate_every: Annotated[
        int | None, _option(_WATCHING, help="Updates between two evaluations; an epoch if not given.")
    ] = None,
    early_stopping: Annotated[
        int | None,
        _option(
            _WATCHING,
            metavar="EVALUATIONS",
            help="End after so many without a better metric, and keep the best machine.",
        ),
    ] = None,
    tensorboard: Annotated[
        bool, _option(_WATCHING, "--tensorboard/--no-tensorboard", help="Write TensorBoard events.")
    ] = False,
    watch: Annotated[
        bool, _option(_WATCHING, "--watch", help="Draw curves and samples in the terminal as the run goes.")
    ] = False,
    seed: options.Seed = 0,
    device: options.Device = None,
    threads: options.Threads = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Updates between two checkpoints; about a minute if not given.")
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(help="Parts of a batch that processes share, under torchrun; 8 there if not given."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in RUN_DIR, with its own settings and DATA.")
    ] = False,
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
    hidden = hidden or ["500"]
    upper = hidden_layers(hidden, hidden_kind, hidden_states)
    columns = read_kinds(kinds) or stored.kinds
    where = options.as_device(processes.device(device))
    if from_run is None:
        objective, share = objective_of(label, objective, joint)
    with working("reading the data"):
        if from_run is None:
            cells = options.unknown_of(unknown) or "error"
            beginning = Beginning.new(
                data, upper, label, columns, cells, visible, binarise, initial_std, seed
            )
        else:
            beginning = Beginning.trained(from_run, data, options.unknown_of(unknown))
            known = Coding.of(beginning.machine)
            label = None if known.label is None else str(known.label.name)
            learned = objective or (None if label is None else known.objective)
            objective, share = objective_of(label, learned, joint)
        machine, X = beginning.machine, beginning.X
        if share is not None:
            learning_rule = rules.hybrid(learning_rule, range(len(machine.visible) - 1), share)
            machine.metadata["objective"] = objective
        if updates is None and epochs is None:
            rows = Rows.of(X, dtype=machine.dtype, missing=True)
            epochs = _EPOCHS if label is None else label_epochs(len(rows), batch_size)
        held_out, metrics = _validation(machine, validation, metric, early_stopping, seed)
    if clip_norm is None and not beginning.plain:
        clip_norm = 1.0  # one outlier would throw Gaussian units out of range
    if learning_rate is None:
        learning_rate = _JOINT_RATE if share == 1 else _RATE
    optimizer = optimizer or ("sgd" if label is None else "adam")
    schedule = schedule or ("constant" if label is None else "linear")
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
        "hidden": hidden,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "schedule": schedule,
        "optimizer": optimizer,
        "clip_norm": clip_norm,
        "threads": torch.get_num_threads(),
        "shards": shards,
    }
    settings = RunFile.of(resolved, columns, stored.commands)
    watching = watch and processes.leads() and can_watch()
    watchers = observers(
        run_dir,
        beginning,
        metrics,
        early_stopping=early_stopping,
        tensorboard=tensorboard,
        title=f"{run_dir}: {learning_rule.name}" if watching else None,
        overwrite=overwrite,
        settings=lambda: settings.text(ctx.command.params),
        seed=seed,
    )
    if watch and not watching and processes.leads():
        note("--watch needs a terminal to draw in: the run goes on without")

    try:
        with processes.together(where):
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
                progress=False if watching else None,
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
    coding = Coding.of(machine)
    rows = coding.rows(coding.read(source))
    return next(rows.chunks(len(rows))), metrics_of(coding, metric, rows, seed)
