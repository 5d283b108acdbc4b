"""Cells that the rest of their row refutes: they are no ground to tell missing cells from."""

from __future__ import annotations

from itertools import accumulate
from math import log

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine
from harmonium.sums import HiddenStates
from harmonium.tables import Table

_ERRORS = 1e-3
"""Share of cells that are errors, with any state as probable as another: a cell that is merely rare, one in a
thousand given the rest, is to tell of the others."""
_MARGIN = 0.25
"""Share of the range seen by which a cell may lie beyond it without a doubt about its row. New rows often do
by a tenth, beside columns that nearly determine each other; errors send cells off by whole ranges."""
_ROUNDS = 3  # cells of a row at most that are taken for errors


def beyond_seen(table: Table, states: Tensor) -> Tensor:
    """Returns which rows of states have a real column far beyond what training saw of it, (rows,) bool.

    Args:
        table: Encoder of the columns.
        states: states or means, (rows, at least the width of the table), NaN where missing.
    """
    low, high = (x.to(states) for x in _plausible_ends(table))
    mine = states[:, : len(low)]
    return ((mine < low) | (mine > high)).any(1)


@torch.no_grad()
def without_refuted(machine: BoltzmannMachine, table: Table, v: Tensor) -> Tensor:
    """Returns rows without the cells that are more probably errors than what the rest of their row tells.

    A linear relation goes on for ever: a cell that is wrong, such as a length of 0 beside others of 6, would
    move all that depends on it as far as it is wrong. A cell is taken for an error where the row is more
    probable without it and with an error: one cell in a thousand, any state that training saw as probable as
    another. A row is probable if what it lacks lies within what was seen, or a quarter of that beyond.

    Args:
        machine: Machine that ``HiddenStates`` takes.
        table: Encoder of its first visible units.
        v: visible states, (rows, visible_width), NaN where missing.
    """
    sums = HiddenStates(machine.hamiltonian().to(torch.float64))
    v, moving = v.clone(), torch.arange(len(v), device=v.device)
    low, high = (x.to(v.device, torch.float64) for x in _plausible_ends(table))
    widths = [column.coding.width for column in table.columns]
    places = [slice(end - width, end) for end, width in zip(accumulate(widths), widths, strict=True)]
    for _ in range(_ROUNDS):
        rows = v[moving].double()
        worst = _log_plausible(sums, rows, low, high)
        column = torch.full((len(rows),), -1, device=v.device)
        for j, place in enumerate(places):
            rest = rows.clone()
            rest[:, place] = torch.nan
            span = (high[place] - low[place]).sum()
            even = float(span.log()) if bool(span.isfinite()) else log(table.columns[j].coding.n_states)
            without = _log_plausible(sums, rest, low, high) + log(_ERRORS) - even
            worse = ~rows[:, place].isnan().any(1) & (without > worst)
            worst, column = torch.where(worse, without, worst), torch.where(worse, j, column)
        moving, column = moving[column >= 0], column[column >= 0]
        if not len(moving):
            break
        for j, place in enumerate(places):
            v[moving[column == j], place] = torch.nan
    return v


def _plausible_ends(table: Table) -> tuple[Tensor, Tensor]:
    """Returns the ends of states, (width,) each, moved outwards by a share of their distance."""
    low, high = table.ends_of_states()
    margin = torch.where((high - low).isfinite(), _MARGIN * (high - low), 0.0)
    return low - margin, high + margin


def _log_plausible(sums: HiddenStates, v: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Returns ln p(what rows show, and what they lack is within what was seen), (rows,), nearly.

    What a row lacks is taken for normal, and its columns for independent.
    """
    width, found = len(low), []
    for place, posterior in sums.blocks(v):
        mean, variance = (x[:, :width].double() for x in posterior.moments())
        lacking = v[place, :width].isnan() & low.isfinite()
        deviation = variance.clamp(min=1e-12).sqrt()
        inside = sum(torch.special.log_ndtr(x / deviation) for x in (mean - low, high - mean))
        found.append(torch.where(lacking, inside, 0.0).sum(1))
    return sums.log_likelihood(v) + torch.cat(found)
