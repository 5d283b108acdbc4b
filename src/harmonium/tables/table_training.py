"""Exact training of tables: one machine, whose real columns are joined by their covariance."""

from __future__ import annotations

import time
from copy import deepcopy
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._random import as_generator
from harmonium.machine import BoltzmannMachine
from harmonium.sums import LONG, HiddenStates, in_words, seconds_of_joined
from harmonium.tables.codec import Codec
from harmonium.tables.filling import FEWEST_ROWS, calibrate
from harmonium.tables.groups import choose_groups, group_start
from harmonium.tables.joint_normal import fold
from harmonium.tables.label_start import regression_start
from harmonium.tables.recipe import exact_seconds
from harmonium.training import (
    EXACT_BATCH,
    Objective,
    TrainingRun,
    count_rows,
    take_rows,
    train_exact,
    train_exact_until_best,
)


class ExactSchedule(NamedTuple):
    """Numbers of a training (docs/decisions/0020 has what was measured)."""

    held_out: int  # one row in so many
    rate: float  # first learning rate while held-out rows are looked at
    updates: int  # at most, meanwhile
    last_rate: float  # of the updates on all rows
    last_updates: int = 25


_ROWS = ExactSchedule(7, 0.1, 200, 0.015)
# Of ln p(y | x), which few rows tell less of. At half the rate training ends before it leaves the regression
# for labels that depend on the sign of a product.
_LABELS = ExactSchedule(4, 0.2, 60, 0.0075)
_ROWS_OF_INTERVALS = 200  # from which on at least as many are held out as intervals of cells need
_SECONDS = 20.0  # of the updates of joined columns, on one core
_FEWEST_UPDATES = 10  # of joined columns: with fewer they are not joined
_STATES_DECAY = 0.3  # times the weight decay, for couplings to discrete columns: more loses links of labels


@torch.no_grad()
def train_table(
    machine: BoltzmannMachine,
    v: Tensor,
    weights: Tensor | None = None,
    *,
    objective: Objective = Objective(),  # noqa: B008
    may_hold_out: Tensor | None = None,
    seed: int | torch.Generator = 0,
    **watch: Any,
) -> TrainingRun:
    """Trains a new machine by exact gradients, with its real columns joined by their covariance.

    Training starts at groups of rows (``group_start``). A seventh of the rows is held out, whose likelihood
    ends the training (``train_exact_until_best``), and whose hidden cells tell how cells are filled in
    (``calibrate``). All rows are used for the last 25 updates, which begin with the trained machine plus the
    difference between the starts of all rows and of six sevenths. Couplings have a normal prior, of variance
    1 to Gaussian columns and wider to others, whose links it would else suppress.

    Where ln p(y | x) counts too, no columns are joined: training starts at a logistic regression of the label
    (``regression_start``), and a quarter of the rows ends it by their ln p(y | x).

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
    joint = objective.joint == 1
    plan = _ROWS if joint else _LABELS
    learned, held = split_rows(v, weights, may_hold_out, plan.held_out, generator)
    stream = generator.initial_seed() % (1 << 63)
    joined, seconds = _find_joined(machine, learned[0]) if joint else ([], 0.0)
    hidden = machine.layers[machine.hidden[0]]
    of_joined = min(seconds * (plan.updates + plan.last_updates), 2 * _SECONDS)
    if (total := exact_seconds(machine, len(v)) + of_joined) >= LONG:
        _checks.warn(
            f"X: training sums over all states of {hidden.n_units} hidden units beside {v.shape[1]} columns "
            f"of states, which takes about {in_words(total)} on one core; fewer hidden units or columns take "
            'less, and method="chains" sums nothing'
        )
    most = hidden.n_units // max(1, len(joined)) if hidden.two_values == (0.0, 1.0) else 0
    groups = {l: choose_groups(machine.split(learned[0])[l], learned[1], most, stream) for l in joined}

    def begin(v: Tensor, weights: Tensor | None) -> tuple[BoltzmannMachine, dict[int, Tensor]]:
        if joint:
            return group_start(machine, v, weights, groups, stream)
        return regression_start(machine, v, weights, stream), {}

    first, roots = begin(*learned)
    trained = deepcopy(first)
    fit = train_exact_until_best(
        trained,
        *learned,
        validation=held[0],
        validation_weights=held[1],
        roots=roots,
        objective=objective,
        learning_rate=plan.rate,
        max_updates=_count_updates(plan.updates, seconds),
        weight_decay=_list_decays(machine, count_rows(*learned), joint),
        initial_std=None,
        seed=stream,
    )
    if joint:
        hidden_states = HiddenStates(deepcopy(trained).double().hamiltonian(), roots)
        calibrate(trained, Codec.of(machine).encoder, hidden_states, learned, held, stream)
    start, roots = begin(v, weights)
    for p, now, before in zip(trained.parameters(), start.parameters(), first.parameters(), strict=True):
        p.add_(now - before)
    last = _count_updates(plan.last_updates, seconds)
    return train_exact(
        trained,
        v,
        weights,
        updates=last,
        learning_rate=plan.last_rate,
        roots=roots,
        objective=objective,
        weight_decay=_list_decays(machine, count_rows(v, weights), joint),
        earlier=fit.history,
        spent=time.perf_counter() - started,
        seed=stream,
        show=(lambda trained_machine: fold(trained_machine, roots).to(dtype=trained_machine.dtype))
        if roots
        else None,  # of x = R u
        every=last,
        **watch,
    )


def split_rows(
    v: Tensor,
    weights: Tensor | None,
    may_hold_out: Tensor | None,
    held_out: int,
    generator: torch.Generator,
) -> list[tuple[Tensor, Tensor | None]]:
    """Returns rows to learn from and one in ``held_out`` to hold out, with their weights; drawn at random."""
    order = _random.permutation(len(v), generator)
    if may_hold_out is not None:  # those first
        order = order[(~may_hold_out[order]).to(torch.int8).argsort(stable=True)]
    count = len(v) if may_hold_out is None else int(may_hold_out.sum())
    number = max(count // held_out, FEWEST_ROWS if count >= _ROWS_OF_INTERVALS else 1)
    return [take_rows(v, weights, index.sort().values) for index in (order[number:], order[:number])]


def _count_updates(most: int, seconds: float) -> int:
    """Returns the updates that a training makes: fewer than ``most`` where joined columns take long."""
    return max(1, round(min(most, _SECONDS / seconds))) if seconds else most


def _list_decays(machine: BoltzmannMachine, rows: float, joint: bool) -> list[float]:
    """Returns the weight decay of every coupling: the prior's precision over the number of rows."""
    wide = [joint and not machine.layers[l].gaussian for l, _ in machine.edges]
    return [(_STATES_DECAY if is_wide else 1.0) / rows for is_wide in wide]


def _find_joined(machine: BoltzmannMachine, v: Tensor) -> tuple[list[int], float]:
    """Returns the layers of real columns to join, each of which varies, and seconds of an update of them.

    There are none where an update takes too long (``seconds_of_joined``).
    """
    joined, seconds = list[int](), 0.0
    for l, x in machine.split(v).items():
        low, high = x.nan_to_num(nan=inf).amin(0), x.nan_to_num(nan=-inf).amax(0)
        if machine.layers[l].gaussian and x.shape[1] > 1 and bool((low < high).all()):
            joined.append(l)
            seconds += seconds_of_joined(x[:EXACT_BATCH].isnan())
    return (joined, seconds) if seconds * _FEWEST_UPDATES <= _SECONDS else ([], 0.0)
