"""The variables of other programs' models, by name and in their order, beside the units of a machine.

``metadata["variables"]`` has their labels, ``metadata["units"]`` for each its unit as [layer, number], or the
[value] that it was observed at. Without these each unit is a variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from harmonium.machine import BoltzmannMachine


class Variable(NamedTuple):
    """A variable: its label, its unit as (layer, number), or the value that it was observed at."""

    label: Any
    unit: tuple[int, int] | None
    value: int = 0


def name_variables(machine: BoltzmannMachine, variables: Sequence[Variable]) -> None:
    """Notes the variables in the metadata of a machine; TypeError: labels that JSON does not have."""
    machine.metadata["variables"] = [_as_json(variable.label) for variable in variables]
    if [variable.unit for variable in variables] != units_of(machine):
        machine.metadata["units"] = [list(x.unit) if x.unit else [x.value] for x in variables]


def units_of(machine: BoltzmannMachine) -> list[tuple[int, int]]:
    """Lists the units of all layers, as (layer, number in the layer)."""
    return [(l, i) for l, layer in enumerate(machine.layers) for i in range(layer.n_units)]


def variables_of(machine: BoltzmannMachine) -> list[Variable]:
    """Lists the variables of a machine in their order; ValueError: metadata without each unit once."""
    units = units_of(machine)
    labels, units_read = (machine.metadata.get(name, units) for name in ("variables", "units"))
    try:
        variables = [
            Variable(_from_json(label), (unit[0], unit[1]) if len(unit) == 2 else None, unit[0])
            for label, unit in zip(labels, units_read, strict=True)
        ]
        if sorted(x.unit for x in variables if x.unit) == units:
            return variables
    except (TypeError, ValueError, LookupError):  # damaged, too
        pass
    raise ValueError(f"machine: expected each of its {len(units)} units once in metadata['units']")


def values_of(machine: BoltzmannMachine, states: Sequence[Tensor]) -> np.ndarray[Any, Any]:
    """Returns the values of variables, (rows, variables): categories from 0, others as units have them."""
    parts = [
        (layer.by_unit(x).argmax(-1) if layer.one_hot else x).numpy(force=True)
        for layer, x in zip(machine.layers, states, strict=True)
    ]
    columns = [
        parts[x.unit[0]][:, x.unit[1]] if x.unit else np.full(len(parts[0]), x.value)
        for x in variables_of(machine)
    ]
    return np.stack(columns, 1).astype(np.float64)


def _as_json(label: Any) -> Any:
    if isinstance(label, tuple):
        return [_as_json(part) for part in label]
    if isinstance(label, np.generic):
        label = label.item()
    if not isinstance(label, str | int | float):
        raise TypeError(f"model: expected labels of text, numbers or tuples of them, received {label!r}")
    return label


def _from_json(label: Any) -> Any:
    return tuple(map(_from_json, label)) if isinstance(label, list) else label
