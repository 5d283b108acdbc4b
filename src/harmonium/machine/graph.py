"""The graph of a machine: joined layers, visible layers, and parts that can be drawn at once."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from functools import cached_property
from itertools import chain, count, islice
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium.backends import Compressed, RowsInTurn, SparsityPattern
from harmonium.backends.colouring import colour_nodes
from harmonium.couplings import Coupling, Dense
from harmonium.layers import Layer

Edge = tuple[int, int]
Edges = Iterable[Edge] | Mapping[Edge, Coupling]
_LARGEST = 2**31 - 1  # neighbours of all units together: places among them are int32


class Part(NamedTuple):
    """Units of one layer that are independent given all others: what a sampler draws at once.

    Attributes:
        layer: index of the layer.
        columns: Columns of its state, (columns,) int64; None for all.
        units: a layer of these units alone, whose own parameters are not used; None for all.
    """

    layer: int
    columns: Tensor | None = None
    units: Layer | None = None

    def select_states(self, states: Tensor) -> Tensor:
        """Returns the part's columns, (rows, columns), of the state of its layer, (rows, width)."""
        return states if self.columns is None else states.index_select(-1, self.columns)

    def put_states(self, x: Tensor, states: Tensor) -> Tensor:
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


class Neighbours(NamedTuple):
    """The units that each unit of a layer is joined to, in compressed rows.

    Attributes:
        starts: (units + 1,) int32; unit i is joined to others[starts[i] : starts[i + 1]].
        others: (2 x pairs,) int32, in rising order for each unit.
    """

    starts: np.ndarray
    others: np.ndarray


@final
class Graph:
    """Layers as nodes and couplings as edges.

    Args:
        layers: Layers of the machine.
        edges: pairs l ≤ m, no pair twice; (l, l) couples the units of a layer.
        visible: layers that data are about, in the order of the data's columns.
        joined: for every edge without a pattern which columns are joined, (width_l, width_m) booleans; None
            for all.
        patterns: for every sparse edge where its couplings stand.

    Attributes:
        joined: as given.
        hidden: the layers that are not visible.
        inner: the edge that couples a layer's own units, by layer.
        sparse: whether any couplings are stored by pair.
        is_chain: whether every layer is joined to the next and to no other, and the first alone is visible.
        joints: for every layer its edges, in their order; an inner edge once.
        colours: parts that can be drawn at once, colour by colour; a sweep goes through all of them. Every
            chain of layers has two. The layers of ``summed`` have the last colour.
        in_turn: by layer with inner edges int32 arrays order (units,), starts (units, 2) and others: a sweep
            draws its units in this order, and unit i is joined to others[starts[i, 0] : starts[i, 1]], among
            which it may be itself. Left out are layers with parts before and after a layer that is joined to
            them.
        patterns: for every edge where its couplings stand; None for a matrix.
        summed: hidden layers, no two of them joined, that are summed out where one set of layers is; all of
            them where none are joined.
        unsummed: the layers outside ``summed``: what a sweep that draws ``summed`` first depends on.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        edges: Iterable[Edge],
        visible: Iterable[int],
        joined: Mapping[int, Tensor | None],
        patterns: Mapping[int, SparsityPattern] | None = None,
    ) -> None:
        self.size = len(layers)
        self._rows_in_turn: dict[int, RowsInTurn] = {}  # made at first use
        self._device_dtype = (torch.device("cpu"), torch.float32)
        self.edges = tuple(edges)
        self.visible = tuple(visible)
        self.hidden = tuple(l for l in range(self.size) if l not in self.visible)
        self.inner = {l: edge for edge, (l, m) in enumerate(self.edges) if l == m}
        self.joined = dict(joined)
        sparse = patterns or {}
        self.sparse = bool(sparse)
        self.patterns = tuple(sparse.get(edge) for edge in range(len(self.edges)))
        chain_edges = tuple((l, l + 1) for l in range(self.size - 1))
        self.is_chain = self.size > 1 and self.visible == (0,) and self.edges == chain_edges
        self.joints: list[list[Joint]] = [[] for _ in layers]
        for edge, (l, m) in enumerate(self.edges):
            self.joints[l].append(Joint(edge, m, True))
            if l != m:
                self.joints[m].append(Joint(edge, l, False))
        inner = {
            l: _list_neighbours(layers[l], sparse[edge] if edge in sparse else joined[edge])
            for l, edge in self.inner.items()
        }
        parts = list(_divide(layers, inner))
        self._fewest, self.summed = self._put_summed_last(self._colour_parts(parts), layers)
        self.colours = self._fewest
        if set(self.summed) != set(self.hidden) and not any(
            l in self.hidden and m in self.hidden for l, m in self.edges
        ):
            # In a colour of their own, even one more than needed, they leave nothing to sample beside data.
            seen = [part for part in parts if part.layer in self.visible]
            self.summed = self.hidden
            self.colours = (*self._colour_parts(seen), tuple(Part(l) for l in self.hidden))
        self.unsummed = tuple(l for l in range(self.size) if l not in self.summed)
        self.in_turn = {
            l: (self._order_units(l, layers[l]), np.stack([starts[:-1], starts[1:]], 1), others)
            for l, (starts, others) in inner.items()
            if self._is_drawn_at_once(l)
        }

    def rows_in_turn(self, l: int) -> RowsInTurn:
        """Returns the neighbours of a layer's units, each of one column, in the order of ``in_turn``."""
        if l not in self._rows_in_turn:
            order, spans, others = self.in_turn[l]
            pattern, n = self.patterns[self.inner[l]], len(spans)
            if pattern is None:
                entries = torch.from_numpy(np.repeat(np.arange(n) * n, spans[:, 1] - spans[:, 0]) + others)
            else:  # in the order of the pattern's columns
                entries = pattern.by_column.entries.cpu()
            if pattern is not None or n * n < 1 << 31:
                entries = entries.int()
            starts = torch.from_numpy(np.append(spans[:, 0], len(others)).astype(np.int64))
            columns = Compressed(starts, torch.from_numpy(others), entries)
            first, sources, places = (x.numpy() for x in columns.select(torch.from_numpy(order).long()))
            parts = [part for part in chain.from_iterable(self.colours) if part.layer == l]
            sizes = [len(part.columns) for part in parts if part.columns is not None]
            self._rows_in_turn[l] = RowsInTurn(order, np.cumsum([0, *sizes]), first, sources, places)
        return self._rows_in_turn[l]

    def _order_units(self, l: int, layer: Layer) -> np.ndarray:
        """Lists the units of a layer with inner edges as a sweep comes to them, int32."""
        q = layer.columns_per_unit
        parts = [part for part in chain.from_iterable(self.colours) if part.layer == l]
        columns = torch.cat([part.columns for part in parts if part.columns is not None])
        order: np.ndarray = (columns[::q] // q).numpy().astype(np.int32)
        return order

    def _is_drawn_at_once(self, l: int) -> bool:
        """Returns whether a sweep draws no layer that is joined to layer l between its parts."""
        layers = [part.layer for part in chain.from_iterable(self.colours)]
        positions = [index for index, m in enumerate(layers) if m == l]
        others = {joint.other for joint in self.joints[l]} - {l}
        return others.isdisjoint(layers[positions[0] : positions[-1]])

    def _put_summed_last(
        self, colours: tuple[tuple[Part, ...], ...], layers: Sequence[Layer]
    ) -> tuple[tuple[tuple[Part, ...], ...], tuple[int, ...]]:
        """Puts the colour with the most hidden columns to sum out last, and returns its layers beside."""
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
    def backwards(self) -> tuple[Part, ...]:
        """The parts of a sweep that draws the layers of ``summed``, given all others, first."""
        return tuple(chain.from_iterable(self.colours_backwards))

    @property
    def colours_backwards(self) -> tuple[tuple[Part, ...], ...]:
        """The colours in the order of ``backwards``: the last colour first."""
        return (self.colours[-1], *self.colours[:-1])

    @cached_property
    def distances(self) -> dict[int, int]:
        """The number of edges between the visible layers and every layer; ``size`` where there is no way."""
        reached = self._reach(self.visible, range(self.size))
        return {l: reached.get(l, self.size) for l in range(self.size)}

    @cached_property
    def orders(self) -> dict[Hashable, Any]:
        """The orders of ``sums.orders`` in which free units are summed out, by these units."""
        return {}

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The hidden layers, those nearest to the visible ones first: how a state is filled in from data."""
        return tuple(sorted(self.hidden, key=lambda l: (self.distances[l], l)))

    @cached_property
    def independent(self) -> bool:
        """True if all hidden layers are summed out: nothing is left to sample given the visible layers."""
        return set(self.summed) == set(self.hidden)

    def with_visible(self, visible: Iterable[int]) -> Graph:
        """Returns the graph with these layers counted as visible, in this order: for sums over others.

        A sweep goes through its parts as before.
        """
        same = copy(self)
        for name in ("distances", "order", "independent"):
            vars(same).pop(name, None)
        same.visible, same.is_chain = tuple(visible), False
        same.hidden = tuple(l for l in range(self.size) if l not in same.visible)
        return same

    def sides(self, purpose: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns two groups of layers without edges inside either, the even and the odd layers of a chain.

        Raises:
            ValueError: a graph that two colours do not suffice for; the message names ``purpose``.
        """
        if len(self._fewest) > 2 or self.inner:
            raise ValueError(
                f"machine: expected layers in two groups without edges inside either for {purpose}, received "
                f"{len(self._fewest)} colours" + (" and inner edges" if self.inner else "")
            )
        groups = [tuple(sorted(part.layer for part in colour)) for colour in self._fewest]
        return groups[0], groups[1] if len(groups) > 1 else ()

    def read_summed(self, summed: str | Collection[int] | None) -> tuple[int, ...]:
        """Returns the checked layers to sum out, as of ``BoltzmannMachine.free_energy``."""
        if summed is None:
            return self.summed
        if isinstance(summed, str):
            _checks.one_of(summed, "summed", ("even", "odd"))
            if not self.is_chain:
                raise ValueError(
                    f"summed: expected indices of layers in a machine that is no chain, received {summed!r}"
                )
            return tuple(range(summed == "odd", self.size, 2))
        out = tuple(sorted(summed))
        if not set(out) <= set(range(self.size)) or any(l in out and m in out for l, m in self.edges):
            raise ValueError(
                "summed: expected layers of the machine, no two of them joined and none with inner edges, "
                f"received {list(summed)}"
            )
        return out

    def groups(self, among: Collection[int]) -> list[tuple[int, ...]]:
        """Returns layers in groups that edges among them join, directly or by others, each in one of them."""
        return [*dict.fromkeys(tuple(sorted(self._reach([l], among))) for l in among)]

    def _reach(self, starts: Iterable[int], among: Collection[int]) -> dict[int, int]:
        """Returns the layers to which edges among some lead, nearest first, with the edges on the way."""
        steps = dict.fromkeys(starts, 0)
        reached = [*steps]
        for l in reached:  # which grows
            for joint in self.joints[l]:
                if joint.other in among and joint.other not in steps:
                    steps[joint.other] = steps[l] + 1
                    reached.append(joint.other)
        return steps

    def _colour_parts(self, parts: Sequence[Part]) -> tuple[tuple[Part, ...], ...]:
        """Groups parts by colour, colours in the order of their first part: two wherever two suffice.

        Layers take the lowest colours that the layers joined to them have not taken, as many as they have
        parts, outwards from the first.
        """
        parts_of: dict[int, list[Part]] = {}
        for part in parts:
            parts_of.setdefault(part.layer, []).append(part)
        colour_of: dict[int, list[int]] = {}
        for first, *_ in self.groups(sorted(parts_of)):
            for l in self._reach([first], parts_of):
                taken = {colour for joint in self.joints[l] for colour in colour_of.get(joint.other, [])}
                free = (colour for colour in count() if colour not in taken)
                colour_of[l] = list(islice(free, len(parts_of[l])))
        groups: dict[int, list[Part]] = {}
        for l, colours in sorted(colour_of.items()):
            for colour, part in zip(colours, parts_of[l], strict=True):
                groups.setdefault(colour, []).append(part)
        return tuple(tuple(group) for group in groups.values())

    def independent_sets(self, among: Collection[int]) -> Iterator[tuple[int, ...]]:
        """Yields the sets of layers that can be summed out together, each as large as it can be."""
        free = {l for l in among if l not in self.inner}
        apart = {l: free - {joint.other for joint in self.joints[l]} - {l} for l in free}
        stack: list[tuple[frozenset[int], set[int], set[int]]] = [(frozenset(), free, set())] if free else []
        while stack:  # Bron & Kerbosch (1973), with the pivot that leaves the fewest branches
            chosen, left, done = stack.pop()
            if not left and not done:
                yield tuple(sorted(chosen))
                continue
            pivot = max(left | done, key=lambda l: len(left & apart[l]))
            for l in left - apart[pivot]:
                stack.append((chosen | {l}, left & apart[l], done & apart[l]))
                left, done = left - {l}, done | {l}

    def to(self, device: torch.device, dtype: torch.dtype) -> Graph:
        """Returns the graph with its indices on a device and the noise of its parts in a floating type."""
        if self._device_dtype == (device, dtype) or not (self.inner or self.sparse):
            return self
        moved = copy(self)
        moved._device_dtype = (device, dtype)
        moved.patterns = tuple(None if pattern is None else pattern.to(device) for pattern in self.patterns)
        moved.colours = tuple(tuple(_move(part, device, dtype) for part in c) for c in self.colours)
        return moved

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and (self.edges, self.visible) == (other.edges, other.visible)

    __hash__ = None  # type: ignore[assignment]


def _list_neighbours(layer: Layer, joined: Tensor | SparsityPattern | None) -> Neighbours:
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
    if len(units) > _LARGEST:
        raise ValueError(
            f"edges: expected at most {_LARGEST // 2:,} pairs of units joined within {layer}, received "
            f"{len(units) // 2:,}"
        )
    starts = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(units, minlength=n), out=starts[1:])
    return Neighbours(starts, others.astype(np.int32))


def _move(part: Part, device: torch.device, dtype: torch.dtype) -> Part:
    if part.columns is None or part.units is None:
        return part
    return Part(part.layer, part.columns.to(device), deepcopy(part.units).to(device, dtype))


def _divide(layers: Sequence[Layer], inner: Mapping[int, Neighbours]) -> Iterator[Part]:
    """Yields the layers, each in one part or, with inner edges, in one part a colour of its units."""
    for l, layer in enumerate(layers):
        if l not in inner:
            yield Part(l)
            continue
        colours = colour_nodes(*inner[l])
        order = np.argsort(colours, kind="stable")
        for units in np.split(order, np.cumsum(np.bincount(colours))[:-1]):  # that no coupling joins
            columns = (
                torch.arange(layer.width, device="cpu")
                .view(layer.n_units, -1)[torch.from_numpy(units)]
                .flatten()
            )
            yield Part(l, columns, layer.part(units.tolist()))


def read_edges(edges: Any, layers: int) -> dict[tuple[int, int], Coupling]:
    """Returns the checked couplings by pair of layers; a list of pairs makes all of them dense."""
    if not isinstance(edges, Mapping):
        _checks.instance(edges, "edges", Iterable, "pairs of layers, or a mapping from pairs to couplings")
        listed = [tuple(edge) if isinstance(edge, Iterable) else edge for edge in edges]
        if len(set(listed)) < len(listed):
            raise ValueError(f"edges: expected every pair of layers once, received {listed}")
        edges = {edge: Dense() for edge in listed}
    for edge, coupling in edges.items():
        if not (isinstance(edge, tuple) and len(edge) == 2 and all(type(l) is int for l in edge)):
            raise TypeError(f"edges: expected pairs of layers such as (0, 1), received {edge!r}")
        if not 0 <= edge[0] <= edge[1] < layers:
            raise ValueError(f"edges: expected pairs l <= m of layers 0..{layers - 1}, received {edge}")
        _checks.instance(coupling, f"edges[{edge}]", Coupling, "a coupling such as hm.Dense()")
    if len({id(coupling) for coupling in edges.values()}) < len(edges):
        raise ValueError("edges: expected a coupling of its own for every edge, received one twice")
    return dict(edges)


def read_visible(visible: Iterable[int], layers: int) -> tuple[int, ...]:
    """Returns the checked visible layers."""
    _checks.instance(visible, "visible", Iterable, "a list of layers")
    listed = tuple(visible)
    if (
        not listed
        or not all(type(l) is int and 0 <= l < layers for l in listed)
        or len(set(listed)) < len(listed)
    ):
        raise ValueError(f"visible: expected different layers of 0..{layers - 1}, received {list(listed)}")
    return listed


def describe_graph(graph: Graph, layers: Sequence[Layer], couplings: Iterable[Coupling]) -> str:
    """Returns the text of ``BoltzmannMachine.describe``."""
    rows = [
        [
            str(l),
            "visible" if l in graph.visible else "hidden",
            str(layer),
            _count(layer.width, "column"),
            "summed out" if l in graph.summed else "",
        ]
        for l, layer in enumerate(layers)
    ]
    edges, parameters = [], [p for layer in layers for p in layer.parameters()]
    count = sum(p.numel() for p in parameters)
    for (l, m), coupling in zip(graph.edges, couplings, strict=True):
        weights = coupling.weight.numel()
        joined = int(coupling.within(torch.ones_like(coupling.weight)).sum()) // coupling.copies
        of = f" of {weights:,}" if joined < weights else ""
        edges.append([f"{l} - {m}", type(coupling).__name__, f"{joined:,}{of} weights"])
        count += joined
    colours = [
        " + ".join(
            str(part.layer) if part.units is None else f"{part.layer} ({_count(part.units.n_units, 'unit')})"
            for part in colour
        )
        for colour in graph.colours
    ]
    sweep = f"a sweep of {_count(len(colours), 'colour')}: "
    if len(colours) > 6:
        colours = [*colours[:4], "…", colours[-1]]
    sizes = _count(len(layers), "layer"), _count(len(edges), "edge"), _count(count, "parameter")
    dtype = str(parameters[0].dtype).removeprefix("torch.")
    text = [f"{', '.join(sizes)} in {dtype}", "layers", *_align(rows)]
    if len(graph.visible) > 1:
        width = sum(layers[l].width for l in graph.visible)
        text.append(f"data: {width:,} columns, of layers {', '.join(map(str, graph.visible))}")
    return "\n".join([*text, "edges", *_align(edges), sweep + " | ".join(colours)])


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}" + "s" * (count != 1)


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns rows of words as indented lines, in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[word.ljust(width) for word, width in zip(row, widths, strict=True)] for row in rows]
    return ["  " + "  ".join(row).rstrip() for row in padded]
