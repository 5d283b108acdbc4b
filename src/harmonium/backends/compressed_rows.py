"""Sparse graphs as neighbours in compressed rows, and a colouring of their nodes.

Time and memory are proportional to nodes and edges. The colouring is compiled where numba is installed, and
plain Python elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, final

import numpy as np
from numpy.typing import NDArray


@final
@dataclass(frozen=True, eq=False)
class CompressedRows:
    """The neighbours of every node of a graph, in the order of a sweep through its colours.

    Attributes:
        order: Nodes as a sweep comes to them, colour by colour, int32 (nodes,).
        colour_start: Colour c has the nodes order[colour_start[c] : colour_start[c + 1]]; no two are joined.
        row_start: The row of node order[p] has the entries row_start[p] to row_start[p + 1], (nodes + 1,).
        neighbour: The other node of each entry, int32 (2 · edges,).
        edge: The edge of each entry, its place among the pairs, int32 (2 · edges,).
    """

    order: NDArray[np.int32]
    colour_start: NDArray[np.int64]
    row_start: NDArray[np.int64]
    neighbour: NDArray[np.int32]
    edge: NDArray[np.int32]

    @property
    def n_nodes(self) -> int:
        """The number of nodes."""
        return len(self.order)

    @property
    def n_edges(self) -> int:
        """The number of edges."""
        return len(self.edge) // 2

    @property
    def n_colours(self) -> int:
        """The number of colours."""
        return len(self.colour_start) - 1


def compress_rows(pairs: Any, n_nodes: int) -> CompressedRows:
    """Lists the neighbours of every node, colour by colour.

    Args:
        pairs: Nodes that the edges join, integers (edges, 2), of each row two different ones. A pair that is
            there twice has two edges, which add up.
        n_nodes: The number of nodes; some may have no edge.
    """
    first, second = np.asarray(pairs, np.int32).reshape(-1, 2).T
    ends, others = np.concatenate([first, second]), np.concatenate([second, first])
    entries = np.argsort(ends, kind="stable")
    degree = np.bincount(ends, minlength=n_nodes)
    start = np.concatenate([[0], np.cumsum(degree)])
    neighbour = others[entries]
    colours = colour_nodes(start, neighbour)
    order = np.argsort(colours, kind="stable").astype(np.int32)
    lengths = degree[order]
    row_start = np.concatenate([[0], np.cumsum(lengths)])
    place = np.repeat(start[order] - row_start[:-1], lengths) + np.arange(len(ends))
    colour_start = np.concatenate([[0], np.cumsum(np.bincount(colours))])
    edge = (entries % max(1, len(first))).astype(np.int32)
    return CompressedRows(order, colour_start, row_start, neighbour[place], edge[place])


def colour_nodes(start: NDArray[np.int64], neighbour: NDArray[np.int32]) -> NDArray[np.int32]:
    """Colours nodes so that no two neighbours have one colour, in time linear in nodes and edges.

    A component that two colours suffice for has two, found by breadth-first search. Any other is coloured
    greedily, smallest degree last (Matula & Beck 1983), which needs at most one colour more than the largest
    degree of any subgraph that each of its nodes has.

    Args:
        start: Node i has the neighbours neighbour[start[i] : start[i + 1]], (nodes + 1,).
        neighbour: The other nodes, (2 · edges,).

    Returns:
        A colour from 0 for each node.
    """
    n = len(start) - 1
    colours, queue = np.full(n, -1, np.int32), np.empty(n, np.int32)
    if _compiled(_colour_by_search)(start, neighbour, colours, queue) > 0:
        _compiled(_order_smallest_last)(start, neighbour, colours, queue)
        _compiled(_colour_in_order)(start, neighbour, colours, queue)
    return colours


_ODD = -2  # the colour, for a while, of nodes of a component with an odd cycle


def _colour_by_search(start: Any, neighbour: Any, colours: Any, queue: Any) -> int:
    """Colours components by 0 and 1 where that suffices, else by ``_ODD``; returns how many are odd."""
    n_odd = 0
    for root in range(len(colours)):
        if colours[root] != -1:
            continue
        head, tail, odd = 0, 1, False
        queue[0], colours[root] = root, 0
        while head < tail:
            i = queue[head]
            head += 1
            for k in range(start[i], start[i + 1]):
                j = neighbour[k]
                if colours[j] == -1:
                    colours[j] = 1 - colours[i]
                    queue[tail] = j
                    tail += 1
                elif colours[j] == colours[i]:
                    odd = True
        if odd:
            n_odd += 1
            for k in range(tail):
                colours[queue[k]] = -2
    return n_odd


def _order_smallest_last(start: Any, neighbour: Any, colours: Any, queue: Any) -> None:
    """Sorts nodes so that each has the smallest degree among those before it (Batagelj & Zaversnik 2003)."""
    n = len(colours)
    degree, place, most = np.empty(n, np.int64), np.empty(n, np.int64), 0
    for i in range(n):
        degree[i] = start[i + 1] - start[i]
        most = max(most, degree[i])
    bins = np.zeros(most + 2, np.int64)  # where the nodes of a degree begin
    for i in range(n):
        bins[degree[i] + 1] += 1
    for d in range(most + 1):
        bins[d + 1] += bins[d]
    fill = bins.copy()
    for i in range(n):
        place[i] = fill[degree[i]]
        queue[place[i]] = i
        fill[degree[i]] += 1
    for p in range(n):
        i = queue[p]
        for k in range(start[i], start[i + 1]):
            j = neighbour[k]
            if degree[j] > degree[i]:  # it moves to the front of its bin, which then begins behind it
                front = bins[degree[j]]
                other = queue[front]
                queue[front], queue[place[j]] = j, other
                place[other], place[j] = place[j], front
                bins[degree[j]] += 1
                degree[j] -= 1
    for p in range(n // 2):
        queue[p], queue[n - 1 - p] = queue[n - 1 - p], queue[p]


def _colour_in_order(start: Any, neighbour: Any, colours: Any, queue: Any) -> None:
    """Colours the nodes of ``_ODD`` in the order of the queue, by the least colour that no neighbour has."""
    most = 0
    for i in range(len(colours)):
        most = max(most, start[i + 1] - start[i])
    taken = np.full(most + 2, -1, np.int64)  # by colour the node that found it taken
    for p in range(len(queue)):
        i = queue[p]
        if colours[i] == -2:
            for k in range(start[i], start[i + 1]):
                if colours[neighbour[k]] >= 0:
                    taken[colours[neighbour[k]]] = i
            colour = 0
            while taken[colour] == i:
                colour += 1
            colours[i] = colour


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, compiled where numba is installed."""
    if find_spec("numba") is None:
        return function
    compiled: Callable[..., Any] = import_module("harmonium.backends.noise").jit(function)
    return compiled
