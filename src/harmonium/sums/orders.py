"""Orders in which units are summed out one by one, and what each costs (Dechter 1999, bucket elimination)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import log2
from typing import NamedTuple, final

import numpy as np

from harmonium.layers import Layer
from harmonium.machine import Graph, Hamiltonian
from harmonium.sums.limits import EXPLICIT_LIMIT, MAX_TABLE_ENTRIES, STEP_UPDATES

_ROWS = 1024  # that are summed out together at most
_BLOCK = 1 << 22  # entries of a table of all rows that are summed out together: 32 MiB
_MOST = 1 << 16  # units up to which an order is searched, which takes two seconds
_FILLED = 500  # units up to which fewest new pairs are tried: 0.1 s for a square lattice
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
        leaf_neighbours: for every leaf the units joined to it.
        order: indices of ``units`` as they are summed out.
        scopes: for every unit those that its message is a table over, first the one that is summed out next.
        entries: Entries of all tables of a row.
        largest: Entries of the largest table.
    """

    units: list[tuple[int, int]]
    leaves: list[tuple[int, int]]
    leaf_neighbours: list[list[int]]
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

    Tried are a sweep from one end of the graph to the other (Cuthill & McKee 1969), fewest neighbours first
    and fewest new pairs first. What is found is kept with the graph; dense layers are refused without a
    search, by the number of neighbours alone.

    Args:
        hamiltonian: the machine.
        free: free units by layer.
    """
    graph, layers = hamiltonian.graph, hamiltonian.layers
    key = tuple((l, tuple(units)) for l, units in sorted(free.items()))
    if key not in graph.orders:
        search = _Search(graph, layers, free)
        if sum(map(len, free.values())) > _MOST or search.least_size() > log2(MAX_TABLE_ENTRIES):
            return None
        if len(graph.orders) >= _KEPT:
            graph.orders.clear()
        graph.orders[key] = search.best
    order: EliminationOrder | None = graph.orders[key]
    return order


def list_pairs(
    graph: Graph, layers: Sequence[Layer], free: Mapping[int, Sequence[int]], *, dense: bool = True
) -> Iterator[Pairs]:
    """Yields the pairs of free units that each edge joins; without ``dense`` not those of full matrices."""
    marks = {l: np.bincount(units, minlength=layers[l].n_units) > 0 for l, units in free.items()}
    for edge, (l, m) in enumerate(graph.edges):
        pattern, numbers = graph.patterns[edge], None
        joined = graph.joined[edge] if pattern is None else None
        if l not in marks or m not in marks or (pattern is None and joined is None and not dense):
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


@final
class _Search:
    """The search for an order over the free units of a machine."""

    def __init__(self, graph: Graph, layers: Sequence[Layer], free: Mapping[int, Sequence[int]]) -> None:
        self._graph, self._layers, self._free = graph, layers, free
        self._all = [(l, int(i)) for l, units in sorted(free.items()) for i in units]
        self._units = [unit for unit in self._all if layers[unit[0]].discrete]
        self._sizes = [log2(layers[l].n_states or 1) for l, _ in self._units]

    @property
    def best(self) -> EliminationOrder | None:
        """The cheapest order; None where each is beyond what a sum may cost."""
        index = {unit: i for i, unit in enumerate(self._units)}
        leaves = [unit for unit in self._all if unit not in index]
        leaf_neighbours: dict[tuple[int, int], list[int]] = {leaf: [] for leaf in leaves}
        joined: Neighbours = {i: set() for i in range(len(self._units))}
        for edge, below, above, _ in list_pairs(self._graph, self._layers, self._free):
            l, m = self._graph.edges[edge]
            for a, b in zip(below.tolist(), above.tolist(), strict=True):
                first, second = index.get((l, a)), index.get((m, b))
                if first is None and second is None:
                    return None
                if first is None or second is None:
                    leaf, unit = ((l, a), second) if first is None else ((m, b), first)
                    assert unit is not None
                    leaf_neighbours[leaf].append(unit)
                else:
                    joined[first].add(second)
                    joined[second].add(first)
        entries = 0.0
        for units in leaf_neighbours.values():
            size = sum(self._sizes[i] for i in units)
            if size > log2(MAX_TABLE_ENTRIES):
                return None
            entries += 2.0**size
            for i in units:
                joined[i].update(set(units) - {i})
        return self._order(leaves, list(leaf_neighbours.values()), joined, entries)

    def _order(
        self,
        leaves: list[tuple[int, int]],
        leaf_neighbours: list[list[int]],
        joined: Neighbours,
        already: float,
    ) -> EliminationOrder | None:
        """Returns the cheapest of some orders of units with these neighbours."""
        best: EliminationOrder | None = None
        limit = EXPLICIT_LIMIT - already
        rules: list[Callable[[], list[int] | None]] = [
            lambda: _sweep(joined),
            lambda: self._greedy(joined, self._sum_neighbours),
        ]
        if len(self._units) <= _FILLED:
            rules.append(lambda: self._greedy(joined, _count_new_pairs))
        for rule in rules:
            order = rule()
            eliminated = None if order is None else self._eliminate(joined, order, limit)
            if order is not None and eliminated is not None:
                scopes, limit, largest = eliminated
                total = already + limit
                best = EliminationOrder(self._units, leaves, leaf_neighbours, order, scopes, total, largest)
        return best

    def _eliminate(
        self, joined: Neighbours, order: Sequence[int], limit: float
    ) -> tuple[list[tuple[int, ...]], float, float] | None:
        """Returns scopes of an order, the entries of all tables and of the largest; None beyond a limit."""
        neighbours = {i: set(others) for i, others in joined.items()}
        scopes: list[tuple[int, ...]] = [()] * len(joined)
        rank = {i: step for step, i in enumerate(order)}
        entries, largest, waiting = 0.0, 1.0, dict[int, float]()
        for i in order:
            scopes[i] = tuple(sorted(neighbours[i], key=rank.__getitem__))
            size = self._sizes[i] + sum(self._sizes[j] for j in scopes[i])
            if size > log2(MAX_TABLE_ENTRIES):
                return None
            entries, largest = entries + 2.0**size, max(largest, 2.0**size)
            waiting.pop(i, None)
            if scopes[i]:
                waiting[scopes[i][0]] = waiting.get(scopes[i][0], 0.0) + 2.0 ** (size - self._sizes[i])
            if entries > limit or sum(waiting.values()) > 2 * MAX_TABLE_ENTRIES:
                return None
            _remove(neighbours, i)
        return scopes, entries, largest

    def _greedy(self, joined: Neighbours, cost: Callable[[Neighbours, int], float]) -> list[int] | None:
        """Returns the order that sums out the cheapest unit next; None where a table is too large."""
        neighbours = {i: set(others) for i, others in joined.items()}
        costs = {i: cost(neighbours, i) for i in neighbours}
        heap = [(x, i) for i, x in costs.items()]
        heapify(heap)
        order: list[int] = []
        while heap:
            x, i = heappop(heap)
            if costs.get(i) != x:
                continue
            del costs[i]
            if self._sum_neighbours(neighbours, i) > log2(MAX_TABLE_ENTRIES):
                return None
            order.append(i)
            adjacent = neighbours[i]
            _remove(neighbours, i)
            further = (
                set()
                if cost == self._sum_neighbours
                else set[int]().union(*(neighbours[j] for j in adjacent))
            )
            for j in adjacent | further:
                y = cost(neighbours, j)
                if y != costs[j]:
                    costs[j] = y
                    heappush(heap, (y, j))
        return order

    def _sum_neighbours(self, neighbours: Neighbours, i: int) -> float:
        """Returns log2 of the table of a unit and its neighbours."""
        return self._sizes[i] + sum(self._sizes[j] for j in neighbours[i])

    def least_size(self) -> float:
        """Returns a bound on log2 of the largest table: the least over units of that of its neighbours."""
        graph, layers, free = self._graph, self._layers, self._free
        counts = {l: np.zeros(layers[l].n_units) for l in free}
        bits = {l: log2(layers[l].n_states or 1) for l in free}
        for edge, (l, m) in enumerate(graph.edges):
            if l in free and m in free and graph.patterns[edge] is None and graph.joined[edge] is None:
                counts[l] += bits[m] * (len(free[m]) - (l == m))  # without a list of pairs
                if l != m:
                    counts[m] += bits[l] * len(free[l])
        for edge, below, above, _ in list_pairs(graph, layers, free, dense=False):
            l, m = graph.edges[edge]
            np.add.at(counts[l], below, bits[m])
            np.add.at(counts[m], above, bits[l])
        return min((float(counts[l][i]) for l, i in self._all), default=0.0)


def _remove(neighbours: Neighbours, i: int) -> None:
    """Takes a unit out of a graph, and joins all its neighbours."""
    adjacent = neighbours.pop(i)
    for j in adjacent:
        neighbours[j] |= adjacent
        neighbours[j] -= {i, j}


def _count_new_pairs(neighbours: Neighbours, i: int) -> float:
    """Returns the pairs of neighbours of a unit that are not joined yet."""
    adjacent = neighbours[i]
    return sum(len(adjacent) - 1 - len(adjacent & neighbours[j]) for j in adjacent) / 2


def _sweep(joined: Neighbours) -> list[int]:
    """Returns units by their distance from one end of the graph."""
    from scipy.sparse import csr_matrix  # slow to import, and only needed here
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    if not joined:
        return []
    ends = np.array([(i, j) for i, others in joined.items() for j in others], dtype=np.int32).reshape(-1, 2)
    matrix = csr_matrix((np.ones(len(ends)), ends.T), shape=(len(joined), len(joined)))
    order: list[int] = reverse_cuthill_mckee(matrix, symmetric_mode=True).tolist()
    return order
