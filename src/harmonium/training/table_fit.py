"""Training of tables without chains: columns by themselves or joined, as rows that are held out decide."""

from __future__ import annotations

from copy import deepcopy
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harmonium import _random
from harmonium._random import as_generator
from harmonium.layers import Gaussian, Layer
from harmonium.machine import BoltzmannMachine, init_visible_biases_
from harmonium.sums import HiddenStates
from harmonium.training.correlated import fit_normal, fit_residuals, fold
from harmonium.training.exact_fit import ExactFit, fit_exact

_JOINED = 40  # real columns at most
_HELD_OUT = 7  # one row in so many
_RIDGES = (1e-3, 1e-2, 1e-1)  # of the covariance of joined columns
_MANY_ROWS = 800  # of which the first ridge serves, and one round
_SOME_ROWS = 5000  # at most that a covariance is found from
_ROUNDS = 2  # of covariances given the hidden units
_RATE, _UPDATES = 0.1, 100  # the first rate, and updates at most, of each way to learn the columns
_LAST, _LAST_RATE = 25, 0.015  # updates on all rows, and their rate
_OF_STATES = 0.3  # of the weight decay, for couplings to columns that are not Gaussian: labels hang together


class TableFit(NamedTuple):
    """A machine that was trained without chains.

    Attributes:
        machine: of the columns themselves, in the dtype of the one that was to be trained.
        history: a record of every look at the rows that were held out.
        updates: that the machine comes from.
    """

    machine: BoltzmannMachine
    history: list[dict[str, Any]]
    updates: int


class Aim(NamedTuple):
    """The objective, (1 - joint) ln p(y | x) + joint ln p(x, y); by default ln p of all columns.

    Attributes:
        condition_on: the layers of x; none: there is no label.
        joint: in [0, 1].
    """

    condition_on: list[int] = []  # noqa: RUF012
    joint: float = 1.0


class _Way(NamedTuple):
    """A way to learn real columns.

    Attributes:
        joined: layers whose columns are joined.
        ridge: of their covariances.
        covariances: in place of those of the rows; empty: those of the rows.
    """

    joined: list[int]
    ridge: float
    covariances: dict[int, Tensor]


class _Start(NamedTuple):
    """A machine whose hidden units are joined to nothing, and the roots of its joined columns."""

    machine: BoltzmannMachine
    roots: dict[int, Tensor]


class _Attempt(NamedTuple):
    """A machine that rows have been held out from, and how it came about."""

    way: _Way
    start: _Start
    made: BoltzmannMachine
    done: ExactFit
    updates: int


@torch.no_grad()
def fit_table(
    machine: BoltzmannMachine,
    v: Tensor,
    weights: Tensor | None = None,
    *,
    aim: Aim = Aim(),  # noqa: B008
    judged: Tensor | None = None,
    seed: int | torch.Generator = 0,
) -> TableFit:
    """Trains a new machine by exact gradients, with its real columns joined where that is better.

    A seventh of the rows decides this, and where training ends (``fit_exact``). Then all rows have their say:
    the machine is moved by as much as its start moves, and a few more updates follow. Couplings have a
    normal prior, of variance 1 to Gaussian columns, and wider to others, whose links are otherwise lost.

    Args:
        machine: one hidden layer joined to all visible ones; it is not changed.
        v: visible states, (rows, visible_width), NaN where missing; at least two rows.
        weights: of the rows, (rows,), above 0; None: all count alike.
        aim: what is learned; with a label the rows that are held out are judged by ln p(y | x).
        judged: rows that may be held out, (rows,) bool; None: all.
        seed: of the rows that are held out, and of the couplings: an int or a generator.
    """
    generator = as_generator(seed)
    order, stream = _random.permutation(len(v), generator), generator.initial_seed() % (1 << 63)
    if judged is not None:  # those first
        order = order[(~judged[order]).to(torch.int8).argsort(stable=True)]
    count = len(v) if judged is None else int(judged.sum())
    held = max(1, count // _HELD_OUT)
    out, kept = order[:held].sort().values, order[held:].sort().values
    rows, share = v[kept.to(v.device)], None if weights is None else weights[kept]
    asked, each = v[out.to(v.device)], None if weights is None else weights[out]

    def attempt(way: _Way, rival: _Attempt | None = None) -> _Attempt:
        start = _begin(machine, rows, share, way)
        made = deepcopy(start.machine)
        if way.covariances:
            assert rival is not None
            made = _change_roots(rival.made, rival.start.roots, start.roots)
        done = fit_exact(
            made,
            rows,
            share,
            validation=asked,
            validation_weights=each,
            roots=start.roots,
            **aim._asdict(),
            learning_rate=_RATE,
            max_updates=_UPDATES,
            weight_decay=_list_decays(machine, count_rows(rows, share)),
            initial_std=None if way.covariances else 0.1,
            to_beat=-inf if rival is None else rival.done.score,
            seed=stream,
        )
        earlier = rival.updates if way.covariances and rival is not None else 0
        return _Attempt(way, start, made, done, earlier + len(done.rates))

    joined, single = _find_joined(machine, rows), _Way([], 0.0, {})
    if joined:
        ridge = _choose_ridge(machine, joined, rows, asked, share, each)
        first = attempt(_Way(joined, ridge, {}))
        best = max(first, attempt(single, first), key=_score)
        some, few = _read_some(rows, share)
        for _ in range(_ROUNDS if len(v) < _MANY_ROWS else 1):
            roots = {l: torch.eye(machine.layers[l].width).to(v) for l in joined} | best.start.roots
            covariances = fit_residuals(best.made, some, few, roots=roots, ridge=ridge)
            again = attempt(_Way(joined, ridge, covariances), best)
            if again.done.score < best.done.score:
                break
            best = again
    else:
        best = attempt(single)
    made, start = best.made, _begin(machine, v, weights, best.way)
    starts = zip(start.machine.parameters(), best.start.machine.parameters(), strict=True)
    for p, (now, before) in zip(made.parameters(), starts, strict=True):
        p.add_(now - before)
    fit_exact(
        made,
        v,
        weights,
        roots=start.roots,
        **aim._asdict(),
        rates=[_LAST_RATE] * _LAST,
        weight_decay=_list_decays(machine, count_rows(v, weights)),
        initial_std=None,
        seed=stream,
    )
    if start.roots:
        made = fold(made, start.roots).to(dtype=machine.dtype)
    return TableFit(made, best.done.history, best.updates + _LAST)


def _change_roots(
    machine: BoltzmannMachine, before: dict[int, Tensor], after: dict[int, Tensor]
) -> BoltzmannMachine:
    """Returns the machine of other columns u with the same means of x given hidden units, and variances 1.

    What the columns add to the weight of a hidden unit changes with their metric. Its bias makes up for that,
    beside the means of the others; one unit alone keeps its law.
    """
    made, law = deepcopy(machine), machine.hamiltonian()
    table, above = HiddenStates(law), made.layers[made.hidden[0]]
    on, biases = table.posterior(table.nothing_seen(1)).hidden_means()[0], getattr(above, above.location)
    for l, root in after.items():
        turn = torch.linalg.inv(root.double())
        turn = (turn @ before[l].double() if l in before else turn).to(root)
        (linear, curvature), units = law.thetas[l], made.layers[l]
        one = torch.ones_like(linear)
        units.fit_((turn @ (linear / curvature), one), one)
        for (low, _), coupling, J in zip(made.edges, made.couplings, law.J, strict=True):
            if low == l:
                shifts = J / curvature.unsqueeze(1)
                middle = linear / curvature + shifts @ on
                moved = turn @ shifts
                coupling.fill_(moved if units.scale is None else moved / units.scale.unsqueeze(1))
                biases += _pull(J, shifts, middle, on) - _pull(moved, moved, turn @ middle, on)
    return made


def _pull(J: Tensor, shifts: Tensor, middle: Tensor, on: Tensor) -> Tensor:
    """Returns by how much ψ of Gaussian columns rises where each hidden unit turns on, others at their means.

    Args:
        J: couplings, (width, hidden).
        shifts: of the columns' means by each hidden unit, (width, hidden).
        middle: the columns' means beside the means of the hidden units, (width,).
        on: those means, (hidden,).
    """
    return (J * (middle.unsqueeze(1) + shifts * (0.5 - on))).sum(0)


def _list_decays(machine: BoltzmannMachine, rows: float) -> list[float]:
    """Returns the weight decay of every coupling: the prior's precision over the number of rows."""
    return [(1.0 if machine.layers[l].gaussian else _OF_STATES) / rows for l, _ in machine.edges]


def _score(attempt: _Attempt) -> float:
    return attempt.done.score


def count_rows(v: Tensor, weights: Tensor | None) -> float:
    """Returns the number of rows that these rows stand for."""
    return len(v) if weights is None else float(weights.sum())


def _find_joined(machine: BoltzmannMachine, v: Tensor) -> list[int]:
    """Returns the layers of real columns that may be joined: each varies among the rows."""
    found = []
    for l, x in machine.split(v).items():
        low, high = x.nan_to_num(nan=inf).amin(0), x.nan_to_num(nan=-inf).amax(0)
        if machine.layers[l].gaussian and 1 < x.shape[1] <= _JOINED and bool((low < high).all()):
            found.append(l)
    return found


def _begin(machine: BoltzmannMachine, v: Tensor, weights: Tensor | None, way: _Way) -> _Start:
    """Returns the machine of rows whose hidden units are joined to nothing."""
    made, roots = deepcopy(machine), dict[int, Tensor]()
    init_visible_biases_(made, v, weights)
    for l in way.joined:
        x = made.split(v)[l]
        roots[l] = _fit_units(made.layers[l], x, weights, way.ridge, way.covariances.get(l))
    return _Start(made, roots)


def _fit_units(
    units: Layer, x: Tensor, weights: Tensor | None, ridge: float, covariance: Tensor | None = None
) -> Tensor:
    """Fits units u of columns x = R u; returns R, a root of the covariance. None: of that of the rows."""
    mean, whole = fit_normal(*_read_some(x, weights), ridge=ridge, rounds=30, tolerance=1e-3)
    root = torch.linalg.cholesky(whole if covariance is None else covariance)
    back = torch.linalg.inv(root)
    variance = (back @ whole @ back.t()).diagonal()
    units.fit_((back @ mean, variance), variance)
    found: Tensor = root.to(x)
    return found


def _read_some(x: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Returns as many rows as a covariance is found from where cells are missing."""
    if len(x) <= _SOME_ROWS:
        return x, weights
    return x[:_SOME_ROWS], None if weights is None else weights[:_SOME_ROWS]


def _choose_ridge(
    machine: BoltzmannMachine,
    joined: list[int],
    shown: Tensor,
    asked: Tensor,
    weights: Tensor | None,
    shares: Tensor | None,
) -> float:
    """Returns the ridge whose Gaussian tells the rows that were held out best; the least of many rows."""
    if len(shown) >= _MANY_ROWS:
        return _RIDGES[0]
    scores = list[float]()
    for ridge in _RIDGES:
        score = 0.0
        for l in joined:
            x = machine.split(shown)[l]
            units = Gaussian(x.shape[1]).to(x)
            root = _fit_units(units, x, weights, ridge)
            alone = BoltzmannMachine([units], edges=[]).double().hamiltonian()
            each = HiddenStates(alone, {0: root}).log_likelihood(machine.split(asked)[l].double())
            score += float(each.mean() if shares is None else shares.to(each) @ each / shares.sum())
        if scores and score < scores[-1]:
            break
        scores.append(score)
    return _RIDGES[len(scores) - 1]
