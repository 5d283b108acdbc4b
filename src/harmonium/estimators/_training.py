"""The training behind ``fit`` and ``partial_fit``: from options and rows to another fitted machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor

from harmonium import _checks, _random
from harmonium._random import as_generator
from harmonium.data import Identity, Rows, bernoulli_binarise
from harmonium.data._arrays import is_sparse
from harmonium.estimators._fitted import Fitted
from harmonium.estimators._intake import Array, refuse_blank, taken, units_for
from harmonium.estimators._options import Options
from harmonium.estimators._progress import Progress
from harmonium.layers import Layer
from harmonium.learning import Rule, rules
from harmonium.machine import BoltzmannMachine, from_data_, hidden_for, joined, normal_, visible_from_data_
from harmonium.training import TrainingRun, Update, train
from harmonium.training.callbacks import EarlyStopping
from harmonium.training.optimizers import OPTIMIZERS

STRUCTURE = ("n_hidden", "hidden", "hidden_states", "visible", "unknown", "binarise", "dtype")
"""Parameters that are read where a machine is begun, and by which it stays."""

_STD = 0.03  # of the first couplings
_SCORED = 256  # training rows whose score tells whether a machine still learns
_ROWS_KEPT = 1000
_EVALUATE = 50  # updates between two evaluations of early stopping, at least
_SHARE = 0.1  # of all that was gained, by the second half of the updates: the machine is still learning
_SURE = 2.0  # standard errors over the rows

RowScore = Callable[[BoltzmannMachine, Tensor], Tensor]
Estimator = TypeVar("Estimator", bound=Options)


def start_at_random(
    options: Options,
    machine: BoltzmannMachine,
    rows: Rows,
    weights: Tensor | None,
    generator: torch.Generator,
) -> None:
    """Sets normal couplings; beside Gaussian units off their saddle, unless ``initial_std`` is given."""
    normal_(machine, _STD if options.initial_std is None else options.initial_std, generator)
    if options.initial_std is None:
        from_data_(machine, rows, generator, weights)
    else:
        visible_from_data_(machine, rows, weights)


def _do_nothing(*given: Any) -> None:
    pass


class Recipe(NamedTuple):
    """What an estimator's training has of its own.

    Attributes:
        row_score: what early stopping maximises of every row, (machine, states) -> (rows,), in nats.
        epochs: passes over the rows where ``Options.epochs`` is None, or
        updates: as many as make so many updates.
        start: sets the parameters of a new machine, given its visible states of the data.
        pretrain: pretrains a new machine on all rows as visible states, before all layers are trained.
        calibrate: finds ``Fitted.numbers`` of the trained machine on validated rows of some weights.
    """

    row_score: RowScore
    epochs: int
    updates: int
    start: Callable[[Any, BoltzmannMachine, Rows, Tensor | None, torch.Generator], None] = start_at_random
    pretrain: Callable[[Fitted, Any, Tensor | None], None] = _do_nothing
    calibrate: Callable[[Any, Tensor | None], None] = _do_nothing

    def length(self, options: Options, rows: int) -> int:
        """Returns the updates of ``fit``."""
        size = min(options.batch_size, rows)
        epochs = options.epochs or max(self.epochs, -(-self.updates * size // rows))
        updates = -(-epochs * rows // size)
        return updates if options.max_updates is None else min(updates, options.max_updates)


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


# A new machine, or the one that is there
# --------------------------------------------------------------------------------


def sizes_of(n_hidden: Any) -> list[int]:
    """Returns the sizes of the hidden layers from the lowest up, by the parameter ``n_hidden``."""
    sizes: list[Any] = [n_hidden] if isinstance(n_hidden, Integral) else list(n_hidden)
    if not sizes or not all(isinstance(size, Integral) and size >= 1 for size in sizes):
        raise ValueError(f"n_hidden: expected sizes of at least 1, received {n_hidden!r}")
    return [int(size) for size in sizes]


def structure_of(options: Any) -> dict[str, Any]:
    """Returns the parameters by which a machine stays once it is begun."""
    return {name: getattr(options, name) for name in STRUCTURE} | {"n_hidden": sizes_of(options.n_hidden)}


def begin(
    options: Any, recipe: Recipe, X: Any, weights: Tensor | None, label: tuple[Layer, Tensor] | None = None
) -> Fitted:
    """Makes a new machine for validated rows, started at them and pretrained.

    Args:
        options: the parameters.
        recipe: what the estimator has of its own.
        X: the rows.
        weights: of the rows, or None.
        label: the visible layer of a label, and its states of all rows; None: there is none.

    Raises:
        ValueError: rows that the units do not take, or hidden units without a bound beside such.
    """
    visible, encoder = units_for(X, options.visible, options.unknown, options.binarise, weights)
    data_width = sum(layer.width for layer in visible)
    visible += [] if label is None else [label[0]]
    hidden = _hidden_layers(visible, options)
    seed = int(check_random_state(options.random_state).randint(2**31 - 1))
    # The labels' machine follows the data, which is faster for many rows and as exact as they are for few.
    double = options.dtype is None and label is not None and getattr(X, "dtype", None) == np.float64
    dtype = torch.float64 if double or options.dtype == "float64" else torch.float32
    machine = joined(visible, hidden).to(dtype=dtype)
    machine.metadata["encoder"] = encoder.to_dict()
    fitted = Fitted(machine, encoder, seed, X.shape[1], data_width, structure_of(options))
    states = visible_states(fitted, X, None if label is None else label[1])
    rows = Rows.of(states, dtype, missing=True)
    generator = as_generator(fitted.stream("couplings"), machine.device)
    recipe.start(options, machine, rows, weights, generator)
    recipe.pretrain(fitted, states, weights)
    return fitted


def _hidden_layers(visible: Sequence[Layer], options: Any) -> list[Layer]:
    """Makes hidden layers, no unbounded one beside another: such a machine may have no normaliser."""
    hidden = hidden_for(options.hidden, sizes_of(options.n_hidden), options.hidden_states)
    for below, above in [*((layer, hidden[0]) for layer in visible), *pairwise(hidden)]:
        if not (below.bounded or above.bounded):
            raise ValueError(
                f"hidden: expected discrete units, or others with a bound, beside {below}, received "
                f"{options.hidden!r}"
            )
    return hidden


def go_on(estimator: Any, how: str) -> Fitted:
    """Returns what further training of a fitted estimator changes: a copy of the machine, and else the same.

    Args:
        estimator: its parameters are compared with those that the machine was begun with.
        how: what goes on, "warm_start" or "partial_fit", for messages.

    Raises:
        ValueError: parameters that the machine was not begun with, and that would not be read.
    """
    fitted: Fitted = estimator._fitted
    for name, received in structure_of(estimator).items():
        expected = fitted.settings.get(name, received)
        if received != expected:
            raise ValueError(
                f"{name}: expected {expected!r} as in the machine that {how} goes on with, received "
                f"{received!r}; fit with warm_start=False begins anew"
            )
    return replace(fitted, machine=deepcopy(fitted.machine))


def visible_states(fitted: Fitted, X: Any, label: Tensor | None = None) -> Any:
    """Returns validated rows, with their label, as visible states; sparse ones sparse where they may be."""
    plain = isinstance(fitted.encoder, Identity) and label is None
    if plain and (is_sparse(X) or not np.isnan(X).all(1).any()):
        return X
    dtype = fitted.machine.dtype
    data = torch.cat([refuse_blank(v).to(dtype) for v in fitted.states(X)])
    return data if label is None else torch.cat([data, label.to(data)], 1)


def training_rows(options: Options, fitted: Fitted, X: Any, label: Tensor | None = None) -> Any:
    """Returns the rows to learn from: visible states, or the intensities that states are drawn from."""
    states = visible_states(fitted, X, label)
    if options.binarise != "sample":
        return states
    levels = Rows.of(X, fitted.machine.dtype, missing=True).take(torch.arange(X.shape[0])).to(states)
    return levels if label is None else torch.cat([levels, label.to(levels)], 1)


def _redraw(data_width: int, rows: Tensor, generator: torch.Generator) -> Tensor:
    """Draws 1 with the intensity as its probability; a missing one stays missing, and the label as it is."""
    levels, label = rows[:, :data_width], rows[:, data_width:]
    bits = bernoulli_binarise(levels.nan_to_num(nan=0.0), generator)
    return torch.cat([bits.masked_fill(levels.isnan(), torch.nan), label], 1)


# Training
# --------------------------------------------------------------------------------


def learning_rule(options: Options) -> Rule:
    """Returns the rule that the parameters ask for.

    Raises:
        TypeError, ValueError: a parameter that the rule does not take.
    """
    if options.centred and options.optimizer == "adam" and not isinstance(options.rule, Rule):
        raise ValueError(
            'centred: expected False with optimizer="adam", which rescales every number by itself and '
            "so loses the direction"
        )
    n_chains = options.n_chains
    if n_chains is None and "chains" in rules.options(options.rule):
        n_chains = options.batch_size  # batches of a later ``partial_fit`` may have another size
    given = {"sweeps": options.sweeps, "n_chains": n_chains}
    named = {"centred": options.centred} if isinstance(options.rule, str) else {}
    return rules.from_options(
        options.rule, **named, **{name: value for name, value in given.items() if value is not None}
    )


def learn(
    options: Options,
    recipe: Recipe,
    fitted: Fitted,
    states: Any,
    weights: Tensor | None,
    rule: Rule,
    *,
    learning_rate: float | None = None,
    judged: Tensor | None = None,
    whole: bool = True,
) -> tuple[Fitted, TrainingRun, Rise | None]:
    """Trains a machine in place on states, or on intensities that are drawn from at every update.

    Args:
        options: the parameters.
        recipe: what the estimator has of its own.
        fitted: the machine as it is.
        states: as ``training_rows`` makes them.
        weights: of the rows, or None.
        rule: how.
        learning_rate: of the named optimisers; None: that of the parameters.
        judged: rows that the score of ``recipe`` takes, (rows,) bool; None: all.
        whole: a ``fit``, with its length, schedule and early stopping; else one epoch at one rate.

    Returns:
        The machine as it has become, the run, and for a ``fit`` how the score of training rows has risen.
    """
    earlier, built, count = fitted.progress, list[torch.optim.Optimizer](), states.shape[0]

    def optimizer(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        rate = options.learning_rate if learning_rate is None else learning_rate
        made: torch.optim.Optimizer = (
            OPTIMIZERS[options.optimizer](parameters, lr=rate, fused=True)
            if isinstance(options.optimizer, str)
            else options.optimizer(parameters)
        )
        if earlier is not None:
            earlier.remind(made)
        built.append(made)
        return made

    redraw = partial(_redraw, fitted.data_width) if options.binarise == "sample" else None

    def scored_states(index: Array) -> Tensor:
        rows = Rows.of(taken(states, index), fitted.machine.dtype, missing=True)
        v = rows.take(torch.arange(len(rows)))
        return v if redraw is None else redraw(v, as_generator(0))

    scored = torch.arange(count, device="cpu") if judged is None else judged.nonzero().flatten().cpu()
    kept, validation = torch.arange(count, device="cpu"), dict[str, Any]()
    callbacks: list[Any] = []
    if whole and options.early_stopping:
        out, kept = _held_out(options, fitted, count, scored)
        per_epoch = -(-len(kept) // min(options.batch_size, len(kept)))
        validation = {
            "validation": scored_states(out.numpy()),
            "validation_weight": None if weights is None else weights[out],
            "metrics": {"validation_score": recipe.row_score},
            "evaluate_every": max(per_epoch, _EVALUATE),
        }
        best = options.averaging is None
        callbacks = [EarlyStopping("validation_score", options.n_iter_no_change, restore_best=best)]
    used = len(kept)
    rise = None
    if whole and len(scored):
        first = scored[torch.isin(scored, kept)][:_SCORED].numpy()
        rise = Rise(recipe.row_score, scored_states(first), fitted.machine)
        callbacks = [rise, *callbacks]
    run = train(
        fitted.machine,
        states if used == count else taken(states, kept.numpy()),
        rule=rule,
        rule_state=earlier.chains_of(rule) if earlier else None,
        sample_weight=None if weights is None else weights[kept],
        updates=recipe.length(options, used) if whole else -(-used // min(options.batch_size, used)),
        optimizer=optimizer,
        schedule=options.schedule if whole else "constant",
        transform=redraw,
        seed=fitted.stream("train", fitted.n_updates),
        callbacks=callbacks,
        progress=options.verbose > 0,
        **validation,
        **options._train_settings(),
    )
    rows = scored_states(_rows_to_keep(fitted, count, weights))
    if not whole and fitted.rows is not None:  # as many of this batch stay as of those before
        rows = torch.cat([fitted.rows, rows])
        rows = rows[_rows_to_keep(fitted, len(rows), None)]
    records = [{**record, "step": record["step"] + fitted.n_updates} for record in run.history]
    learnt = replace(
        fitted,
        machine=fitted.machine if run.averaged_machine is None else run.averaged_machine,
        generative=rule.generative,
        history=[*fitted.history, *records],
        n_updates=fitted.n_updates + run.updates,
        progress=Progress(rule.name, run.rule_state, built[0]),
        rows=rows,
        numbers={},
        log_partition=None,
    )
    return learnt, run, rise


def _held_out(options: Options, fitted: Fitted, count: int, scored: Tensor) -> tuple[Tensor, Tensor]:
    """Draws the rows to validate on: returns their indices, and those of the rows to train on."""
    held = max(1, round(options.validation_fraction * len(scored)))
    if held >= count or not len(scored):
        raise ValueError(
            f"validation_fraction: expected rows on both sides, received {options.validation_fraction} of "
            f"{len(scored)} rows that can be judged (classifiers: with a label and no missing cell); "
            "give more rows, or early_stopping=False"
        )
    generator = as_generator(fitted.stream("validation"))
    out = scored[_random.permutation(len(scored), generator)[:held]].sort().values
    every = torch.arange(count, device="cpu")
    return out, every[~torch.isin(every, out)]


def some_rows(fitted: Fitted, X: Any) -> Tensor:
    """Returns up to 1,000 of validated rows as visible states."""
    chosen = taken(X, _rows_to_keep(fitted, X.shape[0], None))
    return fitted.visible(chosen).to(fitted.machine.dtype)


def _rows_to_keep(fitted: Fitted, count: int, weights: Tensor | None) -> Array:
    """Draws the indices of up to 1,000 of so many rows, by their weights where there are any."""
    generator = as_generator(fitted.stream("rows kept", fitted.n_updates))
    index = _random.permutation(count, generator)[:_ROWS_KEPT]
    if weights is not None:
        ends = weights.cumsum(0)
        places = _random.uniform((len(index),), generator, torch.float64) * ends[-1]
        index = torch.searchsorted(ends, places).clamp(max=count - 1)
    kept: Array = index.sort().values.numpy()
    return kept


def end(estimator: Any, run: TrainingRun, rise: Rise | None) -> None:
    """Raises where a signal cut the run short, and warns where the machine was still learning."""
    run.whole()
    if rise is not None and run.status == "completed":
        rise.warn(type(estimator).__name__, run.updates)


class Rise:
    """A callback that follows the score of some training rows: before, halfway and at the end.

    Args:
        score: of every row, higher is better.
        rows: states, (rows, width).
        machine: as it is before the first update.
    """

    def __init__(self, score: RowScore, rows: Tensor, machine: BoltzmannMachine) -> None:
        self._score, self._rows = score, rows
        self._seen = [score(machine, rows).cpu()]

    def __call__(self, update: Update) -> None:
        if update.step in (update.total // 2, update.total):
            self._seen.append(self._score(update.machine, self._rows).cpu())

    def warn(self, name: str, updates: int) -> None:
        """Warns where the second half of the updates gained more than a tenth of it all."""
        if len(self._seen) < 3:
            return
        first, half, last = self._seen
        late, gain = last - half, float((last - torch.minimum(first.mean(), half.mean())).mean())
        error = float(late.std()) / len(late) ** 0.5 if len(late) > 1 else 0.0
        share = float(late.mean()) / gain if gain > 0 else 0.0
        if share > _SHARE and float(late.mean()) > _SURE * error:
            _checks.warn(
                f"{name}: what the machine knows of its training rows was still rising when training ended: "
                f"{share:.0%} of all that it gained came in the second half of {updates} updates; more "
                "epochs, a larger max_updates or a higher learning_rate take it further",
                ConvergenceWarning,
            )
