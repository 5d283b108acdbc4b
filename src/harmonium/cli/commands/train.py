"""``harmonium train``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from harmonium._html import format_value
from harmonium._settings import Setting, list_unused, settings_of
from harmonium._storage import CHECKPOINT
from harmonium.cli import options, runs
from harmonium.cli.output import Unfinished, note, working
from harmonium.cli.settings import TrainSettings, settings_in_force
from harmonium.data import DataSet, Rows, parse_arguments, read
from harmonium.data.files import weighted
from harmonium.distributed import count_started, init_process_group
from harmonium.machine import BoltzmannMachine
from harmonium.tables import (
    DECIDED,
    Codec,
    ColumnCodec,
    Fitting,
    as_root,
    make_rule,
    name_objective,
    read_kinds,
    say_unused,
)
from harmonium.tasks import metrics_for
from harmonium.training import Callback, Steps, TrainingRun, callbacks, refuse_run, stream_seed

EXAMPLES = (
    "harmonium train digits runs/digits --binarise sample --hidden 200",
    "harmonium train rows.csv runs/rows --label species --hidden 50",
    "harmonium train digits runs/deep --binarise sample --hidden 200,100",
    "harmonium train --config runs/digits/run.toml runs/again --seed 1",
    "harmonium train --resume runs/digits",
    "harmonium train --from runs/digits runs/slower --learning-rate 0.005",
)

# Of --until-correlation: looks during a run, a fifth of its time; looks without a rise until it ends,
# and the least rise, twice the scatter of 1,000 chains.
_LOOKS, _PATIENCE, _RISE = 20, 4, 0.005
_SHOWN = ("hidden", "updates", "learning_rate", *DECIDED)  # where the data have chosen them


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

    Under torchrun several processes train one machine, each with its rows and chains.

    Ctrl-C or SIGTERM keeps a checkpoint, from which --resume goes on as if nothing had happened. The exit
    status is then 130 or 143.

    Args:
        config: settings, DATA among them, from a TOML file such as RUN/run.toml.
        resume: continue the run in RUN_DIR, with its own settings and DATA.
    """
    settings, stored = settings_in_force(ctx, settings, config, resume)
    run_dir = Path(str(settings.run_dir))
    if settings.threads is not None:  # in the file
        torch.set_num_threads(settings.threads)
    if not (resume or overwrite) and options.is_leading():
        refuse_run(run_dir)
    stored = replace(stored, kinds=read_kinds(settings.kinds) if settings.kinds else stored.kinds)
    device, asked = options.as_device(settings.device), settings
    with working("reading the data"):
        settings, fitting, dataset, watch = _prepare(settings, stored.kinds)
    if unused := list_unused(settings, settings.method):
        names = [settings_of(TrainSettings)[x].option or f"--{x.replace('_', '-')}" for x in unused]
        note(f"warning: {say_unused(names, settings.method)}")
    if fitting.exact and not options.is_leading():
        return {}
    if resume and not overwrite and not run_dir.exists():
        note(f"there is nothing to resume in {run_dir}: a new run starts")
    watch |= {"device": device, "run_file": stored.text(settings), "resume": resume, "overwrite": overwrite}
    run = _fit(settings, fitting, watch)
    if not options.is_leading():
        return {}
    result = _summary(run, fitting, dataset, watch["callbacks"])
    chosen = {name: getattr(settings, name) for name in _SHOWN if getattr(asked, name) is None}
    if said := [f"{name} {format_value(value)}" for name, value in chosen.items() if value is not None]:
        result["chosen_by_data"] = ", ".join(said)
    if run.status == "interrupted":
        of = "" if fitting.exact else f" of {fitting.decided['updates']}"
        again = shlex.join(["harmonium", "train", "--resume", str(run_dir)])
        note(f"interrupted after {run.updates}{of} updates; {run_dir / CHECKPOINT} is kept: {again} goes on")
        assert run.signal is not None
        raise Unfinished(result, 128 + run.signal)
    with working("comparing with independent columns"):
        collapse = fitting.find_collapse(run.averaged_machine or run.machine, settings.seed)
    if collapse is not None:
        verdict = f"{collapse}; a third of --learning-rate, another --seed or --rule cd may help"
        raise Unfinished({**result, "verdict": verdict}, 1)
    return result


def _prepare(
    settings: TrainSettings, kinds: Mapping[str, Any]
) -> tuple[TrainSettings, Fitting, DataSet, dict[str, Any]]:
    """Reads the data, begins a machine or goes on with one, and plans how it learns.

    Returns:
        The settings with the data's choices, the machine with its rows, what was read, and the metrics,
        validation and callbacks of ``harmonium.train``.
    """
    if settings.until_correlation is not None and settings.early_stopping is not None:
        raise ValueError(
            f"early_stopping: expected none with --until-correlation, received {settings.early_stopping}; "
            "either of them ends the run and chooses its machine"
        )
    rule, centred = settings.rule or "pcd", bool(settings.centred)
    rule_settings: dict[str, Any] = {"batch_size": settings.batch_size, "centred": centred}
    rule_settings |= {} if settings.sweeps is None else {"sweeps": settings.sweeps}
    # Mistakes of rules are told before data are read, which may take long, and where sums are exact too.
    settings.with_rule_options(lambda chosen: make_rule(rule, settings.optimizer, **rule_settings, **chosen))
    fitting, dataset = _begin(settings, kinds)
    settings = _settle(settings, fitting)
    held, metrics, watchers = _held_out(fitting.machine, settings), dict[str, Any](), list[Callback]()
    validation = None if held is None else held.all()
    if held is not None:
        # Where hidden units can be summed out, the likelihood itself is at hand.
        likely = "likelihood" if fitting.exact and fitting.share is None else None
        metrics = metrics_for(fitting.machine, held, settings.metric or likely, seed=settings.seed)
    if settings.early_stopping is not None and not fitting.exact:
        watchers.append(callbacks.EarlyStopping(next(iter(metrics)), settings.early_stopping))
    if settings.until_correlation is not None and not fitting.exact:
        from harmonium.report import pair_correlation  # slow to import, and only this option needs it

        rows = fitting.rows
        metrics = pair_correlation(fitting.machine, rows, fitting.weights, seed=settings.seed) | metrics
        validation = rows.take(rows.spread(1)) if held is None else validation
        every = settings.evaluate_every or max(1, fitting.decided["updates"] // _LOOKS)
        settings, goal = replace(settings, evaluate_every=every), settings.until_correlation
        watchers.append(callbacks.EarlyStopping("pair_correlation", _PATIENCE, _RISE, target=goal))
    watch = {"metrics": metrics or None, "validation": validation, "callbacks": watchers}
    return settings, fitting, dataset, watch


def _settle(settings: TrainSettings, fitting: Fitting) -> TrainSettings:
    """Plans how a machine learns; returns the settings with what the data decide where nothing is given."""
    machine, share = fitting.machine, fitting.share
    names = ("batch_size", "epochs", "learning_rate", *DECIDED)
    user_steps = {name: value for name in names if (value := getattr(settings, name)) is not None}
    settings.with_rule_options(lambda chosen: fitting.plan(options=chosen, **user_steps))
    if settings.updates is not None and not fitting.exact:
        fitting.decided["updates"] = settings.updates
    decided = {**fitting.decided, **({} if settings.epochs is None else {"updates": settings.updates})}
    sizes = [str(machine.layers[l].n_units) for l in machine.hidden]
    return replace(
        settings,
        method=fitting.method,
        hidden=settings.hidden if settings.from_run else settings.hidden or sizes,
        objective=None if share is None else name_objective(share),
        joint=share if share is not None and 0 < share < 1 else None,
        threads=torch.get_num_threads(),
        **decided,
    )


def _fit(settings: TrainSettings, fitting: Fitting, watch: dict[str, Any]) -> TrainingRun:
    """Trains a machine as planned, by exact sums or by chains, in its folder."""
    arguments: dict[str, Any] = {f.name: getattr(settings, f.name) for f in fields(Steps)}
    arguments |= watch | {
        "seed": stream_seed(as_root(settings.seed), "train"),
        "evaluate_every": settings.evaluate_every or (sys.maxsize if fitting.exact else None),  # the end
        "run_dir": settings.run_dir,
        "checkpoint_every": settings.checkpoint_every,
    }
    if fitting.exact:
        with working("summing over the hidden units"):
            return fitting.train(**arguments)
    if count_started() > 1:
        arguments["distributed"] = "auto"
    with init_process_group(watch["device"]):
        return fitting.train(**arguments)


def _held_out(machine: BoltzmannMachine, settings: TrainSettings) -> Rows | None:
    """Reads the rows of --validation."""
    if settings.validation is None:
        for name in ("metric", "early_stopping"):
            if (value := getattr(settings, name)) is not None:
                raise ValueError(f"{name}: expected together with --validation, received {value} without")
        return None
    codec = Codec.of(machine)
    return codec.observed_rows(codec.read(settings.validation), missing=True)


def _summary(
    run: TrainingRun, fitting: Fitting, dataset: DataSet, watchers: Sequence[Callback]
) -> dict[str, Any]:
    """Returns the outcome of a run."""
    assert run.run_dir is not None
    best: dict[str, Any] = {}
    for watcher in watchers:
        if isinstance(watcher, callbacks.EarlyStopping) and watcher.best is not None:
            best = {"best": {watcher.metric: watcher.best, "updates": watcher.best_step}}
    learned = {"training": "exact, by sums over the hidden states"}
    if fitting.rule is not None:
        learned = {"rule": fitting.rule.name, "bias": fitting.rule.bias}
    return {
        "run": run.run_dir,
        "status": run.status,
        "updates": run.updates,
        "seconds": round(run.seconds, 3),
        "data": dataset.name,
        "rows": int(dataset.samples.shape[0]),
        **({} if fitting.weights is None else {"effective_rows": float(fitting.weights.sum())}),
        "layers": [str(layer) for layer in run.machine.layers],
        **learned,
        "metrics": run.metrics,
        **best,
        "next": shlex.join(["harmonium", "report", str(run.run_dir)]),
    }


def _begin(settings: TrainSettings, kinds: Mapping[str, Any]) -> tuple[Fitting, DataSet]:
    """Reads the data and begins with a machine that has learned nothing; messages name the data."""
    if settings.from_run is not None:
        return _go_on(settings)
    data, label = str(settings.data), settings.label
    dataset = read(
        data,
        labels_apart=label is None,
        alphabet=settings.alphabet or "auto",
        unknown=settings.unknown or "gap",
        **parse_arguments(settings.read or ()),
    )
    dataset = weighted(dataset, settings.weights, settings.reweight)
    for name in ("alphabet", "unknown"):
        if getattr(settings, name) is not None and dataset.alignment is None:
            raise ValueError(f"{name}: expected with a file of sequences, received {data}")
    for decided in (*dataset.notes, *(() if dataset.alignment is None else dataset.alignment.notes)):
        note(f"{dataset.name}: {decided}")
    rest, labels = (dataset, None) if label is None else dataset.take_label(label)
    codec = Codec.fit(
        rest,
        settings.visible,
        kinds,
        binarise=settings.binarise,
        seed=settings.seed,
        images=settings.may_learn_images,
    )
    codec = codec if labels is None else codec.with_label(ColumnCodec.fit_label(labels))
    rest, labels = codec.learnable(rest, labels)
    fitting = Fitting.begin(
        codec,
        rest,
        labels,
        rest.row_weights(settings.reweight),
        settings.hidden_layers(),
        share=settings.share(label),
        std=settings.initial_std,
        seed=as_root(settings.seed),
        method=settings.method,
        init=settings.init,
        steered=bool(list_unused(settings, "exact")),
    )
    fitting.machine.metadata["data"] = _description(dataset, settings, dataset.names)
    return fitting, dataset


def _go_on(settings: TrainSettings) -> tuple[Fitting, DataSet]:
    """Begins with the machine of another run, which goes on from what it has learned."""
    data = str(settings.data)
    if settings.method == "exact":
        raise ValueError("method: expected auto or chains with --from, as exact begins again; received exact")
    machine, _ = runs.load_machine(Path(str(settings.from_run)), averaged=False)
    codec = Codec.of(machine, settings.unknown)
    dataset = weighted(codec.read(data), settings.weights, settings.reweight)
    rest, labels = codec.learnable(*codec.apart(dataset))
    label = None if codec.label is None else str(codec.label.name)
    learned = codec.objective if label is not None else None
    share = replace(settings, objective=settings.objective or learned).share(label)
    weights = rest.row_weights(settings.reweight)
    fitting = Fitting.go_on(codec.widened(rest), rest, labels, weights, share=share, name=dataset.name)
    if share not in (None, 1.0) and bool(fitting.rows.all()[:, -codec.label_width :].isnan().all()):
        raise ValueError(
            f"DATA: expected labels in a column {label!r}, which the machine learns to tell, received none; "
            "--objective joint learns of rows without them"
        )
    names = dataset.names if codec.names is None else codec.names
    machine.metadata["data"] = _description(dataset, settings, names)
    return fitting, dataset


def _description(dataset: DataSet, settings: TrainSettings, names: Sequence[str] | None) -> dict[str, Any]:
    """Returns what a machine remembers of the data that it learns, by which others are read."""
    alignment = dataset.alignment
    known = {
        "reweight": settings.reweight,
        "weights": None if settings.weights is None else str(settings.weights),
        "read": dict(dataset.read) or None,
        "ambiguous": alignment.ambiguous_share if alignment is not None and alignment.ambiguous else None,
        "names": None if names is None else list(names),
    }
    about = {"name": dataset.name, "source": str(settings.data), "image_shape": dataset.image_shape}
    return about | {name: value for name, value in known.items() if value is not None}
