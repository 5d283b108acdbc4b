"""Checks that observed entries of the data lie in the support of the visible units."""

from __future__ import annotations

from torch import Tensor

from harmonium import _checks
from harmonium._rows import Rows
from harmonium.machine import BoltzmannMachine

# Entries converted at once: bounds the memory of the pass.
_CHUNK = 1 << 20


def check_rows(machine: BoltzmannMachine, rows: Rows, name: str) -> bool:
    """Refuses rows of another width and, for data in memory, entries outside the support.

    Data in a file are left to ``check_batch``, as a whole pass over them may take long.

    Rows that were found in the support of these units before, such as by a machine's start, are not read.

    Returns:
        Whether all entries are known to be observed.
    """
    width = machine.visible_width
    if rows.width != width:
        raise ValueError(
            f"{name}: expected {width} columns, one for each visible unit, received {rows.width}"
        )
    if rows.support == machine.support:
        return rows.observed
    observed = rows.in_memory
    if rows.in_memory:
        start = 0
        for chunk in rows.chunks(max(1, _CHUNK // rows.width)):
            check_batch(machine, chunk, range(start, start + len(chunk)), name)
            observed = observed and _checks.observed(chunk)
            start += len(chunk)
        rows.support, rows.observed = machine.support, observed
    return observed


def check_batch(machine: BoltzmannMachine, batch: Tensor, indices: Tensor | range, name: str) -> None:
    """Refuse observed entries outside the support, naming the row of the data; NaN is not observed."""
    try:
        machine.check_rows(batch, name, missing=True)
    except ValueError:
        # A layer counts rows within what it is given; one row at a time tells which of the data it is.
        for row, index in zip(batch, indices, strict=True):
            for l, x in machine.split(row.unsqueeze(0)).items():
                machine.layers[l].observed(x.squeeze(0), f"{name}[{int(index)}]")
        raise
