"""Columns whose order all rows keep, as start and end, and draws break."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from harmonium import _random
from harmonium.data import Encoder
from harmonium.data.transforms import Array
from harmonium.machine import BoltzmannMachine
from harmonium.sums import HiddenStates, has_hidden_states
from harmonium.tables.column import Column
from harmonium.tables.table import Table

LOOKED_AT = 256
"""Rows that are looked at, at most: more of them rarely break an order that these keep."""
_LEAST = 50  # rows, fewer of which may keep an order by chance
_HALF = 0.5  # of what independent draws break: a machine above it has missed most of the order
_DRAWS = 500  # of whole rows: a share of 0.3 is then known to 0.02
_OVERLAP = 0.1  # of independent draws that break an order, where it is no matter of the two ranges
_ROUNDING = 1e-4  # of a deviation: what states of float32 make of equal cells


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
