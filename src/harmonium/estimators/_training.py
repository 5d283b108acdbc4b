"""The training behind ``fit`` and ``partial_fit``: from parameters and rows to another fitted machine."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple, final

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor

from harmonium import _checks
from harmonium._settings import list_unused
from harmonium.estimators._fitted import Fitted
from harmonium.machine import BoltzmannMachine, hidden_for
from harmonium.tables import DECIDED, IMAGES, Codec, ColumnCodec, Fitting, say_unused
from harmonium.training import OPTIMIZERS, Settings, Update

_STRUCTURE = ("n_hidden", "hidden_kind", "hidden_states", "visible", "dtype")
_SCORED = 256  # training rows whose score tells whether a machine still learns
# A machine is still learning where the second half of the updates brought more than this share of all that
# was gained, by more than so many standard errors over the rows.
_LATE, _SURE_OF_RISE = 0.1, 2.0


class Label(NamedTuple):
    """The labels of some rows: their classes as a column, and states, (rows, classes), NaN where missing.

    ``share`` is the weight of ln p(rest, label) in what is learned.
    """

    column: ColumnCodec
    states: Tensor
    share: float


def learn(
    learner: Any, X: Any, weights: Tensor | None, earlier: Fitted | None, label: Label | None, *, whole: bool
) -> None:
    """Gives an estimator a new machine that has learnt rows, or a copy of an earlier one that goes on.

    Args:
        learner: the estimator, whose parameters are read.
        X: validated rows.
        weights: row weights, (rows,); None means uniform.
        earlier: a machine that goes on; None: a new one is started at the rows.
        label: labels of the rows; None: there are none.
        whole: whether it has its length and schedule; else it is one epoch at one rate.

    Raises:
        KeyboardInterrupt, SystemExit: a signal cut the training short; the estimator has what was learnt.
    """
    if learner.method == "exact" and not (whole and earlier is None):
        raise ValueError(
            'method: expected "auto" or "chains" for partial_fit, and where warm_start goes on with a '
            'machine, received "exact", which begins again'
        )
    if label is not None and bool(label.states.isnan().all()):
        raise ValueError(
            "y, sample_weight: expected a label in at least one row of a weight above 0, received none"
        )
    begun, fitting = (
        _begin(learner, X, weights, label, whole)
        if earlier is None
        else _go_on(learner, earlier, X, weights, label)
    )
    name, rows, rise = type(learner).__name__, fitting.rows, None
    if unused := list_unused(learner, fitting.method):
        _checks.warn(f"{name}: {say_unused(unused, fitting.method)}")
    watch: dict[str, Any] = {"device": learner.device, "progress": learner.verbose > 0}
    if whole and not fitting.exact:
        some = torch.arange(len(rows), device="cpu")
        if label is not None:  # rows that ``_row_score`` takes
            some = some[~rows.all().isnan().any(1).cpu()]
        if len(some):
            rise = _Rise(learner._row_score, fitting.machine, rows.take(some[:_SCORED]))
            watch["callbacks"] = [rise]
    plan(learner, fitting, whole=whole)
    optimizers = _Optimizers(fitting.decided, begun.optimizer)
    if fitting.rule is not None:
        others = {known.name for known in fields(learner)} - {"epochs", *fitting.decided}
        shared = [known.name for known in fields(Settings) if known.name in others]
        watch |= {name: getattr(learner, name) for name in shared}
        watch["rule_state"] = deepcopy(begun.chains) if begun.rule == fitting.rule.name else None
        if fitting.decided["optimizer"] != "sgd":  # which remembers nothing, and which is compiled
            watch["optimizer"] = optimizers.make
    run = fitting.train(seed=begun.stream("train", begun.n_updates), **watch)
    kept_rows = rows.take(begun.rows_to_keep(len(rows)))
    if not whole and begun.rows is not None:  # as many of this batch stay as of those before
        kept_rows = torch.cat([begun.rows.to(kept_rows), kept_rows])
        kept_rows = kept_rows[begun.rows_to_keep(len(kept_rows))]
    records = [{**record, "step": record["step"] + begun.n_updates} for record in run.history]
    learner._fitted = fitted = Fitted(
        run.machine if run.averaged_machine is None else run.averaged_machine,
        begun.seed,
        begun.settings,
        [*begun.history, *records],
        begun.n_updates + run.updates,
        "" if fitting.rule is None else fitting.rule.name,
        run.rule_state,
        optimizers.last,
        kept_rows,
    )
    run.whole()
    if rise is not None and run.status == "completed":
        rise.warn(name, run.updates)
    if whole and label is None:
        collapse = fitting.find_collapse(fitted.machine, fitted.stream("collapse"))
        if collapse is not None:
            advice = 'a third of the learning_rate, another random_state or rule="cd" may help'
            _checks.warn(f"{name}: {collapse}; {advice}", ConvergenceWarning)


def plan(options: Any, fitting: Fitting, *, whole: bool = True) -> None:
    """Decides what the parameters of an estimator leave open, see ``Fitting.plan``."""
    settings = {name: getattr(options, name) for name in DECIDED}
    by_data = {"sweeps": None, "centred": None}  # of the others "auto", as None means none
    fitting.plan(
        options={} if options.chains is None else {"chains": options.chains},
        batch_size=options.batch_size,
        epochs=options.epochs if whole else None,
        updates=options.max_updates if whole else None,
        learning_rate=options.learning_rate,
        whole=whole,
        **{name: x for name, x in settings.items() if x != by_data.get(name, "auto")},
    )


def structure_of(options: Any, machine: BoltzmannMachine) -> dict[str, Any]:
    """Returns the parameters that are read where a machine begins, and by which it stays."""
    chosen = options.n_hidden
    sizes = [machine.layers[l].n_units for l in machine.hidden] if chosen is None else _sizes_of(chosen)
    return {name: getattr(options, name) for name in _STRUCTURE} | {"n_hidden": sizes}


def _sizes_of(n_hidden: Any) -> list[int]:
    """Returns the sizes of the hidden layers from the lowest up, by the parameter ``n_hidden``."""
    sizes: list[Any] = [n_hidden] if isinstance(n_hidden, Integral) else list(n_hidden)
    if not sizes or any(not isinstance(size, Integral) or int(size) < 1 for size in sizes):
        raise ValueError(f"n_hidden: expected sizes of at least 1, received {n_hidden!r}")
    return [int(size) for size in sizes]


# A machine to train


def _begin(
    options: Any, X: Any, weights: Tensor | None, label: Label | None, whole: bool
) -> tuple[Fitted, Fitting]:
    """Returns a new machine, with its first parameters."""
    std, visible = options.initial_std, options.visible
    images = options._samples_images and options.rule in ("auto", IMAGES.rule)
    images &= whole and options.method != "exact"
    kind, kinds = (visible, None) if isinstance(visible, str) else ("auto", visible)
    codec = Codec.fit(X, kind, kinds, weights=weights, images=images)
    hidden = None
    if options.n_hidden is not None:
        hidden = hidden_for(options.hidden_kind, _sizes_of(options.n_hidden), options.hidden_states)
    seed = int(check_random_state(options.random_state).randint(2**31 - 1))
    fitting = Fitting.begin(
        codec if label is None else codec.with_label(label.column),
        X,
        None if label is None else label.states,
        weights,
        hidden,
        share=None if label is None else label.share,
        std=None if std == type(options).initial_std else std,
        seed=seed,
        dtype=torch.float64 if options.dtype == "float64" else None,
        shown="data",
        kind=options.hidden_kind,
        n_states=options.hidden_states,
        method=options.method if whole else "chains",
        init=options.init,
        steered=bool(list_unused(options, "exact")),
    )
    return Fitted(fitting.machine, seed, structure_of(options, fitting.machine)), fitting


def _go_on(
    options: Any, earlier: Fitted, X: Any, weights: Tensor | None, label: Label | None
) -> tuple[Fitted, Fitting]:
    """Returns a copy of an earlier machine, if the parameters are those that it was begun with.

    The columns of a table have then seen the rows X too.
    """
    structure, edges = structure_of(options, earlier.machine), earlier.machine.edges
    if any(set(edge) <= set(earlier.machine.visible) for edge in edges):
        raise ValueError(
            "machine_: expected one whose columns hidden units alone join, received one with joined columns "
            f"(edges {[*edges]}), which fit has trained without chains; a first fit with "
            'method="chains" joins none, fit with warm_start=False begins again'
        )
    for name, received in structure.items():
        expected = earlier.settings.get(name, received)
        if received != expected:
            raise ValueError(
                f"{name}: expected {expected!r} as in the machine that is to go on learning, received "
                f"{received!r}; fit with warm_start=False begins again"
            )
    codec = Codec.of(deepcopy(earlier.machine)).widened(X)
    states, share = (None, None) if label is None else (label.states, label.share)
    fitting = Fitting.go_on(codec, X, states, weights, share=share, shown="data")
    return replace(earlier, machine=codec.machine, settings=structure), fitting


# Training by chains


@final
@dataclass
class _Optimizers:
    """Makes the optimiser of every attempt, which remembers what the one ``before`` does; keeps the last."""

    decided: dict[str, Any]
    before: torch.optim.Optimizer | None
    last: torch.optim.Optimizer | None = None

    def make(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        named, rate, before = self.decided["optimizer"], self.decided["learning_rate"], self.before
        make = partial(OPTIMIZERS[named], lr=rate, fused=True) if isinstance(named, str) else named
        self.last = optimizer = make(parameters)
        if before is not None and isinstance(optimizer, type(before)):
            memory = deepcopy(before.state_dict()["state"])  # else tensors would be shared
            optimizer.load_state_dict({**optimizer.state_dict(), "state": memory})
        return optimizer  # type: ignore[no-any-return]


@final
class _Rise:
    """A callback that reads the score of some training rows before training, halfway and at the end."""

    def __init__(
        self, score: Callable[[BoltzmannMachine, Tensor], Tensor], machine: BoltzmannMachine, rows: Tensor
    ) -> None:
        self._score, self._rows = score, rows
        self._seen = {0: score(machine, rows).cpu()}

    def needs_update(self, step: int, total: int) -> bool:
        return step in (total // 2, total)

    def __call__(self, update: Update) -> None:
        if self.needs_update(update.step, update.total):
            self._seen[update.step] = self._score(update.machine, self._rows).cpu()

    def warn(self, name: str, updates: int) -> None:
        """Warns where the second half of the updates gained more than a tenth of it all."""
        if len(self._seen) < 3:
            return
        first, half, last = self._seen.values()
        late, gain = last - half, float((last - torch.minimum(first.mean(), half.mean())).mean())
        error = float(late.std()) / len(late) ** 0.5 if len(late) > 1 else 0.0
        share = float(late.mean()) / gain if gain > 0 else 0.0
        if share > _LATE and float(late.mean()) > _SURE_OF_RISE * error:
            _checks.warn(
                f"{name}: what the machine knows of its training rows was still rising when training ended: "
                f"{share:.0%} of all that it gained came in the second half of {updates} updates; more "
                "epochs, a larger max_updates or a higher learning_rate take it further",
                ConvergenceWarning,
            )
