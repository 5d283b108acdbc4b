"""Inner edges of a layer, unit by unit: neighbours, and colours."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from harmonium.backends import SparsityPattern
from harmonium.backends.colouring import colour_nodes
from harmonium.layers import Layer

LARGEST = 2**31 - 1  # neighbours of all units together: places among them are int32


class Neighbours(NamedTuple):
    """The units that each unit of a layer is joined to, in compressed rows.

    Attributes:
        starts: (units + 1,) int32; unit i is joined to others[starts[i] : starts[i + 1]].
        others: (2 x pairs,) int32, in rising order for each unit.
    """

    starts: np.ndarray
    others: np.ndarray

    @property
    def spans(self) -> np.ndarray:
        """The places where neighbours of each unit begin and end, (units, 2) int32, for ``Graph.in_turn``."""
        return np.stack([self.starts[:-1], self.starts[1:]], 1)


def list_neighbours(layer: Layer, joined: Tensor | SparsityPattern | None) -> Neighbours:
    """Lists the units that an inner edge joins to each unit of a layer.

    Args:
        layer: the layer.
        joined: which columns, (width, width) booleans, or where the couplings stand; None: all.
    """
    n, q = layer.n_units, layer.columns_per_unit
    if isinstance(joined, SparsityPattern):
        pairs = [*joined.pairs.t().cpu().numpy()]
        units, others = np.concatenate(pairs), np.concatenate(pairs[::-1])
        order = np.lexsort((others, units))
        units, others = units[order], others[order]
    else:
        between: np.ndarray = ~np.eye(n, dtype=bool)
        if joined is not None:
            between &= joined.view(n, q, n, q).any(3).any(1).cpu().numpy()
        units, others = between.nonzero()
    if len(units) > LARGEST:
        raise ValueError(
            f"edges: expected at most {LARGEST // 2:,} pairs of units joined within {layer}, received "
            f"{len(units) // 2:,}"
        )
    starts = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(units, minlength=n), out=starts[1:])
    return Neighbours(starts, others.astype(np.int32))


def colour_units(neighbours: Neighbours) -> list[np.ndarray]:
    """Colours units so that none is joined to one of its colour; see ``backends.colouring``.

    Returns:
        For each colour its units, int64 in rising order.
    """
    colours = colour_nodes(*neighbours)
    order = np.argsort(colours, kind="stable")
    return np.split(order, np.cumsum(np.bincount(colours))[:-1])
