"""``harmonium train``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, final

import torch
import typer
from torch import Tensor

from harmonium._random import as_generator
from harmonium._settings import Setting, list_unused, settings_of
from harmonium._storage import CHECKPOINT, MACHINE
from harmonium.cli import options, runs
from harmonium.cli.output import Unfinished, note, working
from harmonium.cli.settings import TrainSettings, settings_in_force
from harmonium.data import DataSet, Rows, read
from harmonium.data._text_files import Dialect, split_words
from harmonium.data.beside import weighted
from harmonium.distributed import SHARDS, init_process_group
from harmonium.learning import Rule, rules
from harmonium.machine import BoltzmannMachine
from harmonium.report import pair_correlation
from harmonium.tables import Codec, find_collapse, fit_exactly, read_kinds, without_units
from harmonium.tasks import metrics_for
from harmonium.training import (
    AVERAGED,
    DECIDED,
    EVENTS,
    Callback,
    Recipe,
    Steps,
    TrainingRun,
    as_root,
    callbacks,
    check_rows,
    choose,
    key_of,
    name_objective,
    note_sampler,
    refuse_run,
    say_unused,
    stream_seed,
    train as fit,
    train_slower,
    updates_of,
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
_JUDGED = 2048  # training rows: 784 pixels fitted to them are known to 0.2 nats


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
    if config is not None:
        stored.warn_of_differences()
    _check(settings)
    stored = replace(stored, kinds=read_kinds(settings.kinds) if settings.kinds else stored.kinds)
    device = options.as_device(settings.device)
    with working("reading the data"):
        plan = _prepare(settings, stored.kinds)
    settings = plan.settings
    if unused := list_unused(settings, settings.method):
        names = [f"--{key_of(name, settings_of(TrainSettings)[name]).replace('_', '-')}" for name in unused]
        note(f"warning: {say_unused(names, settings.method)}")
    if plan.exact and not options.is_leading():
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
        of = "" if plan.exact else f" of {plan.total}"
        note(f"interrupted after {run.updates}{of} updates; {run_dir / CHECKPOINT} is kept: {again}")
        assert run.signal is not None
        raise Unfinished(result, 128 + run.signal)
    if (collapse := _find_collapse(run, plan)) is not None:
        verdict = f"{collapse}; a third of --learning-rate, another --seed or --rule cd may help"
        raise Unfinished({**result, "verdict": verdict}, 1)
    return result


@final
@dataclass
class Plan:
    """A training that can begin.

    Attributes:
        settings: what is in force, the data's choices included.
        beginning: the machine with its data.
        rule: the learning rule, of training by chains.
        share: weight of ln p(rest, label) in what is learned; None: there is no label.
        metrics: Metrics by name, the one to follow first; None: there are none.
        validation: Rows that they judge.
        chosen: settings that nobody gave, by the data, as they are in force.
        watchers: callbacks of the last attempt.
    """

    settings: TrainSettings
    beginning: Beginning
    rule: Rule
    share: float | None
    metrics: dict[str, Any] | None
    validation: Tensor | None
    chosen: dict[str, Any]
    watchers: list[Callback] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """True if the machine is trained without chains."""
        return self.settings.method == "exact"

    @property
    def total(self) -> int:
        """Updates of training by chains."""
        settings = self.settings
        return settings.updates or updates_of(
            settings.epochs or 1, len(self.beginning.X), settings.batch_size
        )

    def watched(self) -> list[Callback]:
        """Returns new callbacks, as every attempt of training needs them."""
        self.watchers.clear()
        settings, made = self.settings, self.watchers
        if settings.early_stopping is not None and self.metrics is not None and not self.exact:
            made.append(callbacks.EarlyStopping(next(iter(self.metrics)), settings.early_stopping))
        if settings.until_correlation is not None and not self.exact:
            goal = settings.until_correlation
            made.append(callbacks.EarlyStopping("pair_correlation", _PATIENCE, _RISE, target=goal))
        if settings.tensorboard:
            made.append(callbacks.TensorBoard(Path(str(settings.run_dir)) / EVENTS))
        return made


def _check(settings: TrainSettings) -> None:
    """Refuses settings that do not go together before the data are read, which may take long."""
    settings.hidden_layers(), _make_rule(settings)
    if settings.until_correlation is not None and settings.early_stopping is not None:
        raise ValueError(
            f"early_stopping: expected none with --until-correlation, received {settings.early_stopping}; "
            "either of them ends the run and chooses its machine"
        )
    if settings.from_run is None:
        settings.share(settings.label)


def _prepare(settings: TrainSettings, kinds: Mapping[str, Any]) -> Plan:
    """Reads the data and begins a machine, or goes on with one."""
    fresh = settings.from_run is None
    beginning = Beginning.new(settings, kinds) if fresh else Beginning.trained(settings)
    machine, X = beginning.machine, beginning.X
    asked, (settings, share) = settings, _decide(settings, beginning)
    by_data = (name for name in _SHOWN if getattr(asked, name) is None)
    chosen = {name: value for name in by_data if (value := getattr(settings, name)) is not None}
    exact, rule = settings.method == "exact", _make_rule(settings)
    if not exact:
        note_sampler(machine, rule)
    if share is not None:
        rule = rules.hybrid(rule, range(len(machine.visible) - 1), share)
        machine.metadata["objective"] = name_objective(share)
    held = _held_out(machine, settings)
    # Where hidden units can be summed out, the likelihood itself is at hand.
    followed = settings.metric or ("likelihood" if exact and share is None else None)
    metrics = None if held is None else metrics_for(machine, held, followed, seed=settings.seed)
    plan = Plan(settings, beginning, rule, share, metrics, None if held is None else held.all(), chosen)
    if settings.until_correlation is not None and not exact:
        agreement = pair_correlation(machine, X, beginning.weights, seed=settings.seed)
        plan.metrics = {**agreement, **(metrics or {})}
        plan.validation = X.take(X.spread(1)) if held is None else plan.validation
        every = settings.evaluate_every or max(1, plan.total // _LOOKS)
        plan.settings = replace(settings, evaluate_every=every)
    return plan


def _fit(plan: Plan, device: torch.device, text: str, *, resume: bool, overwrite: bool) -> TrainingRun:
    """Trains the machine of a plan, by exact sums or by chains, in its folder."""
    settings, beginning, run_dir = plan.settings, plan.beginning, Path(str(plan.settings.run_dir))
    every = settings.evaluate_every
    watch: dict[str, Any] = {
        "seed": stream_seed(as_root(settings.seed), "train"),
        "device": device,
        "validation": plan.validation,
        "metrics": plan.metrics,
        "evaluate_every": every or (sys.maxsize if plan.exact else None),  # the end at any rate
        "run_dir": run_dir,
        "checkpoint_every": settings.checkpoint_every,
        "run_file": text,
    }
    folder: dict[str, Any] = {"resume": resume, "overwrite": overwrite}
    X, weights = beginning.X, beginning.weights
    if plan.exact:
        with working("summing over the hidden units"):
            seen = plan.watched()
            return fit_exactly(beginning.recipe, X, weights, plan.share, callbacks=seen, **folder, **watch)
    steps = {each.name: getattr(settings, each.name) for each in fields(Steps)}
    rate: float = steps.pop("learning_rate")
    shards = {} if settings.shards is None else {"distributed": "auto", "shards": settings.shards}

    def attempt(factor: float, **again: bool) -> TrainingRun:
        """Trains by chains at this times the learning rate."""
        given = {**steps, **shards, **watch, **again, "learning_rate": rate * factor}
        seen = plan.watched()
        return fit(beginning.machine, X, rule=plan.rule, weights=weights, callbacks=seen, **given)

    with init_process_group(device):
        return train_slower(attempt, beginning.machine, run_dir=run_dir, learning_rate=rate, **folder)


def _find_collapse(run: TrainingRun, plan: Plan) -> str | None:
    """Returns what shows that chains left a machine worse than independent columns; None: it is not."""
    if plan.exact or not plan.rule.learns_density:
        return None
    X, weights = plan.beginning.X, plan.beginning.weights
    judged = X.spread(_JUDGED)
    weights = None if weights is None else weights[judged]
    with working("comparing with independent columns"):
        trained = run.averaged_machine or run.machine
        return find_collapse(trained, X.take(judged), weights, seed=plan.settings.seed)


def _decide(settings: TrainSettings, beginning: Beginning) -> tuple[TrainSettings, float | None]:
    """Returns the settings with what depends on the data decided, and the share of ln p(rest, label)."""
    coding, goes_on = Codec.of(beginning.machine), settings.from_run is not None
    label = None if coding.label is None else str(coding.label.name)
    learned = coding.objective if goes_on and label is not None else None
    objective, share = replace(settings, objective=settings.objective or learned).share(label)
    learns_label = goes_on and label is not None and objective != "joint"
    if learns_label and bool(beginning.X.all()[:, -coding.label_width :].isnan().all()):
        raise ValueError(
            f"DATA: expected labels in a column {label!r}, which the machine learns to tell, received none; "
            "--objective joint learns of rows without them"
        )
    settings = settings.decided(beginning.recipe, beginning.X, beginning.weights)
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
    """Reads the rows of --validation."""
    if settings.validation is None:
        for name in ("metric", "early_stopping"):
            value = getattr(settings, name)
            if value is not None:
                raise ValueError(f"{name}: expected together with --validation, received {value} without")
        return None
    coding = Codec.of(machine)
    return coding.observed_rows(coding.read(settings.validation), missing=True)


def _summary(run: TrainingRun, plan: Plan) -> dict[str, Any]:
    """Returns the outcome of a run."""
    assert run.run_dir is not None
    beginning, rule = plan.beginning, plan.rule
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
        "data": beginning.dataset.name,
        "rows": int(beginning.dataset.samples.shape[0]),
        **({} if beginning.weights is None else {"effective_rows": float(beginning.weights.sum())}),
        "layers": [str(layer) for layer in run.machine.layers],
        **(
            {"training": "exact, by sums over the hidden states"}
            if plan.exact
            else {"rule": rule.name, "bias": rule.bias}
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


@final
@dataclass(frozen=True)
class Beginning:
    """A machine with its data.

    Attributes:
        recipe: the machine, whose metadata say how data become states and which data these were, and how it
            is trained.
        X: states, as ``harmonium.train`` takes them.
        dataset: what was read.
        weights: Row weights, (rows,); None means uniform.
    """

    recipe: Recipe
    X: Rows
    dataset: DataSet
    weights: Tensor | None = None

    @property
    def machine(self) -> BoltzmannMachine:
        """The machine that is trained."""
        return self.recipe.machine

    @classmethod
    def new(cls, settings: TrainSettings, kinds: Mapping[str, Any]) -> Beginning:
        """Begins with a machine that has learned nothing; messages name the data."""
        data, label = str(settings.data), settings.label
        reading: dict[str, Any] = {
            "alphabet": settings.alphabet or "auto",
            "unknown": settings.unknown or "gap",
            "missing_words": settings.missing_words or (),
            "known": without_units(kinds),
        }
        dataset = read(data, labels_apart=label is None, **reading)
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
        visible, count = codec.layers, int(rest.samples.shape[0])
        if labels is not None:
            codec = codec.with_label(labels)
        recipe = choose(
            codec.encoder,
            visible,
            count,
            settings.hidden_layers(),
            kind=settings.hidden_kind,
            n_states=settings.hidden_states,
            label=None if labels is None else codec.layers[-1],
            method=settings.method,
            init=settings.init,
            steered=bool(list_unused(settings, "exact")),
        )
        rest, labels = codec.learnable(rest, labels)
        weights, machine = rest.row_weights(settings.reweight), recipe.machine
        generator = as_generator(stream_seed(as_root(settings.seed), "couplings"))
        rows = codec.rows(rest, machine.dtype, labels, shown="anything")
        if recipe.method == "chains":
            std = settings.initial_std
            std = recipe.defaults.initial_std if std is None else std
            recipe.start_(rows, weights, std, generator)
        about = _description(dataset, data, settings)
        if settings.missing_words is not None:
            about["missing_words"] = split_words(settings.missing_words)
        machine.metadata = {**codec.to_dict(), "data": about}
        return cls(recipe, rows, dataset, weights)

    @classmethod
    def trained(cls, settings: TrainSettings) -> Beginning:
        """Begins with the machine of another run, which goes on from what it has learned."""
        data = str(settings.data)
        if settings.method == "exact":
            raise ValueError(
                "method: expected auto or chains with --from, as exact begins anew; received exact"
            )
        machine, _ = runs.load_machine(Path(str(settings.from_run)), averaged=False)
        coding = Codec.of(machine, settings.unknown)
        dataset = weighted(coding.read(data), settings.weights, settings.reweight)
        rest, labels = coding.learnable(*coding.apart(dataset))
        coding, weights = coding.widened(rest), rest.row_weights(settings.reweight)
        X = coding.rows(rest, machine.dtype, labels, shown="anything")
        check_rows(machine, X, dataset.name)
        about = _description(dataset, data, settings)
        if coding.names is not None:
            about["names"] = list(coding.names)
        if coding.missing_words:
            about["missing_words"] = list(coding.missing_words)
        machine.metadata = {**machine.metadata, **coding.to_dict(), "data": about}
        machine.metadata.pop("linear", None)  # lines chosen for the machine as it was
        family = coding.alphabet is not None
        return cls(Recipe(machine, "chains", coding.label is not None, family), X, dataset, weights)


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
