"""Inner edges of a layer, unit by unit: neighbours, and colours."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from harmonium.backends import SparsityPattern
from harmonium.layers import Layer

_FEW = 1 << 12  # units up to which saturation takes a second at most


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
    starts = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(units, minlength=n), out=starts[1:])
    return Neighbours(starts, others.astype(np.int32))


def colour_units(neighbours: Neighbours) -> list[np.ndarray]:
    """Colours units so that none is joined to one of its colour: two colours wherever two suffice.

    Few units are coloured by saturation, which needs the fewest colours of all simple ways; of many, in which
    that takes as long as training, those that two colours do not suffice for by number of neighbours.

    Returns:
        For each colour its units, int64 in rising order.
    """
    n = len(neighbours.starts) - 1
    colour = _colour_by_saturation(neighbours) if n <= _FEW else _colour_by_distance(neighbours)
    if colour is None:
        colour = _colour_by_degree(neighbours)
    return [(colour == k).nonzero()[0] for k in range(int(colour.max()) + 1)]


def _colour_by_saturation(neighbours: Neighbours) -> np.ndarray:
    """Colours units by saturation (Brélaz 1979), which finds two colours wherever two suffice.

    The unit whose neighbours have the most colours is next, of these the one with the most neighbours.
    """
    starts, others = neighbours
    units = len(starts) - 1
    degree = np.diff(starts).astype(np.int64)
    colours = np.full(units, -1)
    taken = np.zeros((units, 8), bool)  # by unit the colours of its neighbours
    saturation = np.zeros(units, np.int64)
    for _ in range(units):
        unit = int(np.argmax(np.where(colours < 0, saturation * units + degree, -1)))
        colour = int(np.argmin(np.append(taken[unit], False)))
        if colour == taken.shape[1]:
            taken = np.pad(taken, ((0, 0), (0, colour)))
        colours[unit] = colour
        joined = others[starts[unit] : starts[unit + 1]]
        saturation[joined] += ~taken[joined, colour]
        taken[joined, colour] = True
    return colours


def _colour_by_distance(neighbours: Neighbours) -> np.ndarray | None:
    """Colours units by their distance from the first of their component, odd or even; None if that fails."""
    from scipy.sparse import csr_array  # half a second, for large graphs alone
    from scipy.sparse.csgraph import connected_components, dijkstra

    starts, others = neighbours
    units = len(starts) - 1
    graph = csr_array((np.ones(len(others), np.int8), others, starts), (units, units))
    component = connected_components(graph, directed=False)[1]
    first = np.unique(component, return_index=True)[1]
    rooted = csr_array(  # a unit more, joined to the first of every component
        (
            np.ones(len(others) + len(first), np.int8),
            np.concatenate((others, first)),
            np.append(starts, len(others) + len(first)),
        ),
        (units + 1, units + 1),
    )
    distance = dijkstra(rooted, indices=units, unweighted=True)[:-1].astype(np.int64)
    colour = (distance + 1) % 2
    one = np.repeat(colour, np.diff(starts))
    return None if bool((one == colour[others]).any()) else colour


def _colour_by_degree(neighbours: Neighbours) -> np.ndarray:
    """Colours units one after the other, those with the most neighbours first, by the lowest free colour."""
    starts, others = neighbours
    colour = np.full(len(starts) - 1, -1)
    for unit in np.argsort(-np.diff(starts), kind="stable"):
        taken = set(colour[others[starts[unit] : starts[unit + 1]]].tolist())
        free = 0
        while free in taken:
            free += 1
        colour[unit] = free
    return colour
