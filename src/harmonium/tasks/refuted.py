"""Cells that the rest of their row refutes: they are no ground to tell missing cells from."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine
from harmonium.sums import HiddenStates
from harmonium.tables import Table

_ERRORS = 1e-3
"""Share of cells that are errors, with any state as probable as another: a cell that is merely rare, one in a
thousand given the rest, is to tell of the others."""
_ROUNDS = 3  # cells of a row at most that are taken for errors


def beyond_seen(table: Table, states: Tensor) -> Tensor:
    """Returns which rows of states have a real column beyond what training saw of it, (rows,) bool.

    Args:
        table: Encoder of the columns.
        states: states or means, (rows, at least the width of the table), NaN where missing.
    """
    low, high = (x.to(states) for x in table.ends_of_states())
    mine = states[:, : len(low)]
    return ((mine < low) | (mine > high)).any(1)


@torch.no_grad()
def without_refuted(machine: BoltzmannMachine, table: Table, v: Tensor) -> Tensor:
    """Returns rows without the cells that are more probably errors than what the rest of their row tells.

    A linear relation goes on for ever: one cell that is wrong, such as a length of 0 beside others of 6,
    would move all that depends on it as far as it is wrong. A cell is taken for an error where
    p(cell | rest) is below that of errors, a thousandth spread evenly over the states that training saw.

    Args:
        machine: Machine that ``HiddenStates`` takes.
        table: Encoder of its first visible units.
        v: visible states, (rows, visible_width), NaN where missing.
    """
    sums = HiddenStates(machine.hamiltonian().to(torch.float64))
    v, moving = v.clone(), torch.arange(len(v), device=v.device)
    low, high = (x.to(v.device, torch.float64) for x in table.ends_of_states())
    for _ in range(_ROUNDS):
        rows = v[moving].double()
        worst = rows.new_zeros(len(rows))
        place = torch.full((len(rows),), -1, device=v.device)
        complete, start = sums.log_likelihood(rows), 0
        for j, column in enumerate(table.columns):
            unit, start = slice(start, start + column.coding.width), start + column.coding.width
            rest = rows.clone()
            rest[:, unit] = torch.nan
            even = -log(column.coding.n_states)
            if column.support is not None and column.support.step is None and column.support.ends is not None:
                even = -float((high[unit] - low[unit]).log())
            margin = complete - sums.log_likelihood(rest) - even - log(_ERRORS)
            worse = ~rows[:, unit].isnan().any(1) & (margin < worst)
            worst, place = torch.where(worse, margin, worst), torch.where(worse, j, place)
        ends = torch.tensor([column.coding.width for column in table.columns], device=v.device).cumsum(0)
        refuted = place >= 0
        moving, place = moving[refuted], place[refuted]
        if not len(moving):
            break
        columns = torch.arange(int(ends[-1]), device=v.device)
        mine = torch.bucketize(columns, ends, right=True)
        v[moving, : len(columns)] = v[moving, : len(columns)].masked_fill(
            mine == place.unsqueeze(1), torch.nan
        )
    return v
