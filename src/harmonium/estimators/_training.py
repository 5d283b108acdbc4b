"""The training behind ``fit`` and ``partial_fit``: from parameters and rows to another fitted machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, fields, replace
from functools import partial
from numbers import Integral
from typing import Any, final

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor

from harmonium import _checks, _random
from harmonium._random import as_generator
from harmonium._settings import list_unused
from harmonium.data import Rows, bernoulli_binarise
from harmonium.estimators._fitted import Fitted, Progress
from harmonium.estimators._intake import fit_codec
from harmonium.layers import Layer
from harmonium.learning import Rule, rules
from harmonium.machine import BoltzmannMachine, check_init, hidden_for
from harmonium.tables import Codec, Table, find_collapse, fit_exactly
from harmonium.training import (
    IMAGES,
    OPTIMIZERS,
    EarlyStopping,
    OptimizerFactory,
    Recipe,
    Settings,
    TrainingRun,
    Update,
    check_rows,
    choose,
    learns_images,
    make_rule,
    note_sampler,
    say_unused,
    train,
    train_slower,
)

_STRUCTURE = ("n_hidden", "hidden_kind", "hidden_states", "visible", "unknown", "binarise", "dtype")
_DECIDED = {"rule", "epochs", "learning_rate", "optimizer", "schedule", "clip_norm"}  # by the data
_SCORED = 256  # training rows whose score tells whether a machine still learns
_EVALUATE = 50  # updates between two evaluations of early stopping, at least
# A machine is still learning where the second half of the updates brought more than this share of all that
# was gained, by more than so many standard errors over the rows.
_LATE, _SURE_OF_RISE = 0.1, 2.0

RowScore = Callable[[BoltzmannMachine, Tensor], Tensor]


@contextmanager
def learner_for(estimator: Any) -> Iterator[Any]:
    """Yields a copy that learns in place of an estimator, which becomes it once all is done.

    What raises in the block leaves the estimator as it was: a refused argument, divergence, a signal before
    training began or a second one in it. A Ctrl-C or SIGTERM after training ended, whole or cut short, lets
    it become what the copy has learnt by then.
    """
    learner, random = copy(estimator), estimator.random_state
    state = random.get_state() if isinstance(random, np.random.RandomState) else None
    try:
        yield learner
    except BaseException as error:
        if isinstance(error, Exception) or learner._fitted is estimator._fitted:
            if state is not None:
                random.set_state(state)
            raise
        estimator.__dict__ = learner.__dict__
        raise
    estimator.__dict__ = learner.__dict__


def sizes_of(n_hidden: Any) -> list[int]:
    """Returns the sizes of the hidden layers from the lowest up, by the parameter ``n_hidden``."""
    sizes: list[Any] = [n_hidden] if isinstance(n_hidden, Integral) else list(n_hidden)
    if not sizes or any(not isinstance(size, Integral) or int(size) < 1 for size in sizes):
        raise ValueError(f"n_hidden: expected sizes of at least 1, received {n_hidden!r}")
    return [int(size) for size in sizes]


def structure_of(options: Any, machine: BoltzmannMachine) -> dict[str, Any]:
    """Returns the parameters that are read where a machine begins, and by which it stays."""
    chosen = options.n_hidden
    sizes = [machine.layers[l].n_units for l in machine.hidden] if chosen is None else sizes_of(chosen)
    return {name: getattr(options, name) for name in _STRUCTURE} | {"n_hidden": sizes}


@final
@dataclass
class Training:
    """One training of an estimator: ``prepare``, then ``learn``, then ``end``.

    Attributes:
        options: the estimator, or else its parameters.
        run: Result of the last training.
        rise: the scores of some training rows on the way.
        recipe: Recipe of the machine that is to be trained; ``prepare`` chooses it.
        share: weight of ln p(rest, label) in what is learned; None: there is no label.
        rule, optimizer, clip_norm: of training by chains; ``prepare`` makes them.
    """

    options: Any
    run: TrainingRun | None = None
    rise: Rise | None = None
    recipe: Recipe | None = None
    share: float | None = None
    rule: Rule | None = None
    optimizer: Any = None
    clip_norm: float | None = None

    @property
    def exact(self) -> bool:
        """True if the machine is trained without chains."""
        return self.recipe is not None and self.recipe.method == "exact"

    def budget(self, rows: Rows, weights: Tensor | None = None, whole: bool = True) -> tuple[int, float]:
        """Returns the updates of ``fit`` over some rows, and the learning rate of a named optimiser.

        Whole weights, (rows,), stand for repeated rows, as everywhere.
        """
        options = self.options
        assert self.recipe is not None
        return self.recipe.budget(
            rows,
            weights,
            batch_size=options.batch_size,
            optimizer=self.optimizer or options.optimizer,
            epochs=options.epochs,
            updates=options.max_updates,
            learning_rate=options.learning_rate,
            whole=whole,
        )

    def _make_rule(self, machine: BoltzmannMachine) -> Rule:
        """Returns the learning rule that the parameters ask for; TypeError, ValueError: they do not fit."""
        options, recipe = self.options, self.recipe
        assert recipe is not None
        given = {name: getattr(options, name) for name in ("rule", "optimizer", "sweeps", "centred")}
        given = {name: None if isinstance(x, str) and x == "auto" else x for name, x in given.items()}
        chosen = recipe.decide(**given)
        clip = options.clip_norm
        self.optimizer, self.clip_norm = chosen["optimizer"], chosen["clip_norm"] if clip == "auto" else clip
        own = {"sweeps": chosen["sweeps"], "chains": options.chains}
        own = {name: value for name, value in own.items() if value is not None}
        rule = make_rule(
            chosen["rule"], self.optimizer, centred=chosen["centred"], batch_size=options.batch_size, **own
        )
        note_sampler(machine, rule)
        return rule if self.share is None else rules.hybrid(rule, machine.visible[:-1], self.share)

    # A machine to train, and its rows
    # ----------------------------------------------------------------------------

    def prepare(
        self,
        X: Any,
        weights: Tensor | None,
        earlier: Fitted | None,
        label: tuple[Layer, Tensor] | None = None,
        *,
        whole: bool = True,
    ) -> tuple[Fitted, Rows]:
        """Returns a machine to train, with ``Fitted`` of its own, and the rows that it is to learn from.

        It is a copy of an earlier one, or a new one, started at the rows. ``label`` is the
        visible layer of a label with its states of all rows. Rows are visible states, or the intensities that
        states are drawn from.
        """
        if self.options.method == "exact" and not (whole and earlier is None):
            raise ValueError(
                'method: expected "auto" or "chains" for partial_fit, and where warm_start goes on with a '
                'machine, received "exact", which begins anew'
            )
        fitted = self._begin(X, weights, label, whole) if earlier is None else self._go_on(earlier, label, X)
        assert self.recipe is not None
        if unused := list_unused(self.options, self.recipe.method):
            _checks.warn(f"{type(self.options).__name__}: {say_unused(unused, self.recipe.method)}")
        self.rule = None if self.exact else self._make_rule(fitted.machine)
        labels, dtype = None if label is None else label[1], fitted.machine.dtype
        codec = Codec(fitted.encoder, fitted.data_layers)
        states = codec.rows(X, dtype, None if labels is None else labels.numpy(), shown="data")
        if earlier is None and not self.exact:
            generator = as_generator(fitted.stream("couplings"), fitted.machine.device)
            self.recipe.start_(states, weights, self.options.initial_std, generator)
        elif earlier is not None:
            check_rows(fitted.machine, states, "X")
        if self.options.binarise == "sample":
            levels = _beside(Rows.of(X, dtype, missing=True).all(), labels)
            states = Rows.of(levels, dtype, missing=True)
        return fitted, states

    def _begin(
        self, X: Any, weights: Tensor | None, label: tuple[Layer, Tensor] | None, whole: bool
    ) -> Fitted:
        """Makes a new machine, whose parameters are still to be set."""
        options = self.options
        std, plain = options.initial_std, type(options).initial_std
        check_init(options.init, None if std == plain else std)
        images = options._samples_images and options.rule in ("auto", IMAGES.rule) and whole
        images &= label is None and options.method != "exact" and options.visible != "auto"
        codec = fit_codec(X, options, weights, images)
        visible, encoder = [*codec.layers], codec.encoder
        data_width = sum(layer.width for layer in visible)
        hidden = None
        if options.n_hidden is not None:
            hidden = hidden_for(options.hidden_kind, sizes_of(options.n_hidden), options.hidden_states)
        recipe = choose(
            encoder,
            visible,
            X.shape[0],
            hidden,
            kind=options.hidden_kind,
            n_states=options.hidden_states,
            label=None if label is None else label[0],
            method=options.method if whole else "chains",
            init=options.init,
            steered=bool(list_unused(options, "exact")),
        )
        seed = int(check_random_state(options.random_state).randint(2**31 - 1))
        double = recipe.label and recipe.method == "chains" and getattr(X, "dtype", None) == np.float64
        double &= options.dtype is None
        dtype = torch.float64 if double or options.dtype == "float64" else torch.float32
        machine = recipe.machine.to(dtype=dtype)
        machine.metadata["encoder"] = encoder.to_dict()
        self.recipe = recipe
        return Fitted(machine, encoder, seed, X.shape[1], data_width, structure_of(options, machine))

    def _go_on(self, earlier: Fitted, label: Any, X: Any) -> Fitted:
        """Returns a copy of an earlier machine, if the parameters are those that it was begun with.

        The columns of a table have then seen the rows X too.
        """
        structure, edges = structure_of(self.options, earlier.machine), earlier.machine.edges
        if any(set(edge) <= set(earlier.machine.visible) for edge in edges):
            raise ValueError(
                "machine_: expected one whose columns hidden units alone join, received one with joined "
                f"columns (edges {[*edges]}), which fit has trained without chains; a first fit with "
                'method="chains" joins none, fit with warm_start=False begins anew'
            )
        for name, received in structure.items():
            expected = earlier.settings.get(name, received)
            if received != expected:
                raise ValueError(
                    f"{name}: expected {expected!r} as in the machine that is to go on learning, received "
                    f"{received!r}; fit with warm_start=False begins anew"
                )
        machine, encoder = deepcopy(earlier.machine), earlier.encoder
        machine.metadata.pop("linear", None)  # the lines beside it, chosen for the machine as it was
        if isinstance(encoder, Table):
            encoder = encoder.widened(X)
            machine.metadata["encoder"] = encoder.to_dict()
        images = label is None and learns_images(encoder, machine)
        self.recipe = Recipe(machine, "chains", label is not None, images=images)
        return replace(earlier, machine=machine, encoder=encoder, settings=structure)

    # Training
    # ----------------------------------------------------------------------------

    def learn(
        self,
        fitted: Fitted,
        states: Rows,
        weights: Tensor | None,
        *,
        may_hold_out: Tensor | None = None,
        whole: bool = True,
    ) -> Fitted:
        """Trains a machine in place, and returns it as it has become; ``end`` is to follow.

        ``may_hold_out``, (rows,) bool, are the rows that ``_row_score`` takes. A ``whole`` fit has its
        length, schedule and early stopping; else it is one epoch at one rate.
        """
        if self.exact:
            assert self.recipe is not None
            seed, shown = fitted.stream("train"), self.options.verbose > 0
            self.run = run = fit_exactly(
                self.recipe,
                states,
                weights,
                self.share,
                may_hold_out=may_hold_out,
                device=self.options.device,
                seed=seed,
                progress=shown,
            )
            rows = states.take(fitted.rows_to_keep(len(states), weights)).to(run.machine.device)
            fitted = replace(fitted, machine=run.machine, history=run.history, n_updates=run.updates)
            return replace(fitted, generative=self.share != 0, rows=rows)
        options, rule = self.options, self.rule
        recipe = self.recipe
        assert rule is not None and recipe is not None
        earlier, built, count = fitted.progress, list[torch.optim.Optimizer](), len(states)

        def optimizer(factor: float, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
            built.append(make_optimizer(self.optimizer, parameters, rate, factor, earlier))
            return built[-1]

        redraw = partial(_redraw, fitted.data_width) if options.binarise == "sample" else None

        def scored_states(index: Tensor) -> Tensor:
            v = states.take(index)
            return v if redraw is None else redraw(v, as_generator(0))

        scored = (
            torch.arange(count, device="cpu")
            if may_hold_out is None
            else may_hold_out.nonzero().flatten().cpu()
        )
        kept, validation = torch.arange(count, device="cpu"), dict[str, Any]()
        if whole and options.early_stopping:
            out, kept = self._hold_out(fitted, count, scored)
            per_epoch = -(-len(kept) // min(options.batch_size, len(kept)))
            validation = {
                "validation": scored_states(out),
                "validation_weights": None if weights is None else weights[out],
                "metrics": {"validation_score": options._row_score},
                "evaluate_every": max(per_epoch, _EVALUATE),
            }
        learned = states if len(kept) == count else states.subset(kept)
        updates, rate = self.budget(learned, None if weights is None else weights[kept], whole)
        first = scored[torch.isin(scored, kept)][:_SCORED] if whole else scored[:0]

        own = {each.name for each in fields(options)} - _DECIDED
        passed = {each.name: getattr(options, each.name) for each in fields(Settings) if each.name in own}
        plain = self.optimizer == "sgd"  # which remembers nothing, and which compiled code knows

        def attempt(factor: float) -> TrainingRun:
            """Trains at this times the learning rate."""
            callbacks: list[Any] = []
            if len(first):
                self.rise = Rise(options._row_score, scored_states(first), fitted.machine)
                callbacks.append(self.rise)
            if validation:
                callbacks.append(EarlyStopping("validation_score", options.n_iter_no_change))
            return train(
                fitted.machine,
                learned,
                rule=rule,
                rule_state=earlier.chains_of(rule) if earlier else None,
                weights=None if weights is None else weights[kept],
                updates=updates,
                optimizer="sgd" if plain else partial(optimizer, factor),
                learning_rate=rate * factor,
                schedule=options.schedule if whole else "constant",
                transform=redraw,
                seed=fitted.stream("train", fitted.n_updates),
                callbacks=callbacks,
                progress=options.verbose > 0,
                **validation,
                clip_norm=self.clip_norm,
                **passed,
            )

        if options.on_divergence == "raise":
            self.run = run = attempt(1.0)
        else:
            advice = ', and on_divergence="raise" makes none'
            self.run = run = train_slower(attempt, fitted.machine, advice=advice)
        rows = scored_states(fitted.rows_to_keep(count, weights))
        if not whole and fitted.rows is not None:  # as many of this batch stay as of those before
            rows = torch.cat([fitted.rows.to(rows), rows])
            rows = rows[fitted.rows_to_keep(len(rows))]
        records = [{**record, "step": record["step"] + fitted.n_updates} for record in run.history]
        return replace(
            fitted,
            machine=fitted.machine if run.averaged_machine is None else run.averaged_machine,
            generative=rule.generative,
            history=[*fitted.history, *records],
            n_updates=fitted.n_updates + run.updates,
            progress=Progress(rule.name, run.rule_state, built[-1] if built else None),
            rows=rows,
            numbers={},
            log_partition=None,
        )

    def _hold_out(self, fitted: Fitted, count: int, scored: Tensor) -> tuple[Tensor, Tensor]:
        """Draws the rows to validate on: returns their indices, and those of the rows to train on."""
        share = self.options.validation_fraction
        held = max(1, round(share * len(scored)))
        if held >= count or not len(scored):
            raise ValueError(
                f"validation_fraction: expected rows on both sides, received {share} of "
                f"{len(scored)} rows that can be judged (classifiers: with a label and no missing cell); "
                "give more rows, or early_stopping=False"
            )
        generator = as_generator(fitted.stream("validation"))
        out = scored[_random.permutation(len(scored), generator)[:held]].sort().values
        every = torch.arange(count, device="cpu")
        return out, every[~torch.isin(every, out)]

    def end(self) -> None:
        """Raises where a signal cut the training short, and warns where the machine was still learning."""
        assert self.run is not None
        self.run.whole()
        if self.rise is not None and self.run.status == "completed":
            held_out = [r["validation_score"] for r in self.run.history if "validation_score" in r]
            self.rise.warn(type(self.options).__name__, self.run.updates, held_out)


def _beside(data: Tensor, label: Tensor | None) -> Tensor:
    """Returns states of the data with those of their label."""
    return data if label is None else torch.cat([data, label.to(data)], 1)


def _redraw(data_width: int, rows: Tensor, generator: torch.Generator) -> Tensor:
    """Draws 1 with the intensity as its probability; a missing one stays missing, and the label as it is."""
    levels, label = rows[:, :data_width], rows[:, data_width:]
    bits = bernoulli_binarise(levels.nan_to_num(nan=0.0), generator)
    return torch.cat([bits.masked_fill(levels.isnan(), torch.nan), label], 1)


# Optimisers that go on, and warnings
# ---------------------------------------------------------------------------------


@final
class Rise:
    """A callback that follows the score of some training rows: before, halfway and at the end.

    Args:
        score: Function of a machine and rows that scores every row; higher is better.
        rows: states, (rows, width).
        machine: The machine before the first update.
    """

    def __init__(self, score: RowScore, rows: Tensor, machine: BoltzmannMachine) -> None:
        self._score, self._rows = score, rows
        self._seen = [score(machine, rows).cpu()]

    def wants(self, step: int, total: int) -> bool:
        """Returns whether the score is read after so many updates."""
        return step in (total // 2, total)

    def __call__(self, update: Update) -> None:
        if self.wants(update.step, update.total):
            self._seen.append(self._score(update.machine, self._rows).cpu())

    def warn(self, name: str, updates: int, held_out: Sequence[float]) -> None:
        """Warns where the second half of the updates gained more than a tenth of it all.

        Nothing is said where one of the scores of rows that were held out, in order, is above the last: more
        updates would do harm.
        """
        if len(self._seen) < 3 or (held_out and max(held_out) > held_out[-1]):
            return
        first, half, last = self._seen
        late, gain = last - half, float((last - torch.minimum(first.mean(), half.mean())).mean())
        error = float(late.std()) / len(late) ** 0.5 if len(late) > 1 else 0.0
        share = float(late.mean()) / gain if gain > 0 else 0.0
        if share > _LATE and float(late.mean()) > _SURE_OF_RISE * error:
            _checks.warn(
                f"{name}: what the machine knows of its training rows was still rising when training ended: "
                f"{share:.0%} of all that it gained came in the second half of {updates} updates; more "
                "epochs, a larger max_updates or a higher learning_rate take it further"
                + ("" if held_out else ", and early_stopping=True ends where other rows no longer gain"),
                ConvergenceWarning,
            )


def make_optimizer(
    named: str | OptimizerFactory,
    parameters: list[torch.nn.Parameter],
    rate: float,
    factor: float,
    earlier: Progress | None,
) -> torch.optim.Optimizer:
    """Returns an optimiser that goes on from that of the last call, with all its rates times a factor."""
    made: torch.optim.Optimizer = (
        OPTIMIZERS[named](parameters, lr=rate, fused=True) if isinstance(named, str) else named(parameters)
    )
    if earlier is not None:
        earlier.remind(made)
    if factor < 1:
        for group in made.param_groups:
            group["lr"] *= factor
    return made


def warn_of_collapse(name: str, fitted: Fitted, rule: Rule | None) -> None:
    """Warns where chains left a machine that is worse than independent columns."""
    if rule is None or fitted.rows is None or not rule.learns_density:
        return
    collapse = find_collapse(fitted.machine, fitted.rows, seed=fitted.stream("collapse"))
    if collapse is not None:
        _checks.warn(
            f'{name}: {collapse}; a third of the learning_rate, another random_state or rule="cd" may help',
            ConvergenceWarning,
        )
