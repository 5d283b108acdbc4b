"""``harmonium train``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, final

import torch
import typer
from torch import Tensor

from harmonium._settings import Setting, list_unused, settings_of
from harmonium._storage import CHECKPOINT, MACHINE
from harmonium.cli import options, runs
from harmonium.cli.output import Unfinished, note, working
from harmonium.cli.settings import TrainSettings, settings_in_force
from harmonium.data import DataSet, Rows, read
from harmonium.data._text_files import Dialect, split_words
from harmonium.data.beside import weighted
from harmonium.distributed import SHARDS, init_process_group
from harmonium.machine import BoltzmannMachine
from harmonium.report import pair_correlation
from harmonium.tables import Codec, Fitting, read_kinds, without_units
from harmonium.tasks import metrics_for
from harmonium.training import (
    AVERAGED,
    DECIDED,
    EVENTS,
    Callback,
    Steps,
    TrainingRun,
    as_root,
    callbacks,
    key_of,
    make_rule,
    name_objective,
    refuse_run,
    say_unused,
    stream_seed,
)

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
        refuse_run(run_dir)
    stored = replace(stored, kinds=read_kinds(settings.kinds) if settings.kinds else stored.kinds)
    device = options.as_device(settings.device)
    with working("reading the data"):
        plan = _prepare(settings, stored.kinds)
    settings = plan.settings
    if unused := list_unused(settings, settings.method):
        names = [f"--{key_of(name, settings_of(TrainSettings)[name]).replace('_', '-')}" for name in unused]
        note(f"warning: {say_unused(names, settings.method)}")
    if plan.fitting.exact and not options.is_leading():
        return {}
    if resume and not overwrite and not run_dir.exists():
        note(f"there is nothing to resume in {run_dir}: a new run starts")
    again = f"{shlex.join(['harmonium', 'train', '--resume', str(run_dir)])} continues the run"
    try:
        run = _fit(plan, device, stored.text(settings), resume=resume, overwrite=overwrite)
    except KeyboardInterrupt:
        note(f"interrupted; the last checkpoint in {run_dir}, if any, is kept: {again}")
        raise
    if not options.is_leading():
        return {}
    result = _summary(run, plan)
    if run.status == "interrupted":
        of = "" if plan.fitting.exact else f" of {plan.fitting.decided['updates']}"
        note(f"interrupted after {run.updates}{of} updates; {run_dir / CHECKPOINT} is kept: {again}")
        assert run.signal is not None
        raise Unfinished(result, 128 + run.signal)
    with working("comparing with independent columns"):
        collapse = plan.fitting.find_collapse(run.averaged_machine or run.machine, settings.seed)
    if collapse is not None:
        verdict = f"{collapse}; a third of --learning-rate, another --seed or --rule cd may help"
        raise Unfinished({**result, "verdict": verdict}, 1)
    return result


@final
@dataclass
class Plan:
    """A training that can begin.

    Attributes:
        settings: what is in force, the data's choices included.
        fitting: the machine with its rows, and how it learns.
        dataset: what was read.
        metrics: Metrics by name, the one to follow first; None: there are none.
        validation: Rows that they judge.
        chosen: settings that nobody gave, by the data, as they are in force.
        watchers: callbacks that end a run.
    """

    settings: TrainSettings
    fitting: Fitting
    dataset: DataSet
    metrics: dict[str, Any] | None
    validation: Tensor | None
    chosen: dict[str, Any]
    watchers: list[Callback]


def _check(settings: TrainSettings) -> None:
    """Refuses settings that do not go together before the data are read, which may take long."""
    settings.hidden_layers()
    if settings.until_correlation is not None and settings.early_stopping is not None:
        raise ValueError(
            f"early_stopping: expected none with --until-correlation, received {settings.early_stopping}; "
            "either of them ends the run and chooses its machine"
        )
    if settings.from_run is None:
        settings.share(settings.label)
    centred = bool(settings.centred)
    told: dict[str, Any] = {} if settings.sweeps is None else {"sweeps": settings.sweeps}
    rule, optimizer, told = settings.rule or "pcd", settings.optimizer, {"centred": centred, **told}
    settings.with_rule_options(lambda own: make_rule(rule, optimizer, batch_size=None, **told, **own))


def _prepare(settings: TrainSettings, kinds: Mapping[str, Any]) -> Plan:
    """Reads the data, begins a machine or goes on with one, and plans how it learns."""
    _check(settings)
    fitting, dataset, asked = *_begin(settings, kinds), settings
    settings, recipe = _settle(settings, fitting), fitting.recipe
    by_data = (name for name in _SHOWN if getattr(asked, name) is None)
    chosen = {name: value for name in by_data if (value := getattr(settings, name)) is not None}
    held, metrics, watchers = _held_out(fitting.machine, settings), None, list[Callback]()
    if held is not None:
        # Where hidden units can be summed out, the likelihood itself is at hand.
        likely = "likelihood" if fitting.exact and fitting.share is None else None
        metrics = metrics_for(fitting.machine, held, settings.metric or likely, seed=settings.seed)
    validation = None if held is None else held.all()
    if settings.early_stopping is not None and metrics is not None and not fitting.exact:
        watchers.append(callbacks.EarlyStopping(next(iter(metrics)), settings.early_stopping))
    if settings.until_correlation is not None and not fitting.exact:
        rows, goal = fitting.rows, settings.until_correlation
        agreement = pair_correlation(recipe.machine, rows, fitting.weights, seed=settings.seed)
        metrics = {**agreement, **(metrics or {})}
        validation = rows.take(rows.spread(1)) if held is None else validation
        every = settings.evaluate_every or max(1, fitting.decided["updates"] // _LOOKS)
        settings = replace(settings, evaluate_every=every)
        watchers.append(callbacks.EarlyStopping("pair_correlation", _PATIENCE, _RISE, target=goal))
    if settings.tensorboard:
        watchers.append(callbacks.TensorBoard(Path(str(settings.run_dir)) / EVENTS))
    return Plan(settings, fitting, dataset, metrics, validation, chosen, watchers)


def _settle(settings: TrainSettings, fitting: Fitting) -> TrainSettings:
    """Plans how a machine learns; returns the settings with what the data decide where nothing is given."""
    several, recipe, share = options.count_processes() > 1, fitting.recipe, fitting.share
    shards = SHARDS if several and settings.shards is None else settings.shards
    given = {name: getattr(settings, name) for name in ("batch_size", "epochs", "learning_rate", *DECIDED)}
    chains = settings.batch_size if shards is None else None  # which shards deal out
    settings.with_rule_options(lambda own: fitting.plan(options=own, chains=chains, **given))
    if settings.updates is not None and not fitting.exact:
        fitting.decided["updates"] = settings.updates
    decided = {**fitting.decided, **({} if settings.epochs is None else {"updates": settings.updates})}
    sizes = [str(recipe.machine.layers[l].n_units) for l in recipe.machine.hidden]
    return replace(
        settings,
        method=recipe.method,
        hidden=settings.hidden if settings.from_run else settings.hidden or sizes,
        objective=None if share is None else name_objective(share),
        joint=share if share is not None and 0 < share < 1 else None,
        threads=torch.get_num_threads(),
        shards=shards,
        **decided,
    )


def _fit(plan: Plan, device: torch.device, text: str, *, resume: bool, overwrite: bool) -> TrainingRun:
    """Trains the machine of a plan, by exact sums or by chains, in its folder."""
    settings, fitting = plan.settings, plan.fitting
    every = settings.evaluate_every
    watch: dict[str, Any] = {
        "seed": stream_seed(as_root(settings.seed), "train"),
        "device": device,
        "validation": plan.validation,
        "metrics": plan.metrics,
        "evaluate_every": every or (sys.maxsize if fitting.exact else None),  # the end at any rate
        "callbacks": plan.watchers,
        "run_dir": settings.run_dir,
        "checkpoint_every": settings.checkpoint_every,
        "run_file": text,
        "resume": resume,
        "overwrite": overwrite,
    }
    if fitting.exact:
        with working("summing over the hidden units"):
            return fitting.train(**watch)
    steps = {each.name: getattr(settings, each.name) for each in fields(Steps)}
    shards: dict[str, Any] = (
        {} if settings.shards is None else {"distributed": "auto", "shards": settings.shards}
    )
    with init_process_group(device):
        return fitting.train(**steps, **shards, **watch)


def _held_out(machine: BoltzmannMachine, settings: TrainSettings) -> Rows | None:
    """Reads the rows of --validation."""
    if settings.validation is None:
        for name in ("metric", "early_stopping"):
            value = getattr(settings, name)
            if value is not None:
                raise ValueError(f"{name}: expected together with --validation, received {value} without")
        return None
    codec = Codec.of(machine)
    return codec.observed_rows(codec.read(settings.validation), missing=True)


def _summary(run: TrainingRun, plan: Plan) -> dict[str, Any]:
    """Returns the outcome of a run."""
    assert run.run_dir is not None
    fitting = plan.fitting
    best: dict[str, Any] = {}
    for each in plan.watchers:
        if isinstance(each, callbacks.EarlyStopping) and each.best is not None:
            best = {"best": {each.metric: each.best, "updates": each.best_step}}
    return {
        "run": run.run_dir,
        "status": run.status,
        "updates": run.updates,
        "seconds": round(run.seconds, 3),
        **({} if run.clipped is None else {"clipped": round(run.clipped, 4)}),
        "data": plan.dataset.name,
        "rows": int(plan.dataset.samples.shape[0]),
        **({} if fitting.weights is None else {"effective_rows": float(fitting.weights.sum())}),
        "layers": [str(layer) for layer in run.machine.layers],
        **(
            {"training": "exact, by sums over the hidden states"}
            if fitting.rule is None
            else {"rule": fitting.rule.name, "bias": fitting.rule.bias}
        ),
        "metrics": run.metrics,
        **best,
        "files": [name for name in (MACHINE, AVERAGED, CHECKPOINT) if (run.run_dir / name).exists()],
        "chosen_by_data": ", ".join(_in_words(*each) for each in plan.chosen.items()),
        "next": shlex.join(["harmonium", "report", str(run.run_dir)]),
    }


def _in_words(name: str, value: Any) -> str:
    """Returns a setting with its value for one line."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{name.replace('_', ' ')} {'+'.join(value) if isinstance(value, list) else text}"


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
        missing_words=settings.missing_words or (),
        known=without_units(kinds),
    )
    dataset.warn_of_unseen_words()
    dataset = weighted(dataset, settings.weights, settings.reweight)
    if settings.alphabet is not None and dataset.alignment is None:
        raise ValueError(f"alphabet: expected with a file of sequences, received {data}")
    for decided in () if dataset.alignment is None else dataset.alignment.notes:
        note(f"{dataset.name}: {decided}")
    rest, labels = (dataset, None) if label is None else dataset.take_label(label)
    codec = Codec.fit(
        rest,
        settings.visible,
        kinds,
        binarise=settings.binarise,
        seed=settings.seed,
        unknown=settings.unknown or "missing",
        missing=False,
        images=settings.may_learn_images,
    )
    codec = codec if labels is None else codec.with_label(labels)
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
    about = _description(dataset, data, settings)
    if settings.missing_words is not None:
        about["missing_words"] = split_words(settings.missing_words)
    fitting.machine.metadata["data"] = about
    return fitting, dataset


def _go_on(settings: TrainSettings) -> tuple[Fitting, DataSet]:
    """Begins with the machine of another run, which goes on from what it has learned."""
    data = str(settings.data)
    if settings.method == "exact":
        raise ValueError("method: expected auto or chains with --from, as exact begins anew; received exact")
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
    about = _description(dataset, data, settings)
    if codec.names is not None:
        about["names"] = list(codec.names)
    if codec.missing_words:
        about["missing_words"] = list(codec.missing_words)
    machine.metadata["data"] = about
    return fitting, dataset


def _description(dataset: DataSet, source: str, settings: TrainSettings) -> dict[str, Any]:
    about: dict[str, Any] = {"name": dataset.name, "source": source, "image_shape": dataset.image_shape}
    if settings.reweight is not None:
        about["reweight"] = settings.reweight
    if settings.weights is not None:
        about["weights"] = str(settings.weights)
    if dataset.dialect != Dialect():
        about["dialect"] = list(dataset.dialect)
    if dataset.alignment is not None and dataset.alignment.ambiguous:
        about["ambiguous"] = dataset.alignment.ambiguous_share
    return about if dataset.names is None else {**about, "names": list(dataset.names)}
