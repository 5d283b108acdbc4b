"""Sums over units one by one, by tables over the neighbours of each (Dechter 1999, bucket elimination).

ln Z, marginals, draws and the most probable state of machines of small tree width: trees, strips, lattices of
a few rows, chains of narrow layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _random
from harmonium.layers import Moments
from harmonium.machine import Hamiltonian, Part, States, Statistics
from harmonium.sums.orders import EliminationOrder, Pairs, list_pairs

_KEPT_ENTRIES = 1 << 26  # of messages at a time: 512 MB; beyond, those of one segment after the other


class _Factor(NamedTuple):
    """A table of log-weights.

    Attributes:
        scope: units, in the order in which they are summed out.
        table: (states of each unit of the scope, rows); one row where all rows have the same.
    """

    scope: tuple[int, ...]
    table: Tensor


class _Joint(NamedTuple):
    """A pair of a leaf and a unit.

    Attributes:
        pairs: the pairs of their edge.
        number: its number among these.
        below: whether the leaf is the first of the pair.
        J: (columns of the unit, columns of the leaf).
    """

    pairs: Pairs
    number: int
    below: bool
    J: Tensor


class _Leaf(NamedTuple):
    """A unit that is summed out by ψ beside the states of its neighbours.

    Attributes:
        part: the unit.
        columns: its columns in the state of the layer.
        scope: its neighbours.
        joints: the pairs of it and each of them.
        field: field beside all their states, (states of each, columns, rows).
    """

    part: Part
    columns: Tensor
    scope: tuple[int, ...]
    joints: list[_Joint]
    field: Tensor


class _Edge(NamedTuple):
    """Pairs of units that are joined, with their tables.

    Attributes:
        pairs: the pairs, by numbers of units in their layers.
        below: indices of the first units in the order, and
        above: of the second ones.
        tables: log-weights, (pairs, states below, states above).
    """

    pairs: Pairs
    below: list[int]
    above: list[int]
    tables: Tensor


@final
class Elimination:
    """Rows that lack the same units, which are summed out one by one.

    Args:
        hamiltonian: the machine, with what the rows show clamped; β and natural parameters are alike for all
            rows.
        rows: their number.
        order: an order of the free units.
    """

    def __init__(self, hamiltonian: Hamiltonian, rows: int, order: EliminationOrder) -> None:
        self.hamiltonian, self.rows, self.order = hamiltonian, rows, order
        self._layers = [layer for layer in hamiltonian.layers]
        zeros = [
            hamiltonian.thetas[l][0].new_zeros(rows, layer.width)
            for l, layer in enumerate(hamiltonian.layers)
        ]
        self._shown = [x.double() for x in hamiltonian.clamp_states(zeros)]  # 0 where an entry is free
        self._children: list[list[int]] = [[] for _ in order.units]
        for i, scope in enumerate(order.scopes):
            if scope:
                self._children[scope[0]].append(i)
        self._rank = {i: step for step, i in enumerate(order.order)}

    # The factors
    # ------------------------------------------------------------------------------------------------------

    @cached_property
    def _double(self) -> Hamiltonian:
        return self.hamiltonian.to(torch.float64)

    @cached_property
    def _fields(self) -> States:
        """Fields of what is clamped on every layer, (rows, width_l)."""
        bare = self._double
        return [bare.field(l, self._shown) for l in range(len(self._layers))]

    @cached_property
    def _values(self) -> dict[int, Tensor]:
        """States of a unit by discrete layer, (n_states, columns)."""
        return {l: self._layers[l].values().double() for l in {l for l, _ in self.order.units}}

    @cached_property
    def _free(self) -> dict[int, list[int]]:
        """The free units by layer."""
        free: dict[int, list[int]] = {}
        for l, i in (*self.order.units, *self.order.leaves):
            free.setdefault(l, []).append(i)
        return free

    @cached_property
    def _place(self) -> dict[tuple[int, int], int]:
        return {unit: i for i, unit in enumerate(self.order.units)}

    @cached_property
    def _nodes(self) -> list[Tensor]:
        """Log-weights of every unit beside what is clamped, each (n_states, rows or 1)."""
        by_layer: dict[int, Tensor] = {}
        for l, values in self._values.items():
            layer, theta = self._layers[l], self._double.thetas[l]
            states = values.repeat(1, layer.n_units)
            field = layer.by_unit(self._fields[l] if self._is_shown else self._fields[l][:1])
            alone = layer.unit_log_weights(states, theta)
            by_layer[l] = alone.t().unsqueeze(2) + torch.einsum("ruc,qc->uqr", field, values)
        return [by_layer[l][i] for l, i in self.order.units]

    @cached_property
    def _is_shown(self) -> bool:
        """True if rows show something, so that they differ."""
        return self.hamiltonian.held is not None

    @cached_property
    def _pairs(self) -> list[tuple[Pairs, Tensor]]:
        """The free units that each edge joins, with their J, (pairs, columns below, columns above)."""
        hamiltonian, found = self._double, []
        for pairs in list_pairs(hamiltonian.graph, self._layers, self._free):
            found.append((pairs, self._by_pair(hamiltonian.J[pairs.edge], pairs)[_places(pairs)].clone()))
        return found

    def _by_pair(self, matrix: Tensor, pairs: Pairs) -> Tensor:
        """Returns a view of what has the shape of an edge's J, to be read and written at ``_places``."""
        below, above = (self._layers[l] for l in self.hamiltonian.graph.edges[pairs.edge])
        p, q = below.columns_per_unit, above.columns_per_unit
        if pairs.places is not None:
            return matrix.view(-1, p, q)
        return matrix.view(below.n_units, p, above.n_units, q).transpose(1, 2)

    @cached_property
    def _edges(self) -> list[_Edge]:
        """The edges among discrete units."""
        edges, hamiltonian = [], self._double
        for pairs, J in self._pairs:
            l, m = hamiltonian.graph.edges[pairs.edge]
            if l in self._values and m in self._values:
                tables = hamiltonian.beta_times(self._values[l] @ J @ self._values[m].t())
                below = [self._place[l, i] for i in pairs.below.tolist()]
                above = [self._place[m, i] for i in pairs.above.tolist()]
                edges.append(_Edge(pairs, below, above, tables))
        return edges

    @cached_property
    def _joints(self) -> dict[tuple[int, int], dict[int, _Joint]]:
        """For every leaf the units joined to it."""
        joints: dict[tuple[int, int], dict[int, _Joint]] = {leaf: {} for leaf in self.order.leaves}
        for pairs, blocks in self._pairs:
            l, m = self.hamiltonian.graph.edges[pairs.edge]
            for k, (a, b) in enumerate(zip(pairs.below.tolist(), pairs.above.tolist(), strict=True)):
                if (l, a) in joints:
                    joints[l, a][self._place[m, b]] = _Joint(pairs, k, True, blocks[k].t())
                elif (m, b) in joints:
                    joints[m, b][self._place[l, a]] = _Joint(pairs, k, False, blocks[k])
        return joints

    @cached_property
    def _leaves(self) -> list[_Leaf]:
        leaves, hamiltonian = [], self._double
        for (l, i), beside in zip(self.order.leaves, self.order.beside, strict=True):
            layer = self._layers[l]
            columns = torch.arange(layer.width, device=hamiltonian.device).view(layer.n_units, -1)[i]
            scope = tuple(sorted(beside, key=self._rank.__getitem__))
            field = self._fields[l][:, columns].t()
            field = field if self._is_shown else field[:, :1]
            joints = [self._joints[l, i][j] for j in scope]
            for k, (j, joint) in enumerate(zip(scope, joints, strict=True)):
                term = hamiltonian.beta_times(self._values[self.order.units[j][0]] @ joint.J)
                field = field + term.view(
                    [-1 if k == n else 1 for n in range(len(scope))] + [len(columns), 1]
                )
            leaves.append(_Leaf(Part(l, columns, layer.part([i])), columns, scope, joints, field))
        return leaves

    @cached_property
    def _factors(self) -> list[list[_Factor]]:
        """The tables that each unit is the first of the scope of."""
        factors = [[_Factor((i,), table)] for i, table in enumerate(self._nodes)]
        for edge in self._edges:
            for a, b, table in zip(edge.below, edge.above, edge.tables, strict=True):
                first, second = (a, b) if self._rank[a] < self._rank[b] else (b, a)
                oriented = (table if first == a else table.t()).unsqueeze(-1)
                factors[first].append(_Factor((first, second), oriented))
        for leaf, table in zip(self._leaves, self._leaf_tables, strict=True):
            if leaf.scope:
                factors[leaf.scope[0]].append(_Factor(leaf.scope, table))
        return factors

    @cached_property
    def _leaf_tables(self) -> list[Tensor]:
        """ψ of every leaf beside the states of its neighbours, (states of each, rows)."""
        tables = []
        for leaf in self._leaves:
            kind, theta = self._double.units(leaf.part)
            psi = kind.log_partition(leaf.field.movedim(-2, -1), theta=theta)
            tables.append(psi.squeeze(-1))
        return tables

    @cached_property
    def _base(self) -> Tensor:
        """Log-weight of what is clamped, of leaves without neighbours and of no unit, (rows,)."""
        hamiltonian, total = self._double, self._shown[0].new_zeros(self.rows)
        for l, layer in enumerate(self._layers):
            shown = self._marks[l]
            if shown.any():
                weights = layer.unit_log_weights(self._shown[l], hamiltonian.thetas[l])
                total += weights.masked_fill(~layer.by_unit(shown)[:, 0], 0.0).sum(-1)
        if self._is_shown:
            total += hamiltonian.beta_times(hamiltonian.coupling_energy(self._shown))
        for leaf, table in zip(self._leaves, self._leaf_tables, strict=True):
            if not leaf.scope:
                total += table
        return total - hamiltonian.offset

    @cached_property
    def _marks(self) -> list[Tensor]:
        """Marks the columns of every layer that rows show, (width_l,)."""
        marks = []
        for l, layer in enumerate(self._layers):
            mark = torch.ones(layer.n_units, dtype=torch.bool, device=self.hamiltonian.device)
            mark[self._free.get(l, [])] = False
            marks.append(mark.repeat_interleave(layer.columns_per_unit))
        return marks

    # The sums
    # ------------------------------------------------------------------------------------------------------

    def _table(self, i: int, messages: dict[int, Tensor]) -> Tensor:
        """Returns the sum of all log-weights that have a unit for the first of their scope.

        Returns:
            (states of the unit, states of each unit of its scope, rows).
        """
        clique = (i, *self.order.scopes[i])
        factors = [*self._factors[i]]
        factors += [_Factor(self.order.scopes[k], messages[k]) for k in self._children[i]]
        factors.sort(key=lambda factor: len(factor.scope))  # so that few additions are of the whole table
        first, *rest = factors
        total = _align(first, clique)
        for factor in rest:
            total = total + _align(factor, clique)
        return total

    def _sweep(self, steps: range, messages: dict[int, Tensor], keep: bool, best: bool = False) -> None:
        """Sums out the units of some steps; their messages come to ``messages``, and those used up go."""
        for i in (self.order.order[step] for step in steps):
            table = self._table(i, messages)
            messages[i] = table.amax(0) if best else _sum_first(table)
            if not keep:
                for child in self._children[i]:
                    del messages[child]

    def log_weights(self) -> Tensor:
        """Returns ln Σ exp(-E) over all that each row does not show, (rows,) float64."""
        messages: dict[int, Tensor] = {}
        self._sweep(range(len(self.order.order)), messages, keep=False)
        total = self._base.clone()
        for message in messages.values():
            total += message
        return total

    def _list_segments(self) -> list[range]:
        """Returns steps whose messages are kept together."""
        segments, start, entries = [], 0, 0.0
        for step, i in enumerate(self.order.order):
            size = self.rows * 1.0
            for j in self.order.scopes[i]:
                size *= len(self._values[self.order.units[j][0]])
            if entries + size > _KEPT_ENTRIES and step > start:
                segments.append(range(start, step))
                start, entries = step, 0.0
            entries += size
        return [*segments, range(start, len(self.order.order))]

    def _backwards(self, best: bool = False) -> Iterator[tuple[int, dict[int, Tensor]]]:
        """Yields the units, the last to be summed out first, with the messages to and from each."""
        *before, last = self._list_segments()
        checkpoints, messages = [], dict[int, Tensor]()
        for steps in before:
            checkpoints.append((steps, dict(messages)))
            self._sweep(steps, messages, keep=False, best=best)
        for steps, known in reversed([*checkpoints, (last, messages)]):
            self._sweep(steps, known, keep=True, best=best)
            for step in reversed(steps):
                yield self.order.order[step], known
            known.clear()

    @cached_property
    def marginals(self) -> Marginals:
        """The distributions of units, and of pairs that are joined, given what each row shows."""
        return Marginals(self)

    def moments(self) -> Moments:
        """Returns mean and variance of every visible entry, each (rows, visible_width).

        What is seen is its own mean, without variance.
        """
        mean, variance = zip(*self.marginals.moments, strict=True)
        return Moments(self._visible(mean), self._visible(variance))

    def hidden_means(self) -> Tensor:
        """Returns E of the hidden layers, side by side, (rows, columns)."""
        means = self.marginals.moments
        return torch.cat([means[l].mean for l in self.hamiltonian.graph.hidden], -1).to(
            self.hamiltonian.dtype
        )

    def unit_probabilities(self, layer: int, unit: int) -> Tensor:
        """Returns p of every state of a discrete unit, (rows, n_states)."""
        if (layer, unit) in self._place:
            return self.marginals.units[self._place[layer, unit]].t()
        kind = self._layers[layer]
        shown = kind.by_unit(self._shown[layer])[:, unit].unsqueeze(1)
        return (shown == kind.values().double()).all(-1).double()

    def draw(self, generator: torch.Generator, draws: int = 1) -> Tensor:
        """Draws what the rows lack from its exact distribution: each unit given those that come after it.

        Returns:
            (draws, rows, visible_width), independent of each other.
        """
        shape = (draws, self.rows)

        def choose(logits: Tensor) -> Tensor:
            cumulative = logits.softmax(0).cumsum(0)
            noise = _random.uniform(shape, generator, torch.float64) * cumulative[-1]
            return (cumulative[:-1] <= noise).sum(0)

        chosen = self._choose(choose, shape)
        return self._visible([x.view(*shape, -1) for x in self._states(chosen, shape, generator)])

    def modes(self) -> States:
        """Returns a state of the highest probability of each row, for each layer (rows, width_l).

        It is exact where all free units are discrete; others are at their means beside it.
        """
        shape = (1, self.rows)
        return self._states(self._choose(lambda logits: logits.argmax(0), shape, best=True), shape, None)

    def _choose(
        self, choose: Callable[[Tensor], Tensor], shape: tuple[int, int], best: bool = False
    ) -> list[Tensor]:
        """Returns a state of every unit, each (draws, rows) int64, by log-weights (n_states, draws, rows)."""
        chosen = [torch.zeros(shape, dtype=torch.int64, device=self.hamiltonian.device)] * len(
            self.order.units
        )
        for i, messages in self._backwards(best):
            factors = [*self._factors[i]]
            factors += [_Factor(self.order.scopes[k], messages[k]) for k in self._children[i]]
            logits = [_select(factor, chosen, skip=1) for factor in factors]
            chosen[i] = choose(torch.stack([x.expand(-1, *shape) for x in logits]).sum(0))
        return chosen

    def _states(
        self, chosen: Sequence[Tensor], shape: tuple[int, int], generator: torch.Generator | None
    ) -> States:
        """Returns the states of all layers, (draws · rows, width_l), with leaves drawn or at their means."""
        hamiltonian, count = self._double, shape[0] * shape[1]
        states = [x.repeat(shape[0], 1) for x in self._shown]
        for (l, i), digits in zip(self.order.units, chosen, strict=True):
            self._layers[l].by_unit(states[l])[:, i] = self._values[l][digits.flatten()]
        for leaf in self._leaves:
            field = _select(_Factor(leaf.scope, leaf.field), chosen, skip=0, columns=True)
            field = field.expand(-1, *shape).reshape(-1, count).t()
            l, columns = leaf.part.layer, leaf.columns
            if generator is None:
                kind, theta = hamiltonian.units(leaf.part)
                states[l][:, columns] = kind.moments(field, theta=theta).mean
            else:
                states[l][:, columns] = hamiltonian.sample(leaf.part, field, generator)
        return [x.to(self.hamiltonian.dtype) for x in states]

    def _visible(self, states: Sequence[Tensor]) -> Tensor:
        """Joins the visible layers, (..., visible_width)."""
        return torch.cat([states[l] for l in self.hamiltonian.graph.visible], -1)

    def expect(self, into: Statistics, weight: float | Tensor) -> None:
        """Adds the sum over rows of weight, a number or (rows,), times E[S | what the row shows].

        Of two layers the products of units that an edge joins, or of which rows show one, are added.
        """
        row_weights = torch.as_tensor(weight, dtype=torch.float64, device=self.hamiltonian.device).expand(
            self.rows
        )
        self.marginals.add_statistics(into, row_weights)


@final
class Marginals:
    """The distributions of single units and of joined pairs.

    Args:
        sums: rows and an order.

    Attributes:
        units: p of the states of every free discrete unit, each (n_states, rows).
        pairs: p of the joint states of every joined pair, by edge of ``Elimination._edges``, each (states
            below, states above, rows).
        leaves: p of the joint states of the neighbours of every leaf, each (states of each, rows).
    """

    def __init__(self, sums: Elimination) -> None:
        self._sums = sums
        order = sums.order
        self.units: list[Tensor] = [torch.empty(0)] * len(order.units)
        self.pairs: list[list[Tensor]] = [[torch.empty(0)] * len(edge.below) for edge in sums._edges]
        self.leaves: list[Tensor] = [sums._shown[0].new_ones(sums.rows)] * len(order.leaves)
        wanted: list[list[tuple[list[Tensor], int, tuple[int, ...]]]] = [[] for _ in order.units]
        for edge, found in zip(sums._edges, self.pairs, strict=True):
            for k, pair in enumerate(zip(edge.below, edge.above, strict=True)):
                wanted[min(pair, key=sums._rank.__getitem__)].append((found, k, pair))
        for k, leaf in enumerate(sums._leaves):
            if leaf.scope:
                wanted[leaf.scope[0]].append((self.leaves, k, leaf.scope))
        beliefs: dict[int, Tensor] = {}
        for i, messages in sums._backwards():
            clique = (i, *order.scopes[i])
            belief = (sums._table(i, messages) - messages[i]).exp_()
            if i in beliefs:
                belief *= beliefs.pop(i)
            for child in sums._children[i]:
                beliefs[child] = _marginal(belief, clique, order.scopes[child])
            for found, k, scope in [*wanted[i], (self.units, i, (i,))]:
                marginal = _marginal(belief, clique, scope)
                found[k] = marginal.expand(*marginal.shape[:-1], sums.rows)

    def add_statistics(self, into: Statistics, weight: Tensor) -> None:
        """Adds Σ_rows weight · E[S], with weights (rows,) float64."""
        sums, hamiltonian = self._sums, self._sums._double
        layers = hamiltonian.layers
        thetas = [
            [torch.where(mark, weight @ t, 0.0) for t in layer.statistics(x)]
            for layer, x, mark in zip(layers, sums._shown, sums._marks, strict=True)
        ]
        for (l, i), p in zip(sums.order.units, self.units, strict=True):
            states = sums._values[l].repeat(1, layers[l].n_units)
            for total, t in zip(thetas[l], layers[l].statistics(states), strict=True):
                layers[l].by_unit(total)[i] = (p @ weight) @ layers[l].by_unit(t)[:, i]
        products = [torch.zeros_like(J) for J in hamiltonian.J]
        for edge, found in zip(sums._edges, self.pairs, strict=True):
            self._add_pairs(products[edge.pairs.edge], edge, found, weight)
        for leaf, p in zip(sums._leaves, self.leaves, strict=True):
            self._add_leaf(thetas, products, leaf, p * weight)
        means = [x.mean.masked_fill(mark, 0.0) for x, mark in zip(self.moments, sums._marks, strict=True)]
        for e, (l, m) in enumerate(hamiltonian.graph.edges if sums._is_shown else ()):
            pattern, share = hamiltonian.graph.patterns[e], 0.5 if l == m else 1.0
            shown, rest = sums._shown[l] * weight.unsqueeze(1) * share, means[l] * weight.unsqueeze(1) * share
            for x, y in ((shown, sums._shown[m] + means[m]), (rest, sums._shown[m])):
                products[e] += x.t() @ y if pattern is None else pattern.products(x, y)
        dtype = sums.hamiltonian.dtype
        into.add_sums([[t.to(dtype) for t in theta] for theta in thetas], [x.to(dtype) for x in products])

    def _add_pairs(self, product: Tensor, edge: _Edge, found: Sequence[Tensor], weight: Tensor) -> None:
        """Adds the products of joined discrete units to the sum of their edge, (width_l, width_m)."""
        sums, pairs = self._sums, edge.pairs
        l, m = sums.hamiltonian.graph.edges[pairs.edge]
        joint = torch.stack([p @ weight for p in found])
        blocks = sums._values[l].t() @ joint @ sums._values[m]
        by_pair = sums._by_pair(product, pairs)
        if l == m and pairs.places is None:  # both halves of a symmetric matrix
            by_pair[pairs.above, pairs.below] = blocks.mT / 2
            blocks = blocks / 2
        by_pair[_places(pairs)] = blocks

    def _add_leaf(
        self, thetas: list[list[Tensor]], products: list[Tensor], leaf: _Leaf, weight: Tensor
    ) -> None:
        """Adds the statistics of a leaf, with a weight for every state of its neighbours and row."""
        sums = self._sums
        kind, theta = sums._double.units(leaf.part)
        l, columns = leaf.part.layer, leaf.columns
        field = leaf.field.movedim(-2, -1)
        expected = [t * weight.unsqueeze(-1) for t in kind.expected_statistics(field, theta=theta)]
        for total, t in zip(thetas[l], expected, strict=True):
            total[columns] = t.flatten(0, -2).sum(0)
        by_states = expected[0].sum(-2)  # (states of each neighbour, columns)
        for k, (j, joint) in enumerate(zip(leaf.scope, leaf.joints, strict=True)):
            others = [axis for axis in range(len(leaf.scope)) if axis != k]
            block = sums._values[sums.order.units[j][0]].t() @ (
                by_states.sum(others) if others else by_states
            )
            by_pair = sums._by_pair(products[joint.pairs.edge], joint.pairs)
            place = tuple(int(indices[joint.number]) for indices in _places(joint.pairs))
            by_pair[place] = block.t() if joint.below else block

    @cached_property
    def moments(self) -> list[Moments]:
        """Mean and variance of every layer, each (rows, width_l); what is shown is its own mean."""
        sums = self._sums
        means = [x.clone() for x in sums._shown]
        squares = [x.square() for x in sums._shown]
        for (l, i), p in zip(sums.order.units, self.units, strict=True):
            values = sums._values[l]
            sums._layers[l].by_unit(means[l])[:, i] = p.t() @ values
            sums._layers[l].by_unit(squares[l])[:, i] = p.t() @ values.square()
        for leaf, p in zip(sums._leaves, self.leaves, strict=True):
            kind, theta = sums._double.units(leaf.part)
            mean, variance = kind.moments(leaf.field.movedim(-2, -1), theta=theta)
            for total, x in ((means, mean), (squares, variance + mean.square())):
                by_row = (x * p.unsqueeze(-1)).reshape(-1, sums.rows, len(leaf.columns))
                total[leaf.part.layer][:, leaf.columns] = by_row.sum(0)
        return [
            Moments(mean, (square - mean.square()).clamp(min=0))
            for mean, square in zip(means, squares, strict=True)
        ]


def _places(pairs: Pairs) -> tuple[np.ndarray, ...]:
    """Returns the indices of pairs in ``Elimination._by_pair``."""
    return (pairs.below, pairs.above) if pairs.places is None else (pairs.places,)


def _align(factor: _Factor, clique: tuple[int, ...]) -> Tensor:
    """Returns a table with an axis of 1 for every unit of a clique that is not in its scope."""
    shape, sizes = [], iter(factor.table.shape)
    for unit in clique:
        shape.append(next(sizes) if unit in factor.scope else 1)
    return factor.table.view(*shape, next(sizes))


def _sum_first(table: Tensor) -> Tensor:
    """Returns ln Σ exp of a table over its first axis."""
    return torch.logaddexp(table[0], table[1]) if len(table) == 2 else table.logsumexp(0)


def _marginal(belief: Tensor, clique: tuple[int, ...], scope: tuple[int, ...]) -> Tensor:
    """Sums a table over all units of a clique but those of a scope, whose axes come in the scope's order."""
    others = [axis for axis, unit in enumerate(clique) if unit not in scope]
    kept = [unit for unit in clique if unit in scope]
    total = belief.sum(others) if others else belief
    return total.permute(*map(kept.index, scope), len(scope))


def _select(factor: _Factor, chosen: Sequence[Tensor], skip: int, columns: bool = False) -> Tensor:
    """Returns a table at chosen states, each (draws, rows), of all units of its scope but the first ``skip``.

    Returns:
        (states of the first unit, or columns, draws, rows); rows may be 1 where nothing differs by row.
    """
    sizes = factor.table.shape
    scope = factor.scope[skip:]
    if not scope:
        return factor.table.unsqueeze(-2)
    place = torch.zeros_like(chosen[0])
    for j, size in zip(scope, sizes[skip:], strict=False):
        place = place * size + chosen[j]
    rows = torch.arange(place.shape[1], device=place.device) if sizes[-1] > 1 else 0
    if columns:
        return factor.table.reshape(-1, *sizes[-2:])[place, :, rows].movedim(-1, 0)
    return factor.table.reshape(sizes[0], -1, sizes[-1])[:, place, rows]
