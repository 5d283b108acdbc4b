"""``harmonium train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from torch import Tensor

from harmonium import _checks
from harmonium._random import as_generator
from harmonium.cli import kernels, options, processes, runs
from harmonium.cli.coding import Coding
from harmonium.cli.encoding import BINARISE, fit_encoding, in_memory
from harmonium.cli.hidden import hidden_layers
from harmonium.cli.kinds import read_kinds
from harmonium.cli.labels import fit_label, split_label
from harmonium.cli.output import note, show, working
from harmonium.cli.pseudo import bounded_pseudo_likelihood
from harmonium.cli.rule_options import rule_from
from harmonium.data import DataSet, Rows, read
from harmonium.distributed import SHARDS, together
from harmonium.layers import Categorical
from harmonium.learning import Rule, rules
from harmonium.likelihood import missing_pseudo_likelihood
from harmonium.machine import (
    HIDDEN_KINDS,
    VISIBLE_KINDS,
    BoltzmannMachine,
    from_data_,
    joined,
    normal_,
    visible_from_data_,
)
from harmonium.machine.storage import CHECKPOINT, MACHINE
from harmonium.training import SCHEDULES, Callback, TrainingRun, callbacks
from harmonium.training import train as fit

_JOINT = 0.03
_OBJECTIVES = {"hybrid": _JOINT, "discriminative": 0.0, "joint": 1.0}
_METRICS = ("pseudo-likelihood",)
_METRIC_UNITS = 20_000  # visible units drawn for one evaluation, over all rows
_EPOCHS = 10
_RATE, _JOINT_RATE = 0.05, 0.01  # as hm.RBMClassifier has them
_LABEL_UPDATES, _LABEL_EPOCHS = 1000, 20
_STD = 0.01  # of the first couplings

_Option = typer.Option


def train(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A file, a folder of images, or a built-in name.")
    ],
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder for the run.")],
    label: Annotated[
        str | None,
        _Option(
            metavar="COLUMN",
            help="A column of labels, or label for those beside an array; empty cells are missing labels.",
        ),
    ] = None,
    objective: Annotated[
        str | None,
        _Option(help=f"With --label, what is learned: {', '.join(_OBJECTIVES)}; hybrid if not given."),
    ] = None,
    joint: Annotated[
        float | None,
        _Option(help=f"Share of ln p(rest, label) in --objective hybrid; {_JOINT} if not given."),
    ] = None,
    kinds: Annotated[
        Path | None, _Option(metavar="FILE", help="TOML or JSON: what kinds of units some columns have.")
    ] = None,
    unknown: Annotated[
        str, _Option(help="What later cells are taken as that a column has no state for: refuse, missing.")
    ] = "refuse",
    visible: Annotated[str, _Option(help=f"Kind of visible units: {', '.join(VISIBLE_KINDS)}.")] = "auto",
    hidden: Annotated[
        list[str] | None,
        _Option(
            help="Hidden units, 500 if not given; 500,1000 for two layers, relu:100 or categorical:50:4 for "
            "a kind and states of its own; repeatable."
        ),
    ] = None,
    hidden_kind: Annotated[
        str, _Option(help=f"Kind of hidden units: {', '.join(HIDDEN_KINDS)}.")
    ] = "bernoulli",
    hidden_states: Annotated[
        int, _Option(help="States of each hidden unit, where the kind leaves it open.")
    ] = 2,
    binarise: Annotated[str, _Option(help=f"What to do to grey levels: {', '.join(BINARISE)}.")] = "none",
    rule: Annotated[str, _Option(help=f"Learning rule: {', '.join(rules.RECIPES)}.")] = "pcd",
    sweeps: Annotated[int | None, _Option(help="Sweeps of the rule's chains at every update.")] = None,
    chains: Annotated[int | None, _Option(help="Chains of the rule; the batch size if not given.")] = None,
    replicas: Annotated[int | None, _Option(help="Temperatures of tempered_pcd.")] = None,
    burn_in: Annotated[int | None, _Option(help="Sweeps that noise_cd leaves out of its average.")] = None,
    rule_option: Annotated[
        list[str] | None, _Option(metavar="NAME=VALUE", help="Anything else that the rule takes; repeatable.")
    ] = None,
    kernel: kernels.Name = None,
    step: kernels.Size = None,
    inner: kernels.Inner = None,
    correction: kernels.Corrected = None,
    centred: Annotated[bool, _Option("--centred", help="Centre the gradient.")] = False,
    updates: Annotated[int | None, _Option(help="Length of the run, or use --epochs.")] = None,
    epochs: Annotated[
        int | None,
        _Option(
            help=f"Passes over the data; {_EPOCHS} where --updates is not given either, with --label at "
            f"least {_LABEL_EPOCHS} and {_LABEL_UPDATES} updates."
        ),
    ] = None,
    batch_size: Annotated[int, _Option(help="Rows of every update.")] = 100,
    learning_rate: Annotated[
        float | None,
        _Option(help=f"At the start; {_RATE} if not given, {_JOINT_RATE} with --objective joint."),
    ] = None,
    schedule: Annotated[
        str | None,
        _Option(
            help=f"Of the learning rate: {', '.join(SCHEDULES)}; constant if not given, linear with --label."
        ),
    ] = None,
    optimizer: Annotated[
        str | None, _Option(help="sgd or adam; sgd if not given, adam with --label.")
    ] = None,
    momentum: Annotated[float, _Option(help="Of sgd, in [0, 1).")] = 0.0,
    weight_decay: Annotated[float, _Option(help="L2 penalty on the couplings.")] = 0.0,
    l1: Annotated[float, _Option(help="L1 penalty on the couplings.")] = 0.0,
    clip_norm: Annotated[
        float | None, _Option(help="Largest norm of the gradient; 1 beside Gaussian units if not given.")
    ] = None,
    averaging: Annotated[
        float | None, _Option(help="Decay of a running average of the parameters, such as 0.999.")
    ] = None,
    initial_std: Annotated[
        float | None,
        _Option(
            help="Standard deviation of the first couplings; if not given 0.01, and a start from the data "
            "beside Gaussian visible units."
        ),
    ] = None,
    seed: options.Seed = 0,
    device: options.Device = None,
    threads: options.Threads = None,
    validation: Annotated[str | None, _Option(metavar="DATA", help="Held-out data for the metric.")] = None,
    metric: Annotated[
        str | None, _Option(help=f"What to follow on --validation: {', '.join(_METRICS)}.")
    ] = None,
    evaluate_every: Annotated[
        int | None, _Option(help="Updates between two evaluations; an epoch if not given.")
    ] = None,
    tensorboard: Annotated[bool, _Option("--tensorboard", help="Write TensorBoard events.")] = False,
    checkpoint_every: Annotated[
        int | None, _Option(help="Updates between two checkpoints; about a minute if not given.")
    ] = None,
    shards: Annotated[
        int | None,
        _Option(help="Parts of a batch that processes share, under torchrun; 8 there if not given."),
    ] = None,
    resume: Annotated[bool, _Option("--resume", help="Continue the run in RUN_DIR.")] = False,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Train a machine on DATA and keep it in RUN_DIR.

    Under torchrun several processes train one machine, to the same bits as one with --shards.

    Ctrl-C or SIGTERM keeps a checkpoint, from which the same command with --resume goes on as if nothing had
    happened. The exit status is then 130 or 143.
    """
    options.set_threads(threads)
    if not (resume or overwrite) and processes.leads():
        runs.refuse_existing(run_dir)
    asked = {
        "k": sweeps,
        "chains": chains,
        "replicas": replicas,
        "burn_in": burn_in,
        "kernel": kernels.kernel_from(kernel, step, inner, correction),
    }
    learning_rule = rule_from(rule, {**asked, "centred": centred or None}, rule_option or [])
    objective, share = _objective(label, objective, joint)
    upper = hidden_layers(hidden or ["500"], hidden_kind, hidden_states)
    columns = read_kinds(kinds)
    where = options.as_device(processes.device(device))
    with working("reading the data"):
        dataset = read(data, labels_apart=label is None)
        rest, labels = (dataset, None) if label is None else split_label(dataset, label)
        unknown_cells = options.unknown_of(unknown) or "error"
        visible_layers, encoder, X = fit_encoding(rest, visible, binarise, seed, columns, unknown_cells)
        metadata: dict[str, Any] = {"encoder": encoder.to_dict(), "data": _description(dataset, data)}
        if labels is not None and share is not None:
            column = fit_label(labels)
            given = range(len(visible_layers))
            learning_rule = rules.hybrid(learning_rule, given, share)
            visible_layers = [*visible_layers, Categorical(1, column.coding.n_states)]
            X = np.hstack([in_memory(X), column.encode(labels, "error")])
            metadata |= {"label": column.to_dict(), "objective": objective}
        if clip_norm is None and (labels is not None or not all(layer.discrete for layer in visible_layers)):
            clip_norm = 1.0  # one outlier would throw Gaussian units out of range
        machine = joined(visible_layers, upper, seed)
        rows, generator = Rows.of(X, dtype=machine.dtype, missing=True), as_generator(seed)
        if updates is None and epochs is None:
            epochs = _EPOCHS if label is None else _label_epochs(len(rows), batch_size)
        normal_(machine, _STD if initial_std is None else initial_std, generator)
        if initial_std is None:
            from_data_(machine, rows, generator)
        else:
            visible_from_data_(machine, rows)
        machine.metadata = metadata
        held_out, metrics = _validation(machine, validation, metric, seed)
    if resume:
        runs.require_same_encoding(run_dir, machine)
        if not overwrite and not run_dir.exists():
            note(f"there is nothing to resume in {run_dir}: a new run starts")
    observers: list[Callback] = [runs.Describe(run_dir, overwrite)]
    if tensorboard:
        observers.append(callbacks.TensorBoard(run_dir / runs.EVENTS))

    if learning_rate is None:
        learning_rate = _JOINT_RATE if share == 1 else _RATE

    try:
        with together(where):
            run = fit(
                machine,
                X,
                rule=learning_rule,
                updates=updates,
                epochs=epochs,
                batch_size=batch_size,
                optimizer=optimizer or ("sgd" if label is None else "adam"),
                learning_rate=learning_rate,
                schedule=schedule or ("constant" if label is None else "linear"),
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
                callbacks=observers,
                run_dir=run_dir,
                checkpoint_every=checkpoint_every,
                resume=resume,
                overwrite=overwrite,
                distributed=None if shards is None and processes.started() == 1 else "auto",
                shards=SHARDS if shards is None else shards,
            )
    except KeyboardInterrupt:
        note(f"interrupted; the last checkpoint in {run_dir}, if any, is kept: --resume continues from it")
        raise
    if not processes.leads():
        return
    show(_summary(run, dataset, learning_rule), as_json)
    if run.status == "interrupted":
        note(
            f"interrupted after {run.updates} updates; {run_dir / CHECKPOINT} is kept: "
            "the same command with --resume continues the run"
        )
        assert run.signal is not None
        raise typer.Exit(128 + run.signal)


def _objective(
    label: str | None, objective: str | None, joint: float | None
) -> tuple[str | None, float | None]:
    """What is learned of a label, and the weight of ln p(rest, label) in it; None without one."""
    for name, value in (("objective", objective), ("joint", joint)):
        if label is None and value is not None:
            raise ValueError(f"{name}: expected with --label COLUMN, received {value} without")
    if label is None:
        return None, None
    chosen = _checks.one_of(objective or "hybrid", "objective", _OBJECTIVES)
    if chosen != "hybrid" and joint is not None:
        raise ValueError(f"joint: expected none with --objective {chosen}, received {joint}")
    return chosen, _OBJECTIVES[chosen] if joint is None else _checks.real(joint, "joint", 0.0, 1.0)


def _label_epochs(rows: int, batch_size: int) -> int:
    size = min(_checks.positive_int(batch_size, "batch_size"), rows)
    return max(_LABEL_EPOCHS, -(-_LABEL_UPDATES * size // rows))


def _description(dataset: DataSet, source: str) -> dict[str, Any]:
    about = {"name": dataset.name, "source": source, "image_shape": dataset.image_shape}
    return about if dataset.names is None else {**about, "names": list(dataset.names)}


def _validation(
    machine: BoltzmannMachine, source: str | None, metric: str | None, seed: int
) -> tuple[Tensor | None, Any]:
    if metric is not None:
        _checks.one_of(metric, "metric", _METRICS)
    if source is None:
        if metric is not None:
            raise ValueError("metric: expected together with --validation")
        return None, None
    missing = missing_pseudo_likelihood(machine)
    if missing:
        raise ValueError(f"validation: there is no pseudo-likelihood to follow: {missing}")
    coding = Coding.of(machine)
    rows = coding.rows(coding.read(source))
    units = -(-_METRIC_UNITS // len(rows))
    # One seed for all evaluations: the curve then shows the machine's changes and not those of the draws.
    metrics = {
        "pseudo_log_likelihood": lambda machine, X: float(
            bounded_pseudo_likelihood(machine, X, units, seed).mean()
        )
    }
    return next(rows.chunks(len(rows))), metrics


def _summary(run: TrainingRun, dataset: DataSet, rule: Rule) -> dict[str, Any]:
    assert run.run_dir is not None
    names = (MACHINE, runs.AVERAGED, CHECKPOINT)
    return {
        "run": str(run.run_dir),
        "status": run.status,
        "updates": run.updates,
        "seconds": round(run.seconds, 3),
        "data": dataset.name,
        "rows": int(dataset.samples.shape[0]),
        "layers": [str(layer) for layer in run.machine.layers],
        "rule": rule.name,
        "bias": rule.bias,
        "metrics": run.metrics,
        "files": [name for name in names if (run.run_dir / name).exists()],
    }
