"""What a machine has not learned: more than independent columns, links between columns, orders of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from math import hypot, log1p, sqrt

import numpy as np
import torch
from torch import Tensor

from harmonium import _random
from harmonium.data import Encoder
from harmonium.data.transforms import Array
from harmonium.likelihood import (
    LogPartition,
    ais,
    annealed_bound,
    exact_log_likelihood,
    exact_log_partition,
    variational_bound,
)
from harmonium.machine import BoltzmannMachine
from harmonium.sums import HiddenStates, affordable, has_hidden_states, unit_updates
from harmonium.tables.baselines import score_baselines, score_separate, separate
from harmonium.tables.column import Column
from harmonium.tables.table import Table

LOOKED_AT = 256
"""Rows that are looked at, at most: their mean ln p is known to a tenth of what pairs of columns gain."""
_LEAST = 50  # rows, without which a correlation of 0.3 may be chance
_STRONG, _SURE = 0.3, 5.0  # correlation, and standard errors of none, of a link that is to be learned
_SHARE = 0.05  # of what a Gaussian of that pair alone would gain
_HALF = 0.5  # of what pairs of columns gain: a machine below it has missed more than it has learned
_LEAST_REACH = 0.1  # nats a row that pairs gain where there is something to learn
_DRAWS = 500  # of whole rows: a share of 0.3 is then known to 0.02
_OVERLAP = 0.1  # of independent draws that break an order, where it is no matter of the two ranges
_ROUNDING = 1e-4  # of a deviation: what states of float32 make of equal cells
_ANNEALING = 50, 300  # runs and temperatures: half a second of 784 columns beside 500 hidden units
_LOST = 0.01  # of ln p under independent columns, of which a machine that has learned little may fall short
_SHARE_OF_SUMS = 1 / 16  # of the largest automatic sum: a fifth of a second beside a training of one or more


@torch.no_grad()
def find_collapse(
    machine: BoltzmannMachine,
    rows: Tensor,
    weights: Tensor | None = None,
    seed: int | torch.Generator = 0,
) -> str | None:
    """Finds whether a machine gives rows a lower likelihood than independent columns do.

    ln Z is exact where that is quick. Else it is annealed, which on average puts it too low and so spares the
    machine. ln p of joined hidden layers is bounded from below, by annealing where mean field speaks against
    the machine. It has to fall short by five standard errors and 1 %.

    Args:
        machine: Trained machine.
        rows: visible states, (rows, visible_width), NaN where missing; complete ones are read, of which 256
            are scored.
        weights: Row weights, (rows,), at least 0; None means uniform.
        seed: Seed of the annealing, an int or a generator.

    Returns:
        How far it falls short, in one sentence; None: it does not, or there are fewer than 50 rows.
    """
    complete = ~rows.isnan().any(1)
    weights = None if weights is None else weights[complete.to(weights.device)].to(machine.device)
    v = rows[complete].to(machine.device, machine.dtype)
    if len(v) < _LEAST:
        return None
    generator = _random.as_generator(seed, machine.device)
    if affordable(unit_updates(machine.hamiltonian()), _SHARE_OF_SUMS):
        partition = LogPartition.exact(exact_log_partition(machine))
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of few effective runs: then ln Z is too low
            partition = ais(machine, *_ANNEALING, data=v, weights=weights, reverse=False, seed=generator)
    share = torch.ones(len(v), dtype=torch.float64) if weights is None else weights.double().cpu()
    looked_at = torch.linspace(0, len(v) - 1, min(len(v), LOOKED_AT), dtype=torch.float64).long()
    x, share = v[looked_at], share[looked_at] / share[looked_at].sum()
    alone = torch.stack(score_separate(separate(machine, v.double(), weights), x)).sum(0).cpu()
    bounds: list[Callable[..., Tensor]] = [variational_bound]
    if not machine.graph.independent:
        bounds.append(partial(annealed_bound, chains=2, temperatures=30))
    for bound in bounds:
        own = bound(machine, x, partition).double().cpu()
        less, simplest = float(share @ (alone - own)), float(share @ alone)
        error = float((share.square() @ (alone - own - less).square()).sqrt())
        if less <= _SURE * hypot(error, partition.standard_error) + _LOST * abs(simplest):
            return None
    return (
        f"the machine is worse than independent columns, which have {simplest:.4g} nats a row where it has "
        f"{simplest - less:.4g}"
    )


@torch.no_grad()
def find_lost_links(
    machine: BoltzmannMachine,
    rows: Tensor,
    encoder: Encoder | None = None,
    row_score: Callable[[BoltzmannMachine, Tensor], Tensor] | None = None,
) -> str | None:
    """Finds whether a machine gains little on independent columns though pairs of columns gain much.

    Where ln p is affordable, complete rows are scored, beside the best tree of pairs of columns, which is
    fitted to one half of them and scored on the other. Elsewhere, and of rows with holes, the machine is to
    be better than independent columns where two columns are correlated.

    Args:
        machine: Trained machine.
        rows: visible states, (rows, visible_width), NaN where missing; at most 256 of them are read.
        encoder: Encoder of the rows, whose names of columns the message has.
        row_score: Function of a machine and rows that scores each, where ln p is not affordable; None: such a
            machine is not judged.

    Returns:
        What is lost, in one sentence; None: nothing, or there are fewer than 50 rows.
    """
    v = rows[:LOOKED_AT].to(machine.device, machine.dtype)
    if len(v) < _LEAST:
        return None
    hamiltonian, complete = machine.hamiltonian(), v[~v.isnan().any(1)]
    summed = affordable(unit_updates(hamiltonian) + unit_updates(hamiltonian, v), _SHARE_OF_SUMS)
    score = exact_log_likelihood if summed else row_score
    if score is None:
        return None
    r, *units = _find_link(machine, v)
    if r >= max(_STRONG, _SURE / sqrt(len(v))):
        own, alone = (float(score(each, v).mean()) for each in (machine, separate(machine, v)))
        if own - alone <= -_SHARE * log1p(-min(r * r, 0.99)) / 2:
            names = encoder.columns if isinstance(encoder, Table) else None
            one, other = (unit if names is None else names[unit].name for unit in units)
            return (
                "the machine tells its rows no better than independent columns would, though columns "
                f"{one!r} and {other!r} hang together (correlation {r:.2f})"
            )
    if not summed or len(complete) < _LEAST:
        return None
    halves = (complete[::2], complete[1::2])
    scores = [score_baselines(machine, *pair) for pair in (halves, halves[::-1])]
    alone, pairs = (sum(score[i] or 0.0 for score in scores) / 2 for i in range(2))
    gain, reach = float(exact_log_likelihood(machine, complete).mean()) - alone, pairs - alone
    if scores[0].pairs is None or reach <= _LEAST_REACH or gain >= _HALF * reach:
        return None
    return (
        f"pairs of columns alone raise ln p of a row by {reach:.2g} nats above independent columns, "
        f"the machine by {gain:.2g}"
    )


@torch.no_grad()
def find_broken_order(
    machine: BoltzmannMachine, rows: Tensor, encoder: Encoder, seed: int | torch.Generator = 0
) -> str | None:
    """Finds two columns of numbers or dates whose order all rows keep and draws break, as start and end.

    Such columns lie closer together than a machine learns either. Draws are from the exact distribution, and
    break the order at least half as often as independent columns would.

    Args:
        machine: Trained machine of a table.
        rows: visible states, (rows, visible_width), NaN where missing.
        encoder: Encoder of the rows.
        seed: Seed of the draws, an int or a generator.

    Returns:
        What is broken and what to do, in one sentence; None: nothing, there are fewer than 50 rows, or the
        machine has too many hidden states to draw from exactly.
    """
    if not isinstance(encoder, Table) or len(rows) < _LEAST:
        return None
    if not has_hidden_states(machine.graph, machine.layers):
        return None
    hidden_states, generator = HiddenStates.of(machine), _random.as_generator(seed, machine.device)
    columns, seen = _read_numbers(encoder, rows)
    drawn = _read_numbers(
        encoder, hidden_states.draw(hidden_states.nothing_seen(1), generator, _DRAWS)[:, 0]
    )[1]
    worst, message = _HALF, None
    for low, column in enumerate(columns):
        slack = _ROUNDING * np.nanstd(seen[:, low])
        broken = (drawn[:, [low]] > drawn + slack).mean(0)
        ordered = ~(seen[:, [low]] > seen + slack).any(0)  # no row breaks this order
        for high in np.flatnonzero(ordered).tolist():
            other, both = columns[high], seen[~np.isnan(seen[:, [low, high]]).any(1)][:, [low, high]]
            if column.form != other.form or len(both) < _LEAST:
                continue
            if (both[:, 0] >= both[:, 1] - slack).mean() > _HALF:  # two columns that are one
                continue
            below = np.searchsorted(np.sort(both[:, 1]), both[:, 0]).mean() / len(both)
            if below >= _OVERLAP and broken[high] > worst * below:
                worst = broken[high] / below
                message = (
                    f"in {broken[high]:.0%} of draws {column.name!r} is above {other.name!r}, and in no row "
                    "of the data: give the difference of the two in place of one of them"
                )
    return message


def _read_numbers(table: Table, v: Tensor) -> tuple[list[Column], Array]:
    """Returns the columns of numbers and dates, and their numbers in states, (rows, columns)."""
    columns, numbers, start = list[Column](), list[Array](), 0
    for column in table.columns:
        if column.coding.width == 1 and (column.ranked or not column.values):
            columns.append(column)
            numbers.append(column.numbers(v[:, start : start + 1].double().cpu().numpy())[:, 0])
        start += column.coding.width
    return columns, np.stack(numbers, 1) if numbers else np.zeros((len(v), 0))


def _find_link(machine: BoltzmannMachine, v: Tensor) -> tuple[float, int, int]:
    """Returns the largest correlation of states of two units, and the units, counted over all layers."""
    x = (v - v.nanmean(0)).nan_to_num(0.0).double()
    x = x / x.norm(dim=0).clamp(min=1e-12)
    units = machine.unit_of_column
    correlation = (x.t() @ x).abs().masked_fill(units == units.unsqueeze(1), 0.0)
    i, j = divmod(int(correlation.argmax()), len(units))
    return float(correlation[i, j]), int(units[i]), int(units[j])
