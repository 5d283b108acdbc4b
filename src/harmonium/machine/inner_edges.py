"""Inner edges of a layer, unit by unit: pairs that are joined, neighbours, and colours."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from harmonium.layers import Layer


def mark_joined_units(layer: Layer, joined: Tensor | None) -> np.ndarray:
    """Marks the pairs of units that an inner edge joins, (units, units) booleans; ``joined`` None: all."""
    others: np.ndarray = ~np.eye(layer.n_units, dtype=bool)
    if joined is None:
        return others
    q = layer.columns_per_unit
    between = joined.view(layer.n_units, q, layer.n_units, q).any(3).any(1).cpu().numpy()
    others &= between
    return others


def list_neighbours(between: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lists the units that each unit of a layer is joined to, for ``Graph.in_turn``."""
    ends = between.sum(1).cumsum()
    return np.stack([ends - between.sum(1), ends], 1).astype(np.int32), between.nonzero()[1].astype(np.int32)


def colour_by_saturation(joined: np.ndarray) -> list[list[int]]:
    """Colours units by saturation (Brélaz 1979), which finds two colours wherever two suffice.

    The unit whose neighbours have the most colours is next, of these the one with the most neighbours.

    Args:
        joined: which units are, (units, units), symmetric.
    """
    units = len(joined)
    neighbours = joined.sum(1)
    taken = np.zeros((units, 0), bool)  # by unit the colours of its neighbours
    saturation = np.zeros(units, np.int64)
    groups: list[list[int]] = []
    left = np.ones(units, bool)
    for _ in range(units):
        unit = int(np.argmax(np.where(left, saturation * units + neighbours, -1)))
        left[unit] = False
        colour = int(np.argmin(np.append(taken[unit, : len(groups)], False)))
        if colour == len(groups):
            groups.append([])
            if colour == taken.shape[1]:
                taken = np.pad(taken, ((0, 0), (0, max(8, colour))))
        groups[colour].append(unit)
        saturation += joined[unit] & ~taken[:, colour]
        taken[:, colour] |= joined[unit]
    return [sorted(group) for group in groups]
