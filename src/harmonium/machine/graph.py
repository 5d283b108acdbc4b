"""The graph of a machine: joined layers, visible layers, and parts that can be drawn at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from functools import cached_property
from itertools import chain, combinations, count, islice
from typing import NamedTuple, final

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from harmonium.layers import Layer

Edge = tuple[int, int]


class Part(NamedTuple):
    """Units of one layer that are independent given all others: what a sampler draws at once.

    Attributes:
        layer: index of the layer.
        columns: of its state, (columns,) int64; None for all.
        units: a layer of these units alone, whose own parameters are not used; None for all.
    """

    layer: int
    columns: Tensor | None = None
    units: Layer | None = None

    def taken(self, states: Tensor) -> Tensor:
        """Returns the part's columns, (rows, columns), of the state of its layer, (rows, width)."""
        return states if self.columns is None else states.index_select(-1, self.columns)

    def put(self, x: Tensor, states: Tensor) -> Tensor:
        """Returns the state of the layer, (rows, width), with this part's columns replaced by x."""
        return x if self.columns is None else states.index_copy(-1, self.columns, x)


class Joint(NamedTuple):
    """An edge as one of its layers sees it.

    Attributes:
        edge: index of the edge.
        other: the layer at its other end; the layer itself for an inner edge.
        above: whether the other layer stands second in the edge, so that Jᵀ leads here.
    """

    edge: int
    other: int
    above: bool


@final
class Graph:
    """Layers as nodes and couplings as edges.

    Args:
        layers: of the machine.
        edges: pairs l ≤ m, no pair twice; (l, l) couples the units of a layer.
        visible: layers that data are about, in the order of the data's columns.
        joined: for every inner edge which columns are joined, (width, width) booleans; None for all.

    Attributes:
        colours: parts that can be drawn at once, colour by colour; a sweep goes through all of them. Every
            chain of layers has two. The layers of ``summed`` have the last colour.
        in_turn: by layer with inner edges int32 arrays order (units,), starts (units, 2) and others: a sweep
            draws its units in this order, and unit i is joined to others[starts[i, 0] : starts[i, 1]], among
            which it may be itself. Left out are layers with parts before and after a layer that is joined to
            them.
        summed: hidden layers, no two of them joined, that are summed out where one set of layers is; all of
            them where none are joined.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        edges: Iterable[Edge],
        visible: Iterable[int],
        joined: Mapping[int, Tensor | None],
    ) -> None:
        self.size = len(layers)
        self._place = (torch.device("cpu"), torch.float32)
        self.edges = tuple(edges)
        self.visible = tuple(visible)
        inner = {l: _mark_joined_units(layers[l], joined[edge]) for l, edge in self.inner.items()}
        parts = list(_parts(layers, inner))
        self._fewest, self.summed = self._last_summed(_coloured(parts, self.edges), layers)
        self.colours = self._fewest
        if set(self.summed) != set(self.hidden) and not any(
            l in self.hidden and m in self.hidden for l, m in self.edges
        ):
            # In a colour of their own, even one more than needed, they leave nothing to sample beside data.
            seen = [part for part in parts if part.layer in self.visible]
            among = [(l, m) for l, m in self.edges if l in self.visible and m in self.visible]
            self.summed = self.hidden
            self.colours = (*_coloured(seen, among), tuple(Part(l) for l in self.hidden))
        self.in_turn = {
            l: (self._order(l, layers[l]), *_list_neighbours(layers[l].n_units, between))
            for l, between in inner.items()
            if self._is_drawn_at_once(l)
        }

    def _order(self, l: int, layer: Layer) -> np.ndarray:
        """Lists the units of a layer with inner edges as a sweep comes to them, int32."""
        q = layer.width // layer.n_units
        parts = [part for part in chain.from_iterable(self.colours) if part.layer == l]
        columns = torch.cat([part.columns for part in parts if part.columns is not None])
        order: np.ndarray = (columns[::q] // q).numpy().astype(np.int32)
        return order

    def _is_drawn_at_once(self, l: int) -> bool:
        """Returns whether a sweep draws no layer that is joined to layer l between its parts."""
        layers = [part.layer for part in chain.from_iterable(self.colours)]
        own = [place for place, m in enumerate(layers) if m == l]
        others = {joint.other for joint in self.joints[l]} - {l}
        return others.isdisjoint(layers[own[0] : own[-1]])

    def _last_summed(
        self, colours: tuple[tuple[Part, ...], ...], layers: Sequence[Layer]
    ) -> tuple[tuple[tuple[Part, ...], ...], tuple[int, ...]]:
        """The colours with the one of the most hidden columns that can be summed out last, and its layers."""
        whole = [
            tuple(b.layer for b in colour if b.columns is None and b.layer not in self.visible)
            for colour in colours
        ]
        widths = [sum(layers[l].width for l in group) for group in whole]
        seen = [any(b.layer in self.visible for b in colour) for colour in colours]
        last = max(range(len(whole)), key=lambda i: (bool(whole[i]) and not seen[i], widths[i]))
        if whole[last]:
            colours = (*colours[:last], *colours[last + 1 :], colours[last])
        return colours, whole[last]

    @cached_property
    def hidden(self) -> tuple[int, ...]:
        """The layers that are not visible."""
        return tuple(l for l in range(self.size) if l not in self.visible)

    @cached_property
    def inner(self) -> dict[int, int]:
        """The edge that couples a layer's own units, by layer."""
        return {l: edge for edge, (l, m) in enumerate(self.edges) if l == m}

    @cached_property
    def backwards(self) -> tuple[Part, ...]:
        """The parts of a sweep that draws the layers of ``summed``, given all others, first."""
        return tuple(chain.from_iterable(self.colours_backwards))

    @property
    def colours_backwards(self) -> tuple[tuple[Part, ...], ...]:
        """The colours in the order of ``backwards``: the last colour first."""
        return (self.colours[-1], *self.colours[:-1])

    @cached_property
    def given(self) -> tuple[int, ...]:
        """The layers outside ``summed``: what a sweep that draws ``summed`` first depends on."""
        return tuple(l for l in range(self.size) if l not in self.summed)

    @cached_property
    def joints(self) -> tuple[tuple[Joint, ...], ...]:
        """For every layer its edges, in their order; an inner edge once."""
        found: list[list[Joint]] = [[] for _ in range(self.size)]
        for edge, (l, m) in enumerate(self.edges):
            found[l].append(Joint(edge, m, True))
            if l != m:
                found[m].append(Joint(edge, l, False))
        return tuple(tuple(sorted(joints)) for joints in found)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The hidden layers, those nearest to the visible ones first: how a state is filled in from data."""
        graph = nx.Graph()  # one that is given edges looks for pandas first, and older ones warn without it
        graph.add_edges_from(self.edges)
        graph.add_nodes_from(self.visible)
        distance = nx.multi_source_dijkstra_path_length(graph, set(self.visible))
        return tuple(sorted(self.hidden, key=lambda l: (distance.get(l, self.size), l)))

    @cached_property
    def independent(self) -> bool:
        """True if all hidden layers are summed out: nothing is left to sample given the visible layers."""
        return set(self.summed) == set(self.hidden)

    @cached_property
    def is_chain(self) -> bool:
        """True if every layer is joined to the next and to no other, and the first alone is visible."""
        chain = tuple((l, l + 1) for l in range(self.size - 1))
        return self.size > 1 and self.visible == (0,) and self.edges == chain

    def sides(self, what: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Two groups of layers without edges inside either, the even and the odd layers of a chain.

        Raises:
            ValueError: a graph that two colours do not suffice for; the message names ``what`` needs them.
        """
        if len(self._fewest) > 2 or self.inner:
            raise ValueError(
                f"machine: expected layers in two groups without edges inside either for {what}, received "
                f"{len(self._fewest)} colours" + (" and inner edges" if self.inner else "")
            )
        groups = [tuple(sorted(part.layer for part in colour)) for colour in self._fewest]
        return groups[0], groups[1] if len(groups) > 1 else ()

    def independent_sets(self, among: Collection[int]) -> Iterator[tuple[int, ...]]:
        """The largest sets of layers that can be summed out together, each as large as it can be."""
        free = [l for l in sorted(among) if l not in self.inner]
        complement = nx.Graph()
        complement.add_nodes_from(free)
        edges = set(self.edges)
        complement.add_edges_from(pair for pair in combinations(free, 2) if pair not in edges)
        for clique in nx.find_cliques(complement):
            yield tuple(sorted(clique))

    def to(self, device: torch.device, dtype: torch.dtype) -> Graph:
        """Returns the graph with its indices on a device and the noise of its parts in a floating type."""
        if self._place == (device, dtype) or not self.inner:
            return self
        moved = copy(self)
        moved._place = (device, dtype)
        moved.colours = tuple(tuple(_moved(part, device, dtype) for part in c) for c in self.colours)
        return moved

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and (self.edges, self.visible) == (other.edges, other.visible)

    __hash__ = None  # type: ignore[assignment]


def _moved(part: Part, device: torch.device, dtype: torch.dtype) -> Part:
    if part.columns is None or part.units is None:
        return part
    return Part(part.layer, part.columns.to(device), deepcopy(part.units).to(device, dtype))


def _coloured(parts: Sequence[Part], edges: Collection[Edge]) -> tuple[tuple[Part, ...], ...]:
    """Parts by colour, colours in the order of their first part: two wherever two suffice.

    Layers take the lowest colours that the layers joined to them have not taken, as many as they have parts,
    outwards from the first.
    """
    graph = nx.Graph()
    graph.add_nodes_from(part.layer for part in parts)
    graph.add_edges_from(edges)
    own: dict[int, list[Part]] = {}
    for part in parts:
        own.setdefault(part.layer, []).append(part)
    colour_of: dict[int, list[int]] = {}
    for group in nx.connected_components(graph):
        first = min(group)
        for l in [first, *(m for _, m in nx.bfs_edges(graph, first))]:
            taken = {colour for m in graph[l] if m != l for colour in colour_of.get(m, [])}
            free = (colour for colour in count() if colour not in taken)
            colour_of[l] = list(islice(free, len(own[l])))
    groups: dict[int, list[Part]] = {}
    for l, colours in sorted(colour_of.items()):
        for colour, part in zip(colours, own[l], strict=True):
            groups.setdefault(colour, []).append(part)
    return tuple(tuple(group) for group in groups.values())


def _parts(layers: Sequence[Layer], inner: Mapping[int, np.ndarray | None]) -> Iterator[Part]:
    """The layers, each in one part or, with inner edges, in one part a colour of its units."""
    for l, layer in enumerate(layers):
        if l not in inner:
            yield Part(l)
            continue
        between = inner[l]
        colours = [[unit] for unit in range(layer.n_units)] if between is None else _colours(between)
        for units in colours:
            columns = torch.arange(layer.width, device="cpu").view(layer.n_units, -1)[units].flatten()
            yield Part(l, columns, layer.part(units))


def _mark_joined_units(layer: Layer, joined: Tensor | None) -> np.ndarray | None:
    """Marks the pairs of units that an inner edge joins, (units, units) booleans; None: all of them."""
    if joined is None:
        return None
    q = layer.width // layer.n_units
    between: np.ndarray = joined.view(layer.n_units, q, layer.n_units, q).any(3).any(1).cpu().numpy()
    return between


def _list_neighbours(units: int, between: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Lists the units that each unit of a layer is joined to, for ``Graph.in_turn``."""
    if between is None:
        return np.tile(np.array([0, units], np.int32), (units, 1)), np.arange(units, dtype=np.int32)
    ends = between.sum(1).cumsum()
    return np.stack([ends - between.sum(1), ends], 1).astype(np.int32), between.nonzero()[1].astype(np.int32)


def _colours(joined: np.ndarray) -> list[list[int]]:
    """The units by colour, by saturation (Brélaz 1979), which finds two colours wherever two suffice.

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
