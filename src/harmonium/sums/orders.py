"""Orders in which units are summed out one by one, and what each costs (Dechter 1999, bucket elimination)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf, log2
from typing import NamedTuple, final

import numpy as np

from harmonium.layers import Layer
from harmonium.machine import Graph, Hamiltonian
from harmonium.sums.limits import EXPLICIT_LIMIT, MAX_TABLE_ENTRIES, STEP_UPDATES

_ROWS = 1024  # that are summed out together at most
_BLOCK = 1 << 22  # entries of a table of all rows that are summed out together: 32 MiB
_MOST = 1 << 16  # units up to which an order is searched, which takes two seconds
_FILLED = 500  # units up to which new pairs are counted: 0.1 s for a square lattice
_KEPT = 256  # orders of one graph, such as of rows that lack different cells

Neighbours = dict[int, set[int]]


class Pairs(NamedTuple):
    """The pairs of free units that one edge joins.

    Attributes:
        edge: Index of the edge in the graph.
        below: Units of its first layer, (pairs,) int64.
        above: Units of its second layer, (pairs,) int64; each pair of an inner edge once.
        numbers: of a sparse coupling the number of each among its pairs, (pairs,) int64; None of others.
    """

    edge: int
    below: np.ndarray
    above: np.ndarray
    numbers: np.ndarray | None = None


@final
class EliminationOrder(NamedTuple):
    """An order of the free discrete units of a machine.

    Attributes:
        units: layer and number of each of them.
        leaves: layer and number of each free unit of another kind, which ψ sums out first.
        order: indices of ``units`` as they are summed out.
        scopes: for every unit those that its message is a table over, first the one that is summed out next.
        entries: Entries of all tables of a row.
        largest: Entries of the largest table.
    """

    units: list[tuple[int, int]]
    leaves: list[tuple[int, int]]
    order: list[int]
    scopes: list[tuple[int, ...]]
    entries: float
    largest: float

    @property
    def rows_at_once(self) -> int:
        """Rows that are summed out together: as many as fit into ``_BLOCK``."""
        return max(1, min(_ROWS, int(_BLOCK // self.largest)))

    def unit_updates(self, rows: int) -> float:
        """Returns the work for rows that lack the same: entries of tables, with a charge for every step."""
        steps = len(self.order) + len(self.leaves)
        return rows * self.entries + STEP_UPDATES * steps * -(-rows // self.rows_at_once)


def find_order(hamiltonian: Hamiltonian, free: Mapping[int, Sequence[int]]) -> EliminationOrder | None:
    """Returns the cheapest order found that sums out all free units; None where all are too expensive.

    Tried are a sweep from one end of the graph to the other (Cuthill & McKee 1969) and fewest new pairs
    first, of many units fewest neighbours. What is found is kept with the graph; dense layers are refused
    without a search, by the number of neighbours alone.

    Args:
        hamiltonian: the machine.
        free: free units by layer.
    """
    graph, layers = hamiltonian.graph, hamiltonian.layers
    key = tuple((l, tuple(units)) for l, units in sorted(free.items()))
    if key not in graph.orders:
        if sum(map(len, free.values())) > _MOST or _is_dense(graph, layers, free):
            return None
        if len(graph.orders) >= _KEPT:
            graph.orders.clear()
        graph.orders[key] = _search(graph, layers, free)
    order: EliminationOrder | None = graph.orders[key]
    return order


def _is_dense(graph: Graph, layers: Sequence[Layer], free: Mapping[int, Sequence[int]]) -> bool:
    """Returns whether a full matrix joins so many units that a table is too large in every order."""
    # The first of them that is summed out has all units of the other layer for neighbours; real ones come
    # before all others.
    sizes = {l: log2(layers[l].n_states or 1) * len(units) for l, units in free.items()}
    sizes |= {l: inf for l in free if not layers[l].discrete}
    for edge, (l, m) in enumerate(graph.edges):
        size = min(sizes.get(l, 0.0), sizes.get(m, 0.0))
        if size > log2(MAX_TABLE_ENTRIES) and graph.patterns[edge] is None and graph.joined[edge] is None:
            return True
    return False


def list_pairs(graph: Graph, layers: Sequence[Layer], free: Mapping[int, Sequence[int]]) -> Iterator[Pairs]:
    """Yields the pairs of free units that each edge joins."""
    marks = {l: np.bincount(units, minlength=layers[l].n_units) > 0 for l, units in free.items()}
    for edge, (l, m) in enumerate(graph.edges):
        pattern, numbers = graph.patterns[edge], None
        joined = graph.joined[edge] if pattern is None else None
        if l not in marks or m not in marks:
            continue
        if pattern is not None:
            below, above = pattern.pairs.t().cpu().numpy()
            numbers = (marks[l][below] & marks[m][above]).nonzero()[0]
            below, above = below[numbers], above[numbers]
        else:
            inside = np.outer(marks[l], marks[m])
            if joined is not None:
                by_unit = joined.cpu().view(len(marks[l]), layers[l].columns_per_unit, len(marks[m]), -1)
                inside &= by_unit.any(3).any(1).numpy()
            below, above = (np.triu(inside, 1) if l == m else inside).nonzero()
        if len(below):
            yield Pairs(edge, below, above, numbers)


def _search(
    graph: Graph, layers: Sequence[Layer], free: Mapping[int, Sequence[int]]
) -> EliminationOrder | None:
    """Returns the cheaper of two orders; None where each is beyond what a sum may cost."""
    every = [(l, int(i)) for l, numbers in sorted(free.items()) for i in numbers]
    units = [unit for unit in every if layers[unit[0]].discrete]
    leaves = [unit for unit in every if not layers[unit[0]].discrete]
    index = {l: np.zeros(layers[l].n_units, dtype=np.int64) for l in free}
    for i, (l, unit) in enumerate(units + leaves):
        index[l][unit] = i
    ends = [np.zeros((2, 0), dtype=np.int64)]
    for edge, below, above, _ in list_pairs(graph, layers, free):
        l, m = graph.edges[edge]
        ends.append(np.stack([index[l][below], index[m][above]]))
    first, second = np.concatenate(ends, 1)
    sizes = np.array(
        [log2(layers[l].n_states or 1) if layers[l].discrete else 0.0 for l, _ in units + leaves]
    )
    least = (
        sizes + np.bincount(first, sizes[second], len(sizes)) + np.bincount(second, sizes[first], len(sizes))
    )
    of_leaves, most = least[len(units) :], log2(MAX_TABLE_ENTRIES)
    if min(least, default=0.0) > most or max(of_leaves, default=0.0) > most:
        return None
    if bool((np.minimum(first, second) >= len(units)).any()):  # ψ of a leaf is not affine in another
        return None
    joined: Neighbours = {i: set() for i in range(len(sizes))}
    for i, j in zip(first.tolist(), second.tolist(), strict=True):
        joined[i].add(j)
        joined[j].add(i)
    for leaf in range(len(units), len(sizes)):
        _remove(joined, leaf)
    best, already = None, float(np.exp2(of_leaves).sum())
    limit = EXPLICIT_LIMIT - already
    for rule in (_sweep, _cheapest):
        neighbours = {i: set(others) for i, others in joined.items()}
        found = _eliminate(neighbours, rule(neighbours, sizes.tolist()), sizes.tolist(), limit)
        if found is not None:
            order, scopes, limit, largest = found
            best = EliminationOrder(units, leaves, order, scopes, already + limit, largest)
    return best


def _eliminate(
    neighbours: Neighbours, units: Iterable[int], sizes: Sequence[float], limit: float
) -> tuple[list[int], list[tuple[int, ...]], float, float] | None:
    """Takes units out of a graph as they come, of log2 states ``sizes``.

    Returns:
        Their order, the scopes, the entries of all tables and of the largest; None beyond a limit.
    """
    order, around = list[int](), [set[int]()] * len(neighbours)
    entries, largest = 0.0, 1.0
    for i in units:
        order.append(i)
        around[i] = set(neighbours[i])
        size = sizes[i] + sum(sizes[j] for j in around[i])
        if size > log2(MAX_TABLE_ENTRIES):
            return None
        entries, largest = entries + 2.0**size, max(largest, 2.0**size)
        if entries > limit:
            return None
        _remove(neighbours, i)
    rank = {i: step for step, i in enumerate(order)}
    scopes = [tuple(sorted(others, key=rank.__getitem__)) for others in around]
    waiting, waits_for = 0.0, [0.0] * len(scopes)  # entries of messages, in all and for each unit
    for i in order:
        waiting -= waits_for[i]
        if scopes[i]:
            message = 2.0 ** sum(sizes[j] for j in scopes[i])
            waiting, waits_for[scopes[i][0]] = waiting + message, waits_for[scopes[i][0]] + message
        if waiting > 2 * MAX_TABLE_ENTRIES:
            return None
    return order, scopes, entries, largest


def _cheapest(neighbours: Neighbours, sizes: Sequence[float]) -> Iterator[int]:
    """Yields the unit whose removal joins fewest new pairs, of many units that with the smallest table.

    Whoever asks for the next one has taken the last one out of the graph.
    """
    counted = len(neighbours) <= _FILLED

    def cost(i: int) -> float:
        around = neighbours[i]
        if not counted:
            return sizes[i] + sum(sizes[j] for j in around)
        return sum(len(around) - 1 - len(around & neighbours[j]) for j in around) / 2

    costs = {i: cost(i) for i in neighbours}
    heap = [(x, i) for i, x in costs.items()]
    heapify(heap)
    while heap:
        x, i = heappop(heap)
        if costs.get(i) != x:
            continue
        del costs[i]
        adjacent = neighbours[i]
        yield i
        for j in adjacent.union(*(neighbours[j] for j in adjacent)) if counted else adjacent:
            y = cost(j)
            if y != costs[j]:
                costs[j] = y
                heappush(heap, (y, j))


def _remove(neighbours: Neighbours, i: int) -> None:
    """Takes a unit out of a graph, and joins all its neighbours."""
    adjacent = neighbours.pop(i)
    for j in adjacent:
        neighbours[j] |= adjacent
        neighbours[j] -= {i, j}


def _sweep(joined: Neighbours, _: Sequence[float]) -> list[int]:
    """Returns units by their distance from one end of the graph."""
    from scipy.sparse import csr_matrix  # slow to import, and only needed here
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    if not joined:
        return []
    ends = np.array([(i, j) for i, others in joined.items() for j in others], dtype=np.int32).reshape(-1, 2)
    matrix = csr_matrix((np.ones(len(ends)), ends.T), shape=(len(joined), len(joined)))
    order: list[int] = reverse_cuthill_mckee(matrix, symmetric_mode=True).tolist()
    return order
