"""Training of tables without chains: columns by themselves or joined, as rows that are held out decide."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields
from math import inf
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harmonium import _random
from harmonium._random import as_generator
from harmonium.data import Encoder, Table
from harmonium.layers import Gaussian, Layer
from harmonium.likelihood import HiddenStates
from harmonium.machine import BoltzmannMachine, init_visible_biases_
from harmonium.training import ExactFit, fit_exact, fit_normal, fold

FEW, MANY = 8, 100  # hidden units by default: where training is exact, and elsewhere
_MOST = 12  # that are summed out
_WIDEST, _OF_ONE_KIND = 100, 40  # visible columns at most; of one kind they may be pixels
_JOINED = 40  # real columns at most
_CHAINS = (
    *("rule", "sweeps", "n_chains", "batch_size", "epochs", "max_updates", "centred", "learning_rate"),
    *("optimizer", "schedule", "clip_norm", "weight_decay", "averaging", "initial_std", "early_stopping"),
    *("validation_fraction", "n_iter_no_change", "warm_start", "hidden", "hidden_states", "binarise"),
)
"""Parameters of training by chains: one that is not at its default asks for them."""

_HELD_OUT = 7  # one row in so many
_RIDGES = (1e-3, 1e-2, 1e-1)  # of the covariance of joined columns
_MANY_ROWS = 1000  # of which the first ridge serves
_NORMAL_ROWS = 5000  # at most that a covariance with missing cells is found from
_LAST, _LAST_RATE = 25, 0.015  # updates on all rows, and their rate


class Trained(NamedTuple):
    """A machine that was trained without chains.

    Attributes:
        machine: of the columns themselves, in the dtype of the one that was to be trained.
        history: a record of every look at the rows that were held out.
        updates: that the machine comes from.
    """

    machine: BoltzmannMachine
    history: list[dict[str, Any]]
    updates: int


class _Start(NamedTuple):
    """A machine whose hidden units are joined to nothing, and the roots of its joined columns."""

    machine: BoltzmannMachine
    roots: dict[int, Tensor]


def trains_exactly(options: Any, encoder: Encoder, layers: list[Layer], rows: int) -> bool:
    """Returns whether ``fit`` trains without chains: a table of few columns, and no option of chains.

    Args:
        options: the estimator.
        encoder: of the rows.
        layers: the visible layers.
        rows: their number; one can be held out.
    """
    width = sum(layer.width for layer in layers)
    table = isinstance(encoder, Table) or all(layer.gaussian for layer in layers)
    size, most = options.n_hidden, _OF_ONE_KIND if len(layers) == 1 else _WIDEST
    few = size is None or (isinstance(size, Integral) and size <= _MOST)
    plain = {known.name: known.default for known in fields(options)}
    return (
        table and few and width <= most and rows > 1 and all(getattr(options, x) == plain[x] for x in _CHAINS)
    )


@torch.no_grad()
def train_exactly(machine: BoltzmannMachine, v: Tensor, weights: Tensor | None, seed: int) -> Trained:
    """Trains a new machine by exact gradients, with its real columns joined where that is better.

    A seventh of the rows decides this, and where training ends (``fit_exact``). Then all rows have their say:
    the machine begins once more where they would have it begin, and goes the same way, with a few updates.
    Couplings have a standard normal prior.

    Args:
        machine: one hidden layer joined to all visible ones; it is not changed.
        v: visible states, (rows, visible_width), NaN where missing; at least two rows.
        weights: of the rows, (rows,), above 0; None: all count alike.
        seed: of the rows that are held out, and of the couplings.
    """
    generator = as_generator(seed)
    order = _random.permutation(len(v), generator)
    held = max(1, len(v) // _HELD_OUT)
    out, kept = order[:held].sort().values, order[held:].sort().values
    shares = [None if weights is None else weights[index] for index in (kept, out)]
    shown, asked = v[kept.to(v.device)], v[out.to(v.device)]
    joined = [] if len(kept) < 2 else _find_joined(machine, shown)
    ridge = _choose_ridge(machine, joined, shown, asked, *shares) if joined else 0.0
    best: tuple[_Start, ExactFit, BoltzmannMachine] | None = None
    for layers in (joined, []) if joined else ([],):
        start = _begin(machine, shown, shares[0], layers, ridge)
        made = deepcopy(start.machine)
        done = fit_exact(
            made,
            shown,
            shares[0],
            validation=asked,
            validation_weights=shares[1],
            roots=start.roots,
            weight_decay=1 / _count(shown, shares[0]),
            to_beat=-inf if best is None else best[1].score,
            seed=seed,
        )
        if best is None or done.score > best[1].score:
            best = start, done, made
    assert best is not None
    start, done, made = best
    begun = _begin(machine, v, weights, list(start.roots), ridge)
    for p, now, before in zip(
        made.parameters(), begun.machine.parameters(), start.machine.parameters(), strict=True
    ):
        p += now - before
    last = [_LAST_RATE] * min(_LAST, len(done.rates))
    decay = 1 / _count(v, weights)
    fit_exact(made, v, weights, roots=begun.roots, rates=last, weight_decay=decay, initial_std=None, seed=seed)
    if begun.roots:
        made = fold(made, begun.roots).to(dtype=machine.dtype)
    return Trained(made, done.history, len(done.rates) + len(last))


def _count(v: Tensor, weights: Tensor | None) -> float:
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


def _begin(
    machine: BoltzmannMachine, v: Tensor, weights: Tensor | None, joined: list[int], ridge: float
) -> _Start:
    """Returns the machine of rows whose hidden units are joined to nothing."""
    made, roots = deepcopy(machine), dict[int, Tensor]()
    init_visible_biases_(made, v, weights)
    for l in joined:
        made.layers[l], roots[l] = _fit_normal(made.split(v)[l], weights, ridge)
    return _Start(made, roots)


def _fit_normal(x: Tensor, weights: Tensor | None, ridge: float) -> tuple[Gaussian, Tensor]:
    """Returns units u without links, and R, so that the columns x = R u have the Gaussian of the rows."""
    if bool(x.isnan().any()):
        x, weights = x[:_NORMAL_ROWS], None if weights is None else weights[:_NORMAL_ROWS]
    mean, covariance = fit_normal(x, weights, ridge=ridge, rounds=30, tolerance=1e-3)
    root = torch.linalg.cholesky(covariance)
    units, one = Gaussian(len(mean)).to(x), torch.ones_like(mean)
    units.fit_((torch.linalg.solve_triangular(root, mean.unsqueeze(1), upper=False)[:, 0], one), one)
    return units, root.to(x)


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
            units, root = _fit_normal(machine.split(shown)[l], weights, ridge)
            alone = BoltzmannMachine([units], edges=[]).double().hamiltonian()
            each = HiddenStates(alone, {0: root}).log_likelihood(machine.split(asked)[l].double())
            score += float(each.mean() if shares is None else shares.to(each) @ each / shares.sum())
        if scores and score < scores[-1]:
            break
        scores.append(score)
    return _RIDGES[len(scores) - 1]
