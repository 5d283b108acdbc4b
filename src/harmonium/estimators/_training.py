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
from harmonium.machine import BoltzmannMachine, check_init, hidden_for
from harmonium.tables import Codec, ColumnCodec, Fitting
from harmonium.training import (
    IMAGES,
    OPTIMIZERS,
    EarlyStopping,
    OptimizerFactory,
    Settings,
    TrainingRun,
    Update,
    say_unused,
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
        share: weight of ln p(rest, label) in what is learned; None: there is no label.
        fitting: the machine with its rows; ``prepare`` makes it.
        run: Result of the last training.
        rise: the scores of some training rows on the way.
        optimizer: of the last attempt, with what it remembers; None: plain gradient ascent.
    """

    options: Any
    share: float | None = None
    fitting: Fitting | None = None
    run: TrainingRun | None = None
    rise: Rise | None = None
    optimizer: torch.optim.Optimizer | None = None

    @property
    def exact(self) -> bool:
        """True if the machine is trained without chains."""
        return self.fitting is not None and self.fitting.exact

    # A machine to train, and its rows
    # ----------------------------------------------------------------------------

    def prepare(
        self,
        X: Any,
        weights: Tensor | None,
        earlier: Fitted | None,
        label: tuple[ColumnCodec, Tensor] | None = None,
        *,
        whole: bool = True,
    ) -> tuple[Fitted, Rows]:
        """Returns a machine to train, with ``Fitted`` of its own, and the rows that it is to learn from.

        It is a copy of an earlier one, or a new one, started at the rows. ``label`` is the column of a label
        with its states of all rows. Rows are visible states, or the intensities that states are drawn from.
        """
        options = self.options
        if options.method == "exact" and not (whole and earlier is None):
            raise ValueError(
                'method: expected "auto" or "chains" for partial_fit, and where warm_start goes on with a '
                'machine, received "exact", which begins anew'
            )
        fitted = self._begin(X, weights, label, whole) if earlier is None else self._go_on(earlier, label, X)
        assert self.fitting is not None
        if unused := list_unused(options, self.fitting.recipe.method):
            _checks.warn(f"{type(options).__name__}: {say_unused(unused, self.fitting.recipe.method)}")
        if options.binarise == "sample":
            levels = Rows.of(X, fitted.machine.dtype, missing=True).all()
            levels = levels if label is None else torch.cat([levels, label[1].to(levels)], 1)
            return fitted, Rows.of(levels, fitted.machine.dtype, missing=True)
        return fitted, self.fitting.rows

    def _begin(
        self, X: Any, weights: Tensor | None, label: tuple[ColumnCodec, Tensor] | None, whole: bool
    ) -> Fitted:
        """Makes a new machine, and sets its parameters."""
        options = self.options
        std, plain = options.initial_std, type(options).initial_std
        check_init(options.init, None if std == plain else std)
        images = options._samples_images and options.rule in ("auto", IMAGES.rule) and whole
        images &= label is None and options.method != "exact" and options.visible != "auto"
        codec = fit_codec(X, options, weights, images)
        data_width = sum(layer.width for layer in codec.layers)
        codec, labels = (codec, None) if label is None else (codec.beside(label[0]), label[1])
        hidden = None
        if options.n_hidden is not None:
            hidden = hidden_for(options.hidden_kind, sizes_of(options.n_hidden), options.hidden_states)
        seed = int(check_random_state(options.random_state).randint(2**31 - 1))
        self.fitting = Fitting.begin(
            codec,
            X,
            labels,
            weights,
            hidden,
            share=self.share,
            std=std,
            seed=seed,
            dtype=torch.float64 if options.dtype == "float64" else None,
            # Whole weights then stand for repeated rows to all the digits that scikit-learn asks for.
            double_chains=label is not None
            and options.dtype is None
            and getattr(X, "dtype", None) == np.float64,
            shown="data",
            kind=options.hidden_kind,
            n_states=options.hidden_states,
            method=options.method if whole else "chains",
            init=options.init,
            steered=bool(list_unused(options, "exact")),
        )
        machine = self.fitting.machine
        return Fitted(machine, codec.encoder, seed, X.shape[1], data_width, structure_of(options, machine))

    def _go_on(self, earlier: Fitted, label: tuple[ColumnCodec, Tensor] | None, X: Any) -> Fitted:
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
        column, labels = (None, None) if label is None else label
        codec = Codec.of(deepcopy(earlier.machine))
        codec = replace(codec, encoder=earlier.encoder, label=column).widened(X)
        self.fitting = Fitting.go_on(codec, X, labels, share=self.share, shown="data", name="X")
        return replace(earlier, machine=codec.machine, encoder=codec.encoder, settings=structure)

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
        options, fitting, count = self.options, self.fitting, len(states)
        assert fitting is not None
        every = torch.arange(count, device="cpu")
        scored = every if may_hold_out is None else may_hold_out.nonzero().flatten().cpu()
        redraw = partial(_redraw, fitted.data_width) if options.binarise == "sample" else None

        def scored_states(index: Tensor) -> Tensor:
            v = states.take(index)
            return v if redraw is None else redraw(v, as_generator(0))

        kept, watch, callbacks = every, dict[str, Any](), list[Any]()
        if whole and options.early_stopping and not self.exact:
            out, kept = self._hold_out(fitted, count, scored)
            per_epoch = -(-len(kept) // min(options.batch_size, len(kept)))
            watch = {
                "validation": scored_states(out),
                "validation_weights": None if weights is None else weights[out],
                "metrics": {"validation_score": options._row_score},
                "evaluate_every": max(per_epoch, _EVALUATE),
            }
            callbacks.append(EarlyStopping("validation_score", options.n_iter_no_change))
        fitting.rows = states if len(kept) == count else states.subset(kept)
        fitting.weights = None if weights is None else weights[kept]
        self._plan(fitting, whole)
        if fitting.rule is not None:
            watch |= self._steps(fitting, fitted.progress, whole) | {"transform": redraw}
            first = scored[torch.isin(scored, kept)][:_SCORED]
            if whole and len(first):
                self.rise = Rise(options._row_score, scored_states(first))
                callbacks.append(self.rise)
        self.run = run = fitting.train(
            may_hold_out,
            seed=fitted.stream("train", fitted.n_updates),
            progress=options.verbose > 0,
            callbacks=callbacks,
            **{"device": options.device, **watch},
        )
        if fitting.rule is None:
            rows = states.take(fitted.rows_to_keep(count, weights)).to(run.machine.device)
            fitted = replace(fitted, machine=run.machine, history=run.history, n_updates=run.updates)
            return replace(fitted, generative=self.share != 0, rows=rows)
        rows = scored_states(fitted.rows_to_keep(count, weights))
        if not whole and fitted.rows is not None:  # as many of this batch stay as of those before
            rows = torch.cat([fitted.rows.to(rows), rows])
            rows = rows[fitted.rows_to_keep(len(rows))]
        records = [{**record, "step": record["step"] + fitted.n_updates} for record in run.history]
        return replace(
            fitted,
            machine=fitted.machine if run.averaged_machine is None else run.averaged_machine,
            generative=fitting.rule.generative,
            history=[*fitted.history, *records],
            n_updates=fitted.n_updates + run.updates,
            progress=Progress(fitting.rule.name, run.rule_state, self.optimizer),
            rows=rows,
            numbers={},
            log_partition=None,
        )

    def _plan(self, fitting: Fitting, whole: bool) -> None:
        """Decides what the parameters leave open."""
        options = self.options
        given = {name: getattr(options, name) for name in ("rule", "optimizer", "sweeps", "centred")}
        fitting.plan(
            options={} if options.chains is None else {"chains": options.chains},
            chains=options.batch_size,
            batch_size=options.batch_size,
            epochs=options.epochs,
            updates=options.max_updates,
            learning_rate=options.learning_rate,
            whole=whole,
            **{name: None if isinstance(x, str) and x == "auto" else x for name, x in given.items()},
        )

    def _steps(self, fitting: Fitting, earlier: Progress | None, whole: bool) -> dict[str, Any]:
        """Returns the settings of training by chains in place of what the plan has."""
        options, planned, rule = self.options, fitting.decided, fitting.rule
        assert rule is not None
        own = {each.name for each in fields(options)} - _DECIDED
        passed = {each.name: getattr(options, each.name) for each in fields(Settings) if each.name in own}
        if options.clip_norm != "auto":
            passed["clip_norm"] = options.clip_norm
        if planned["optimizer"] != "sgd":  # which remembers nothing, and which compiled code knows

            def optimizer(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
                named, rate = planned["optimizer"], planned["learning_rate"]
                self.optimizer = make_optimizer(named, parameters, rate, earlier)
                return self.optimizer

            passed["optimizer"] = optimizer
        return passed | {
            "rule_state": earlier.chains_of(rule) if earlier else None,
            "schedule": options.schedule if whole else "constant",
        }

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
    """

    def __init__(self, score: RowScore, rows: Tensor) -> None:
        self._score, self._rows = score, rows

    def begin(self, judged: BoltzmannMachine, metrics: Sequence[str]) -> None:
        """Starts afresh, with the machine before the first update."""
        self._seen = [self._score(judged, self._rows).cpu()]

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
    named: str | OptimizerFactory, parameters: list[torch.nn.Parameter], rate: float, earlier: Progress | None
) -> torch.optim.Optimizer:
    """Returns an optimiser that goes on from that of the last call."""
    made: torch.optim.Optimizer = (
        OPTIMIZERS[named](parameters, lr=rate, fused=True) if isinstance(named, str) else named(parameters)
    )
    if earlier is not None:
        earlier.remind(made)
    return made


def warn_of_collapse(name: str, fitted: Fitted, fitting: Fitting | None) -> None:
    """Warns where chains left a machine that is worse than independent columns."""
    if fitting is None or fitted.rows is None:
        return
    collapse = fitting.find_collapse(fitted.machine, fitted.stream("collapse"), fitted.rows)
    if collapse is not None:
        _checks.warn(
            f'{name}: {collapse}; a third of the learning_rate, another random_state or rule="cd" may help',
            ConvergenceWarning,
        )
