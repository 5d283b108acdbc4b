"""Values of columns that rows are drawn or completed with, as ``--given`` names them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from harmonium.cli.coding import Coding
from harmonium.data.column import Column
from harmonium.data.sheet import Cells, of_whole_numbers


def states_given(coding: Coding, given: Sequence[str], rows: int) -> Tensor | None:
    """(rows, visible width) in float64, all alike, NaN but for the columns named; None where none is.

    Args:
        coding: of the machine.
        given: such as ``city=Rom``.
        rows: at least 1.

    Raises:
        ValueError: another form, no such column, or a value that it has no state for.
    """
    if not given:
        return None
    machine = coding.machine
    states = torch.full((1, machine.visible_width), torch.nan, dtype=torch.float64, device="cpu")
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise ValueError(f"given: expected COLUMN=VALUE such as city=Rom, received {each!r}")
        try:
            place = coding.unit_of(name.strip())
            encoded = place.column.encode(_cell(place.column, value.strip()), "error")
        except ValueError as error:
            reason = str(error).partition(" at row 0")[0].removeprefix("column: ").removeprefix("X: ")
            raise ValueError(f"given: {reason}") from error
        states[:, place.states] = torch.from_numpy(encoded)
    return states.repeat(rows, 1)


def _cell(column: Column, text: str) -> Cells:
    """A cell of a column from its text: one of the labels by how it is written, else a number."""
    written = {str(value): value for value in column.coding.values}
    value = written.get(text, text)
    try:
        number = float(value)
    except ValueError:
        number = None
    if number is not None and of_whole_numbers(column.dtype) and number % 1 != 0:
        raise ValueError(f"expected a whole number in column {column.name!r}, received {text!r}")
    if number is not None and (not column.coding.values or number in column.coding.values):
        return Cells(column.name, np.array([number]), "float64")
    cell = np.empty(1, dtype=object)
    cell[0] = value
    return Cells(column.name, cell, "object")
