"""Exact training of tables: real columns are joined where that raises the likelihood of held-out rows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._random import as_generator
from harmonium.data import Rows
from harmonium.layers import Gaussian, Layer
from harmonium.machine import BoltzmannMachine, init_visible_biases_
from harmonium.sums import LONG, HiddenStates, in_words, seconds_of_joined
from harmonium.tables.codec import Codec
from harmonium.tables.correlated import (
    ANY,
    Shape,
    choose_shape,
    fit_normal,
    fit_residuals,
    fold,
    list_shapes,
)
from harmonium.tables.label_fit import fit_labels
from harmonium.tables.linear import fit_lines
from harmonium.training import (
    EXACT_BATCH,
    ExactFit,
    Objective,
    Recipe,
    TrainingRun,
    count_rows,
    fit_exact,
    mean_score,
    take_rows,
    train_exactly,
)

# docs/decisions/0019 has what was measured.
_HELD_OUT = 7  # one row in seven is held out
_SECONDS = 20.0  # of the updates of joined columns, for one candidate, on one core
_FEWEST_UPDATES = 10  # of joined columns: with fewer rows are not looked at once
_RIDGES = (1e-3, 1e-2, 1e-1)  # shares of the variances that are added to covariances, to choose from
_MANY_ROWS = 800  # rows from which on the smallest ridge and one round of covariances are enough
_COVARIANCE_ROWS = slice(
    5000
)  # rows of a covariance: every round of expectation-maximisation passes over them
_ROUNDS = 2  # rounds of covariances given the hidden units
_RATE, _UPDATES = 0.1, 100  # first learning rate, and most updates, of each candidate
_LAST_RATE, _LAST_UPDATES = 0.015, 25  # learning rate and updates of the training on all rows
_STATES_DECAY = 0.3  # times the weight decay, for couplings to discrete columns: more loses links of labels


@dataclass(frozen=True)
class ColumnModel:
    """A model of the real columns.

    Attributes:
        joined: Layers whose columns are joined.
        shape: Shape of their covariances.
        covariances: Covariances by layer, (width_l, width_l); None: those of the rows.
        seconds: Seconds of an update of joined columns.
        normals: Means and covariances of the rows that candidates learn, by layer; None: they are fitted.
    """

    joined: tuple[int, ...] = ()
    shape: Shape = ANY
    covariances: Mapping[int, Tensor] | None = None
    seconds: float = 0.0
    normals: Mapping[int, tuple[Tensor, Tensor]] | None = None

    def updates(self, most: int) -> int:
        """Returns the updates that a training makes, at most so many."""
        return max(1, round(min(most, _SECONDS / self.seconds))) if self.seconds else most


@dataclass(frozen=True)
class Split:
    """Rows to learn from and rows that are held out, with their weights."""

    rows: Tensor
    weights: Tensor | None
    held: Tensor
    held_weights: Tensor | None


@dataclass(frozen=True)
class Candidate:
    """A machine that was trained on the rows of a split, from ``start``, with the roots of joined layers."""

    model: ColumnModel
    start: BoltzmannMachine
    roots: dict[int, Tensor]
    machine: BoltzmannMachine
    fit: ExactFit


def fit_exactly(
    recipe: Recipe,
    rows: Rows,
    weights: Tensor | None,
    share: float | None = None,
    *,
    may_hold_out: Any = None,
    device: Any = None,
    **watch: Any,
) -> TrainingRun:
    """Trains the new machine of a recipe without chains: a trained one is that of the result.

    Args:
        recipe: Recipe of the method "exact".
        rows: visible states.
        weights: row weights, (rows,); None means uniform.
        share: weight of ln p(rest, label) in the objective, in [0, 1]; None: there is no label.
        may_hold_out: Marks the rows that may be held out, (rows,) bool; None: all but those without a label.
        device: where to train; None: where the machine is.
        **watch: seed, folder, metrics and the like, see ``fit_table``.
    """
    machine = recipe.machine if device is None else recipe.machine.to(device)
    v, objective = rows.all().to(machine.device, machine.dtype), Objective()
    if share is not None:
        objective = Objective([*machine.visible[:-1]], share)
        may_hold_out = ~v[:, recipe.width :].isnan().any(1) if may_hold_out is None else may_hold_out
    seconds = recipe.exact_seconds(len(v))
    if objective.joint == 1:
        update = _find_joined(machine, v)[1]
        seconds += min(update * _UPDATES, _SECONDS) + min(update * _LAST_UPDATES, _SECONDS)
    if seconds >= LONG:
        _checks.warn(
            f"X: training sums over all states of {machine.layers[machine.hidden[0]].n_units} hidden units "
            f"beside {v.shape[1]} columns of states, which takes about {in_words(seconds)} on one core; "
            'fewer hidden units or columns take less, and method="chains" sums nothing'
        )
    learn = fit_table if objective.joint == 1 else fit_labels
    return learn(machine, v, weights, objective=objective, may_hold_out=may_hold_out, **watch)


@torch.no_grad()
def fit_table(
    machine: BoltzmannMachine,
    v: Tensor,
    weights: Tensor | None = None,
    *,
    objective: Objective = Objective(),  # noqa: B008
    may_hold_out: Tensor | None = None,
    seed: int | torch.Generator = 0,
    **watch: Any,
) -> TrainingRun:
    """Trains a new machine by exact gradients, with its real columns joined where that is better.

    A seventh of the rows is held out, whose likelihood decides this and ends the training (``fit_exact``).
    All rows are used for the last 25 updates, which begin with the trained machine plus the difference
    between the starts of all rows and of six sevenths. Couplings have a normal prior, of variance 1 to
    Gaussian columns and wider to others, whose links it would else suppress.

    Args:
        machine: one hidden layer joined to all visible ones; it is not changed.
        v: visible states, (rows, visible_width), NaN where missing; at least two rows.
        weights: row weights, (rows,), above 0; None means uniform.
        objective: Objective to ascend; with a label the rows that are held out are judged by ln p(y | x).
        may_hold_out: Marks the rows that may be held out, (rows,) bool; None: all.
        seed: Seed of the rows that are held out and of the couplings, an int or a generator.
        **watch: folder, resume, metrics, callbacks and progress of the last updates, as of ``train``.

    Returns:
        The run of the last updates, whose history begins with the looks at rows that were held out. Its
        machine is one of the columns themselves, in the dtype of ``machine``.
    """
    started, generator = time.perf_counter(), as_generator(seed)
    split = split_rows(v, weights, may_hold_out, generator)
    stream = generator.initial_seed() % (1 << 63)
    chosen = choose_model(machine, split, objective, stream)
    trained, model = chosen.machine, replace(chosen.model, normals=None)
    start, roots = independent_start(machine, v, weights, model)
    hidden_states = HiddenStates(deepcopy(trained).double().hamiltonian(), chosen.roots)
    learned, held = (split.rows, split.weights), (split.held, split.held_weights)
    lines = fit_lines(machine, Codec.of(machine).encoder, hidden_states, learned, held, stream)
    if lines is not None:
        lines.keep_in(trained)
    starts = zip(start.parameters(), chosen.start.parameters(), strict=True)
    for p, (now, before) in zip(trained.parameters(), starts, strict=True):
        p.add_(now - before)
    return train_exactly(
        trained,
        v,
        weights,
        updates=model.updates(_LAST_UPDATES),
        learning_rate=_LAST_RATE,
        roots=roots,
        objective=objective,
        weight_decay=_list_decays(machine, count_rows(v, weights)),
        earlier=chosen.fit.history,
        spent=time.perf_counter() - started,
        seed=stream,
        show=partial(_of_columns, roots) if roots else None,
        every=model.updates(_LAST_UPDATES),
        **watch,
    )


def split_rows(
    v: Tensor, weights: Tensor | None, may_hold_out: Tensor | None, generator: torch.Generator
) -> Split:
    """Holds out a seventh of the rows that may be, drawn at random."""
    order = _random.permutation(len(v), generator)
    if may_hold_out is not None:  # those first
        order = order[(~may_hold_out[order]).to(torch.int8).argsort(stable=True)]
    count = len(v) if may_hold_out is None else int(may_hold_out.sum())
    number = max(1, count // _HELD_OUT)
    held, kept = order[:number].sort().values, order[number:].sort().values
    return Split(*take_rows(v, weights, kept), *take_rows(v, weights, held))


def choose_model(machine: BoltzmannMachine, split: Split, objective: Objective, seed: int) -> Candidate:
    """Trains candidates with and without joined columns; returns the one of the best score."""
    joined, seconds = _find_joined(machine, split.rows)
    train = partial(train_candidate, machine, split, objective, seed)
    if not joined:
        return train(ColumnModel())
    model = replace(_choose_normal(machine, joined, split), seconds=seconds)
    incumbent = train(model)
    incumbent = max(incumbent, train(ColumnModel(), incumbent), key=lambda candidate: candidate.fit.score)
    rows, weights = take_rows(split.rows, split.weights, _COVARIANCE_ROWS)
    rounds = _ROUNDS if len(split.rows) + len(split.held) < _MANY_ROWS else 1
    for _ in range(rounds if model.updates(_UPDATES) == _UPDATES else 0):
        roots = {l: torch.eye(machine.layers[l].width).to(rows) for l in joined} | incumbent.roots
        covariances = fit_residuals(incumbent.machine, rows, weights, roots=roots, **model.shape._asdict())
        candidate = train(replace(model, covariances=covariances), incumbent)
        if candidate.fit.score < incumbent.fit.score:
            break
        incumbent = candidate
    return incumbent


def train_candidate(
    machine: BoltzmannMachine,
    split: Split,
    objective: Objective,
    seed: int,
    model: ColumnModel,
    incumbent: Candidate | None = None,
) -> Candidate:
    """Trains a machine of a model of its columns; with other covariances it begins at the incumbent."""
    start, roots = independent_start(machine, split.rows, split.weights, model)
    goes_on = incumbent is not None and model.covariances is not None
    if incumbent is not None and goes_on:
        trained = change_roots(incumbent.machine, incumbent.roots, roots)
    else:
        trained = deepcopy(start)
    fit = fit_exact(
        trained,
        split.rows,
        split.weights,
        validation=split.held,
        validation_weights=split.held_weights,
        roots=roots,
        objective=objective,
        learning_rate=_RATE,
        max_updates=model.updates(_UPDATES),
        weight_decay=_list_decays(machine, count_rows(split.rows, split.weights)),
        initial_std=None if goes_on else 0.1,
        seed=seed,
    )
    return Candidate(model, start, roots, trained, fit)


def independent_start(
    machine: BoltzmannMachine, v: Tensor, weights: Tensor | None, model: ColumnModel
) -> tuple[BoltzmannMachine, dict[int, Tensor]]:
    """Returns the machine with the biases of independent columns, and the roots of joined ones."""
    start, roots = deepcopy(machine), dict[int, Tensor]()
    init_visible_biases_(start, v, weights)
    for l in model.joined:
        normals = model.normals or {}
        mean, total = normals[l] if l in normals else _fit_normal(start.split(v)[l], weights, model.shape)
        covariance = total if model.covariances is None else model.covariances[l]
        roots[l] = _fit_units(start.layers[l], mean, total, covariance).to(v)
    return start, roots


def _of_columns(roots: Mapping[int, Tensor], machine: BoltzmannMachine) -> BoltzmannMachine:
    """Returns the machine of columns x = R u for one of u, in its dtype."""
    return fold(machine, roots).to(dtype=machine.dtype)


def change_roots(
    machine: BoltzmannMachine, before: Mapping[int, Tensor], after: Mapping[int, Tensor]
) -> BoltzmannMachine:
    """Returns the machine of other columns u with the same means of x given hidden units, and variances 1.

    The weight that columns add to a state of the hidden units changes with their metric. Biases are shifted
    against that, where the other hidden units are at their means; with one hidden unit the distribution is
    the same.
    """
    # x = R u = R' u' has u' = R'⁻¹ R u (``turn``). Given h, u has the means linear / V + (J / V) h: turned,
    # they are bias and couplings of u', whose variances are 1. A hidden unit's own bias takes up the change
    # of what the columns' ψ adds to it.
    made, hamiltonian = deepcopy(machine), machine.hamiltonian()
    table, above = HiddenStates(hamiltonian), made.layers[made.hidden[0]]
    on, biases = table.posterior(table.nothing_seen(1)).hidden_means()[0], getattr(above, above.location)
    for l, root in after.items():
        turn = torch.linalg.inv(root.double())
        turn = (turn @ before[l].double() if l in before else turn).to(root)
        (linear, curvature), units = hamiltonian.thetas[l], made.layers[l]
        one = torch.ones_like(linear)
        units.fit_((turn @ (linear / curvature), one), one)
        for (low, _), coupling, J in zip(made.edges, made.couplings, hamiltonian.J, strict=True):
            if low == l:
                shifts = J / curvature.unsqueeze(1)
                middle = linear / curvature + shifts @ on
                moved = turn @ shifts
                coupling.fill_(moved if units.scale is None else moved / units.scale.unsqueeze(1))
                biases += bias_shift(J, shifts, middle, on) - bias_shift(moved, moved, turn @ middle, on)
    return made


def bias_shift(J: Tensor, shifts: Tensor, middle: Tensor, on: Tensor) -> Tensor:
    """Returns by how much ψ of Gaussian columns rises where each hidden unit turns on, others at their means.

    Args:
        J: couplings, (width, hidden).
        shifts: Shifts of the columns' means by each hidden unit, (width, hidden).
        middle: Means of the columns where hidden units are at their means, (width,).
        on: Means of the hidden units, (hidden,).
    """
    # ψ = ½ V mean², and J = V shift. With the others at their means unit j moves the mean from
    # middle - shift on_j to middle + shift (1 - on_j): the rise is V shift (middle + shift (½ - on_j)).
    return (J * (middle.unsqueeze(1) + shifts * (0.5 - on))).sum(0)


def _list_decays(machine: BoltzmannMachine, rows: float) -> list[float]:
    """Returns the weight decay of every coupling: the prior's precision over the number of rows."""
    return [(1.0 if machine.layers[l].gaussian else _STATES_DECAY) / rows for l, _ in machine.edges]


def _find_joined(machine: BoltzmannMachine, v: Tensor) -> tuple[tuple[int, ...], float]:
    """Returns the layers of real columns that may be joined, each of which varies, and seconds of an update.

    There are none where an update takes too long (``seconds_of_joined``).
    """
    joined, seconds = [], 0.0
    for l, x in machine.split(v).items():
        low, high = x.nan_to_num(nan=inf).amin(0), x.nan_to_num(nan=-inf).amax(0)
        if machine.layers[l].gaussian and x.shape[1] > 1 and bool((low < high).all()):
            joined.append(l)
            rows = x[:EXACT_BATCH].isnan()
            seconds += seconds_of_joined(rows)
    return (tuple(joined), seconds) if seconds * _FEWEST_UPDATES <= _SECONDS else ((), 0.0)


def _fit_normal(x: Tensor, weights: Tensor | None, shape: Shape) -> tuple[Tensor, Tensor]:
    """Returns mean and covariance of real columns."""
    rows, row_weights = take_rows(x, weights, _COVARIANCE_ROWS)
    return fit_normal(rows, row_weights, **shape._asdict(), rounds=30, tolerance=1e-3)


def _fit_units(units: Layer, mean: Tensor, total: Tensor, covariance: Tensor) -> Tensor:
    """Fits units u of columns x = R u of a mean and covariance; returns R, a root of another covariance."""
    root: Tensor = torch.linalg.cholesky(covariance)
    back = torch.linalg.inv(root)
    variance = (back @ total @ back.t()).diagonal()
    units.fit_((back @ mean, variance), variance)
    return root


def _choose_normal(machine: BoltzmannMachine, joined: tuple[int, ...], split: Split) -> ColumnModel:
    """Returns the normal distributions of joined columns that give held-out rows the largest likelihood.

    Of many rows it is the one of the least ridge.
    """
    rows, held = machine.split(split.rows), machine.split(split.held)
    found = dict[Shape, dict[int, tuple[Tensor, Tensor]]]()

    def score(shape: Shape) -> float:
        total = 0.0
        found[shape] = {l: _fit_normal(rows[l], split.weights, shape) for l in joined}
        for l, (mean, covariance) in found[shape].items():
            units = Gaussian(len(mean)).to(rows[l])
            root = _fit_units(units, mean, covariance, covariance).to(rows[l])
            alone = BoltzmannMachine([units], edges=[]).double()
            total += mean_score(alone, held[l].double(), weights=split.held_weights, roots={0: root})
        return total

    widest = max((rows[l] for l in joined), key=lambda x: x.shape[1])
    shapes = list_shapes(widest[_COVARIANCE_ROWS], _RIDGES)
    if len(shapes) == 1 and len(rows[joined[0]]) >= _MANY_ROWS and shapes[0][0].factors is None:
        shapes = [[Shape(_RIDGES[0])]]
    shape = shapes[0][0] if len(shapes) == len(shapes[0]) == 1 else choose_shape(shapes, score)
    return ColumnModel(joined, shape, normals=found.get(shape))
