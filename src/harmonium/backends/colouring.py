"""A colouring of the nodes of a graph; large ones are coloured by compiled code where numba is installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from heapq import heapify, heappop, heappush
from importlib import import_module
from typing import Any

import numpy as np

from harmonium.backends import choice

_PLAIN = 1 << 13  # neighbours up to which plain Python takes 10 ms, less than it takes to load numba


def colour_nodes(starts: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Colours nodes by saturation (Brélaz 1979), which finds two colours wherever two suffice.

    The node whose neighbours have the most colours is next, of these the one with the most neighbours, of
    these the first; it gets the least colour that no neighbour has. That takes O(n log n) for n edges.

    Args:
        starts: node i has the neighbours others[starts[i] : starts[i + 1]], int32 (nodes + 1,).
        others: int32 (2 · edges,).

    Returns:
        A colour from 0 for each node, int64 (nodes,).
    """
    colours = np.full(len(starts) - 1, -1)
    colour = _compiled(_colour) if choice.COMPILED and len(others) > _PLAIN else _colour
    colour(starts.astype(np.int64), others, colours)  # ranks are products of numbers of nodes
    return colours


def _colour(starts: Any, others: Any, colours: Any) -> None:
    """Sets the colours, -1 before, of all nodes."""
    n = len(colours)
    saturation = np.zeros(n, np.int64)
    taken = np.zeros((n, 1), np.int64)  # by node the colours of its neighbours, 32 of them a word
    # Nodes by rank, the highest first: saturation, then neighbours, then place. What has risen comes anew.
    waiting = [(starts[i] - starts[i + 1]) * n + i for i in range(n)]
    heapify(waiting)
    while len(waiting) > 0:
        i = heappop(waiting) % n
        if colours[i] >= 0:
            continue
        colour = 0
        while colour < 32 * taken.shape[1] and taken[i, colour // 32] >> (colour % 32) & 1:
            colour += 1
        colours[i] = colour
        if colour >= 32 * taken.shape[1]:
            more = np.zeros((n, 2 * taken.shape[1]), np.int64)
            for j in range(n):  # assigned as a slice, it would take numba 15 s to compile
                for word in range(taken.shape[1]):
                    more[j, word] = taken[j, word]
            taken = more
        for k in range(starts[i], starts[i + 1]):
            j = others[k]
            if colours[j] < 0 and not taken[j, colour // 32] >> (colour % 32) & 1:
                taken[j, colour // 32] |= 1 << (colour % 32)
                saturation[j] += 1
                heappush(waiting, (starts[j] - starts[j + 1] - saturation[j] * n) * n + j)


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, to be compiled at its first call."""
    compiled: Callable[..., Any] = import_module("harmonium.backends.noise").jit(function)
    return compiled
