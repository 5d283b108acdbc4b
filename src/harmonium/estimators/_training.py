"""The training behind ``fit`` and ``partial_fit``: from parameters and rows to another fitted machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import partial
from numbers import Integral
from typing import Any, final

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor

from harmonium import _checks, _random
from harmonium._random import as_generator
from harmonium._settings import list_unused
from harmonium.estimators._fitted import Fitted
from harmonium.estimators._intake import fit_codec
from harmonium.learning import Rule
from harmonium.machine import BoltzmannMachine, check_init, hidden_for
from harmonium.tables import Codec, ColumnCodec, Fitting
from harmonium.training import (
    IMAGES,
    OPTIMIZERS,
    EarlyStopping,
    Settings,
    TrainingRun,
    Update,
    say_unused,
)

_STRUCTURE = ("n_hidden", "hidden_kind", "hidden_states", "visible", "dtype")
_DECIDED = {"rule", "epochs", "learning_rate", "optimizer", "schedule", "clip_norm"}  # by the data
_SCORED = 256  # training rows whose score tells whether a machine still learns
_EVALUATE = 50  # updates between two evaluations of early stopping, at least
# A machine is still learning where the second half of the updates brought more than this share of all that
# was gained, by more than so many standard errors over the rows.
_LATE, _SURE_OF_RISE = 0.1, 2.0


@contextmanager
def learner_for(estimator: Any) -> Iterator[Any]:
    """Yields a copy that learns in place of an estimator, which becomes it once all is done.

    What raises in the block leaves the estimator as it was: a refused argument, divergence, a signal before
    training began or a second one in it. A Ctrl-C or SIGTERM after training ended, whole or cut short, lets
    it become what the copy has learnt by then.
    """
    learner = copy(estimator)
    try:
        yield learner
    except BaseException as error:
        if not isinstance(error, Exception) and learner._fitted is not estimator._fitted:
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
    """One training of an estimator: ``learn``, then ``end``.

    Attributes:
        options: the estimator, or else its parameters.
        share: weight of ln p(rest, label) in what is learned; None: there is no label.
        whole: whether it has its length, schedule and early stopping; else it is one epoch at one rate.
        fitting: the machine with its rows.
        run: Result of the training.
        fitted: the machine as it has become.
        rise: the scores of some training rows on the way.
        optimizer: of the last attempt, with what it remembers; None: plain gradient ascent.
    """

    options: Any
    share: float | None = None
    whole: bool = True
    fitting: Fitting = field(init=False)
    run: TrainingRun = field(init=False)
    fitted: Fitted = field(init=False)
    rise: Rise | None = None
    optimizer: torch.optim.Optimizer | None = None

    # A machine to train
    # ----------------------------------------------------------------------------

    def _begin(self, X: Any, weights: Tensor | None, label: tuple[ColumnCodec, Tensor] | None) -> Fitted:
        """Makes a new machine, and sets its parameters."""
        options, whole = self.options, self.whole
        std, plain = options.initial_std, type(options).initial_std
        check_init(options.init, None if std == plain else std)
        images = options._samples_images and options.rule in ("auto", IMAGES.rule) and whole
        images &= label is None and options.method != "exact" and options.visible != "auto"
        codec = fit_codec(X, options, weights, images)
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
            shown="data",
            kind=options.hidden_kind,
            n_states=options.hidden_states,
            method=options.method if whole else "chains",
            init=options.init,
            steered=bool(list_unused(options, "exact")),
        )
        return Fitted(self.fitting.machine, seed, structure_of(options, self.fitting.machine))

    def _go_on(self, earlier: Fitted, X: Any, label: tuple[ColumnCodec, Tensor] | None) -> Fitted:
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
        codec = Codec.of(deepcopy(earlier.machine)).widened(X)
        labels = None if label is None else label[1]
        self.fitting = Fitting.go_on(codec, X, labels, share=self.share, shown="data", name="X")
        return replace(earlier, machine=codec.machine, settings=structure)

    # Training
    # ----------------------------------------------------------------------------

    def learn(
        self,
        X: Any,
        weights: Tensor | None,
        earlier: Fitted | None,
        label: tuple[ColumnCodec, Tensor] | None = None,
    ) -> Fitted:
        """Trains a new machine, or a copy of an earlier one, and returns it; ``end`` is to follow.

        Args:
            X: validated rows.
            weights: row weights, (rows,); None means uniform.
            earlier: a machine that goes on; None: a new one is started at the rows.
            label: Column of a label, with its states of all rows.
        """
        options = self.options
        if options.method == "exact" and not (self.whole and earlier is None):
            raise ValueError(
                'method: expected "auto" or "chains" for partial_fit, and where warm_start goes on with a '
                'machine, received "exact", which begins anew'
            )
        fitted = self._begin(X, weights, label) if earlier is None else self._go_on(earlier, X, label)
        fitting, method = self.fitting, self.fitting.recipe.method
        if unused := list_unused(options, method):
            _checks.warn(f"{type(options).__name__}: {say_unused(unused, method)}")
        states, judged = fitting.rows, None
        if label is not None:  # rows that ``_row_score`` takes
            judged = ~(label[1] if fitting.exact else states.all()).isnan().any(1)
        fitting.weights = weights
        watch: dict[str, Any] = {"device": options.device, "progress": options.verbose > 0}
        if not fitting.exact:
            every = torch.ones(len(states), dtype=torch.bool, device="cpu") if judged is None else judged
            watch |= self._watch(fitted, every.nonzero()[:, 0].cpu())
        self._plan()
        if fitting.rule is not None:
            watch |= self._steps(fitted, fitting.rule)
        self.run = run = fitting.train(judged, seed=fitted.stream("train", fitted.n_updates), **watch)
        rows = states.take(fitted.rows_to_keep(len(states)))
        if not self.whole and fitted.rows is not None:  # as many of this batch stay as of those before
            rows = torch.cat([fitted.rows.to(rows), rows])
            rows = rows[fitted.rows_to_keep(len(rows))]
        records = [{**record, "step": record["step"] + fitted.n_updates} for record in run.history]
        rule = fitting.rule
        self.fitted = replace(
            fitted,
            machine=run.machine if run.averaged_machine is None else run.averaged_machine,
            history=[*fitted.history, *records],
            n_updates=fitted.n_updates + run.updates,
            rule="" if rule is None else rule.name,
            chains=run.rule_state,
            optimizer=self.optimizer,
            rows=rows,
            numbers={},
            log_partition=None,
        )
        return self.fitted

    def _plan(self) -> None:
        """Decides what the parameters leave open."""
        options = self.options
        given = {name: getattr(options, name) for name in ("rule", "optimizer", "sweeps", "centred")}
        self.fitting.plan(
            options={} if options.chains is None else {"chains": options.chains},
            chains=options.batch_size,
            batch_size=options.batch_size,
            epochs=options.epochs,
            updates=options.max_updates,
            learning_rate=options.learning_rate,
            whole=self.whole,
            **{name: None if isinstance(x, str) and x == "auto" else x for name, x in given.items()},
        )

    def _steps(self, earlier: Fitted, rule: Rule) -> dict[str, Any]:
        """Returns the settings of training by chains in place of what the plan has."""
        options, planned = self.options, self.fitting.decided
        before = earlier.optimizer
        own = {each.name for each in fields(options)} - _DECIDED
        passed = {each.name: getattr(options, each.name) for each in fields(Settings) if each.name in own}
        if options.clip_norm != "auto":
            passed["clip_norm"] = options.clip_norm
        if planned["optimizer"] != "sgd":  # which remembers nothing, and which compiled code knows

            def optimizer(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
                named, rate = planned["optimizer"], planned["learning_rate"]
                make = partial(OPTIMIZERS[named], lr=rate, fused=True) if isinstance(named, str) else named
                made: torch.optim.Optimizer = make(parameters)
                self.optimizer = made
                if before is not None and isinstance(made, type(before)):
                    memory = deepcopy(before.state_dict()["state"])  # else tensors would be shared
                    made.load_state_dict({**made.state_dict(), "state": memory})
                return made

            passed["optimizer"] = optimizer
        passed["rule_state"] = deepcopy(earlier.chains) if earlier.rule == rule.name else None
        return passed | {"schedule": options.schedule if self.whole else "constant"}

    def _watch(self, fitted: Fitted, judged: Tensor) -> dict[str, Any]:
        """Returns how a training by chains is followed; with early stopping some rows are held out of it.

        ``judged`` are the indices of the rows that ``_row_score`` takes.
        """
        options, fitting = self.options, self.fitting
        states, weights, batch = fitting.rows, fitting.weights, options.batch_size
        if not self.whole or not (options.early_stopping or len(judged)):
            return {}
        if not options.early_stopping:
            self.rise = Rise(options._row_score, states.take(judged[:_SCORED]))
            return {"callbacks": [self.rise]}
        share, held = options.validation_fraction, max(1, round(options.validation_fraction * len(judged)))
        if held >= len(states) or not len(judged):
            raise ValueError(
                f"validation_fraction: expected rows on both sides, received {share} of "
                f"{len(judged)} rows that can be judged (classifiers: with a label and no missing cell); "
                "give more rows, or early_stopping=False"
            )
        generator = as_generator(fitted.stream("validation"))
        out = judged[_random.permutation(len(judged), generator)[:held]].sort().values
        every = torch.arange(len(states), device="cpu")
        kept = every[~torch.isin(every, out)]
        fitting.rows = states.subset(kept)
        fitting.weights = None if weights is None else weights[kept]
        return {
            "validation": states.take(out),
            "validation_weights": None if weights is None else weights[out],
            "metrics": {"validation_score": options._row_score},
            "evaluate_every": max(-(-len(kept) // min(batch, len(kept))), _EVALUATE),
            "callbacks": [EarlyStopping("validation_score", options.n_iter_no_change)],
        }

    def end(self) -> None:
        """Raises where a signal cut the training short, and warns where the machine has not learnt."""
        self.run.whole()
        name = type(self.options).__name__
        if self.rise is not None and self.run.status == "completed":
            self.rise.warn(name, self.run.updates)
        fitted = self.fitted
        if self.whole and self.share is None:
            collapse = self.fitting.find_collapse(fitted.machine, fitted.stream("collapse"), fitted.rows)
            if collapse is not None:
                _checks.warn(
                    f"{name}: {collapse}; a third of the learning_rate, another random_state or "
                    'rule="cd" may help',
                    ConvergenceWarning,
                )


@final
class Rise:
    """A callback that follows the score of some training rows: before, halfway and at the end.

    Args:
        score: Function of a machine and rows that scores every row; higher is better.
        rows: states, (rows, width).
    """

    def __init__(self, score: Callable[[BoltzmannMachine, Tensor], Tensor], rows: Tensor) -> None:
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

    def warn(self, name: str, updates: int) -> None:
        """Warns where the second half of the updates gained more than a tenth of it all."""
        if len(self._seen) < 3:
            return
        first, half, last = self._seen
        late, gain = last - half, float((last - torch.minimum(first.mean(), half.mean())).mean())
        error = float(late.std()) / len(late) ** 0.5 if len(late) > 1 else 0.0
        share = float(late.mean()) / gain if gain > 0 else 0.0
        if share > _LATE and float(late.mean()) > _SURE_OF_RISE * error:
            _checks.warn(
                f"{name}: what the machine knows of its training rows was still rising when training ended: "
                f"{share:.0%} of all that it gained came in the second half of {updates} updates; more "
                "epochs, a larger max_updates or a higher learning_rate take it further, and "
                "early_stopping=True ends where other rows no longer gain",
                ConvergenceWarning,
            )
