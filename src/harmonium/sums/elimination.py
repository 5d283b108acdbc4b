"""Sums over units one by one, by tables over the neighbours of each (Dechter 1999, bucket elimination).

ln Z, marginals, draws and the most probable state of machines of small tree width: trees, strips, lattices of
a few rows, chains of narrow layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple, final

import torch
from torch import Tensor

from harmonium import _random
from harmonium.layers import Moments
from harmonium.machine import Hamiltonian, Part, States, Statistics
from harmonium.sums.orders import EliminationOrder, list_pairs

_KEPT_ENTRIES = 1 << 26  # of messages at a time: 512 MB; beyond, those of one segment after the other


class _Factor(NamedTuple):
    """A table of log-weights.

    Attributes:
        scope: units, in the order in which they are summed out.
        table: (states of each unit of the scope, rows); one row where all rows have the same.
    """

    scope: tuple[int, ...]
    table: Tensor


class _Leaf(NamedTuple):
    """A unit that is summed out by ψ beside the states of its neighbours.

    Attributes:
        part: the unit.
        scope: its neighbours.
        field: field beside all their states, (states of each, columns, rows).
    """

    part: Part
    scope: tuple[int, ...]
    field: Tensor


class _Weights(NamedTuple):
    """The log-weight of a state as a sum of tables, differentiable in the parameters of the machine.

    Attributes:
        base: of what is clamped and of no unit, (rows,).
        scopes: of all tables: every discrete unit, in their order, their pairs, and the neighbours of leaves.
        stacks: tables of these, some side by side, each (tables, states of each unit, rows or 1).
        leaves: the units summed out by ψ.
    """

    base: Tensor
    scopes: list[tuple[int, ...]]
    stacks: list[Tensor]
    leaves: list[_Leaf]


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
        self._double, self._layers = hamiltonian.to(torch.float64), hamiltonian.layers
        self._is_shown = hamiltonian.held is not None  # so that rows differ
        zeros = [theta[0].new_zeros(rows, len(theta[0])) for theta in self._double.thetas]
        # 0 where an entry is free; what a clamp holds is in the machine's own type.
        self._shown = [x.double() for x in hamiltonian.clamp_states(zeros)]
        self._index = {unit: i for i, unit in enumerate(order.units)}
        self._rank = {i: step for step, i in enumerate(order.order)}
        self._children: list[list[int]] = [[] for _ in order.units]
        for i, scope in enumerate(order.scopes):
            if scope:
                self._children[scope[0]].append(i)
        self._free: dict[int, list[int]] = {}
        for l, i in (*order.units, *order.leaves):
            self._free.setdefault(l, []).append(i)
        self._pairs = list(list_pairs(hamiltonian.graph, self._layers, self._free))
        self._values = {l: self._layers[l].values().double() for l in sorted({l for l, _ in order.units})}

    # The factors
    # ------------------------------------------------------------------------------------------------------

    def _weigh(self, hamiltonian: Hamiltonian) -> _Weights:
        """Returns the tables whose sum is -E, with leaves summed out by ψ, of a machine in float64."""
        fields, base = [x[:1] for x in self._shown], self._shown[0].new_zeros(self.rows) - hamiltonian.offset
        if self._is_shown:  # elsewhere fields of 0 serve all rows
            fields = [hamiltonian.field(l, self._shown) for l in range(len(self._layers))]
            base = base + hamiltonian.beta_times(hamiltonian.coupling_energy(self._shown))
        scopes: list[tuple[int, ...]] = [(i,) for i in range(len(self.order.units))]
        stacks = list[Tensor]()
        for l, values in self._values.items():
            layer = self._layers[l]
            alone = layer.unit_log_weights(values.repeat(1, layer.n_units), hamiltonian.thetas[l])
            by_field = torch.einsum("ruc,qc->uqr", layer.by_unit(fields[l]), values)
            nodes = alone.t().unsqueeze(2) + by_field
            stacks.append(nodes[[i for k, i in self.order.units if k == l]])
        leaf_terms: dict[tuple[int, int], dict[int, Tensor]] = {leaf: {} for leaf in self.order.leaves}
        for edge, below, above, numbers in self._pairs:
            l, m = hamiltonian.graph.edges[edge]
            p, q = (self._layers[k].columns_per_unit for k in (l, m))
            if numbers is None:
                J = hamiltonian.J[edge].view(-1, p, self._layers[m].n_units, q).transpose(1, 2)[below, above]
            else:
                J = hamiltonian.J[edge].view(-1, p, q)[numbers]
            J = hamiltonian.beta_times(J)
            ends = [(l, i) for i in below.tolist()], [(m, i) for i in above.tolist()]
            if l in self._values and m in self._values:
                stacks.append((self._values[l] @ J @ self._values[m].t()).unsqueeze(-1))
                pairs = zip(*ends, strict=True)
                scopes += [(self._index[one], self._index[other]) for one, other in pairs]
                continue
            for one, other, block in zip(*ends, J, strict=True):
                if other in leaf_terms:
                    leaf_terms[other][self._index[one]] = self._values[l] @ block
                else:
                    leaf_terms[one][self._index[other]] = self._values[m] @ block.t()
        leaves = [self._find_leaf(unit, fields, terms) for unit, terms in leaf_terms.items()]
        for leaf in leaves:
            kind, theta = hamiltonian.units(leaf.part)
            psi = kind.log_partition(leaf.field.movedim(-2, -1), theta=theta)
            stacks.append(psi.squeeze(-1).unsqueeze(0))
            scopes.append(leaf.scope)
        for l, layer in enumerate(self._layers):
            weights = layer.unit_log_weights(self._shown[l], hamiltonian.thetas[l])
            free = torch.tensor(self._free.get(l, []), dtype=torch.int64, device=base.device)
            base = base + weights.index_fill(1, free, 0.0).sum(-1)
        return _Weights(base, scopes, stacks, leaves)

    def _find_leaf(
        self, unit: tuple[int, int], fields: Sequence[Tensor], terms: Mapping[int, Tensor]
    ) -> _Leaf:
        """Returns a leaf, by the term of each neighbour in its field, (states, columns)."""
        l, i = unit
        layer = self._layers[l]
        columns = torch.arange(layer.width, device=self.hamiltonian.device).view(layer.n_units, -1)[i]
        scope = tuple(sorted(terms, key=self._rank.__getitem__))
        field = fields[l][:, columns].t()
        for k, j in enumerate(scope):
            field = field + terms[j].view(
                [-1 if k == n else 1 for n in range(len(scope))] + [len(columns), 1]
            )
        return _Leaf(Part(l, columns, layer.part([i])), scope, field)

    @cached_property
    def _weights(self) -> _Weights:
        return self._weigh(self._double)

    @cached_property
    def _factors(self) -> list[list[_Factor]]:
        """The tables that each unit is the first of the scope of."""
        factors: list[list[_Factor]] = [[] for _ in self.order.units]
        tables = chain.from_iterable(self._weights.stacks)
        for scope, table in zip(self._weights.scopes, tables, strict=True):
            if len(scope) == 2 and self._rank[scope[0]] > self._rank[scope[1]]:
                scope, table = scope[::-1], table.transpose(0, 1)
            if scope:
                factors[scope[0]].append(_Factor(scope, table))
        return factors

    # The sums
    # ------------------------------------------------------------------------------------------------------

    def _list_factors(self, i: int, messages: Mapping[int, Tensor]) -> list[_Factor]:
        """Returns the tables and the messages that have a unit for the first of their scope."""
        received = [_Factor(self.order.scopes[k], messages[k]) for k in self._children[i]]
        return [*self._factors[i], *received]

    def _table(self, i: int, messages: dict[int, Tensor]) -> Tensor:
        """Returns the sum of all log-weights that have a unit for the first of their scope.

        Returns:
            (states of the unit, states of each unit of its scope, rows).
        """
        clique = (i, *self.order.scopes[i])
        # Small tables first, so that few additions are of the whole table.
        first, *rest = sorted(self._list_factors(i, messages), key=lambda factor: len(factor.scope))
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

    @cached_property
    def log_weights(self) -> Tensor:
        """ln Σ exp(-E) over all that each row does not show, (rows,) float64."""
        messages: dict[int, Tensor] = {}
        self._sweep(range(len(self.order.order)), messages, keep=False)
        tables = zip(self._weights.scopes, chain.from_iterable(self._weights.stacks), strict=True)
        unjoined = [table for scope, table in tables if not scope]  # of leaves
        return sum([*unjoined, *messages.values()], self._weights.base)

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
    def _marginals(self) -> list[Tensor]:
        """p of the units of every table given what rows show, each (states of each, rows)."""
        marginals = [self._weights.base.new_ones(self.rows)] * len(self._weights.scopes)
        wanted: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in self.order.units]
        for k, scope in enumerate(self._weights.scopes):
            if scope:
                wanted[min(scope, key=self._rank.__getitem__)].append((k, scope))
        beliefs: dict[int, Tensor] = {}
        for i, messages in self._backwards():
            clique = (i, *self.order.scopes[i])
            belief = (self._table(i, messages) - messages[i]).exp_()
            if i in beliefs:
                belief *= beliefs.pop(i)
            for child in self._children[i]:
                beliefs[child] = _marginal(belief, clique, self.order.scopes[child])
            for k, scope in wanted[i]:
                marginal = _marginal(belief, clique, scope)
                marginals[k] = marginal.expand(*marginal.shape[:-1], self.rows)
        return marginals

    def moments(self) -> Moments:
        """Returns mean and variance of every visible entry, each (rows, visible_width).

        What is seen is its own mean, without variance.
        """
        means = [x.clone() for x in self._shown]
        squares = [x.square() for x in self._shown]
        of_units, of_leaves = len(self.order.units), len(self._marginals) - len(self._weights.leaves)
        for (l, i), p in zip(self.order.units, self._marginals[:of_units], strict=True):
            self._layers[l].by_unit(means[l])[:, i] = p.t() @ self._values[l]
            self._layers[l].by_unit(squares[l])[:, i] = p.t() @ self._values[l].square()
        for leaf, p in zip(self._weights.leaves, self._marginals[of_leaves:], strict=True):
            (l, columns, _), (kind, theta) = leaf.part, self._double.units(leaf.part)
            mean, variance = kind.moments(leaf.field.movedim(-2, -1), theta=theta)
            for total, x in ((means, mean), (squares, variance + mean.square())):
                by_row = (x * p.unsqueeze(-1)).reshape(-1, self.rows, x.shape[-1])
                total[l][:, columns] = by_row.sum(0)
        mean, square = (self.hamiltonian.visible_states(x) for x in (means, squares))
        return Moments(mean, (square - mean.square()).clamp(min=0))

    def unit_probabilities(self, layer: int, unit: int) -> Tensor:
        """Returns p of every state of a discrete unit that no row shows, (rows, n_states)."""
        return self._marginals[self._index[layer, unit]].t()

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
        states = self._states(chosen, shape)
        for leaf in self._weights.leaves:
            field = _select(_Factor(leaf.scope, leaf.field), chosen, skip=0, columns=True)
            field = field.expand(-1, *shape).reshape(-1, draws * self.rows).t()
            states[leaf.part.layer][:, leaf.part.columns] = self._double.sample(leaf.part, field, generator)
        visible = self.hamiltonian.visible_states(states).to(self.hamiltonian.dtype)
        return visible.view(*shape, -1)

    def modes(self) -> States:
        """Returns a state of the highest probability of each row, for each layer (rows, width_l).

        All free units are discrete.
        """
        shape = (1, self.rows)
        states = self._states(self._choose(lambda logits: logits.argmax(0), shape, best=True), shape)
        return [x.to(self.hamiltonian.dtype) for x in states]

    def _choose(
        self, choose: Callable[[Tensor], Tensor], shape: tuple[int, int], best: bool = False
    ) -> list[Tensor]:
        """Returns a state of every unit, each (draws, rows) int64, by log-weights (n_states, draws, rows)."""
        chosen = [torch.zeros(shape, dtype=torch.int64, device=self.hamiltonian.device)] * len(
            self.order.units
        )
        for i, messages in self._backwards(best):
            logits = [_select(factor, chosen, skip=1) for factor in self._list_factors(i, messages)]
            chosen[i] = choose(torch.stack([x.expand(-1, *shape) for x in logits]).sum(0))
        return chosen

    def _states(self, chosen: Sequence[Tensor], shape: tuple[int, int]) -> States:
        """Returns the states of all layers, (draws · rows, width_l) float64, with leaves at 0."""
        states = [x.repeat(shape[0], 1) for x in self._shown]
        for (l, i), digits in zip(self.order.units, chosen, strict=True):
            self._layers[l].by_unit(states[l])[:, i] = self._values[l][digits.flatten()]
        return states

    @torch.no_grad()
    def expect(self, into: Statistics, weight: float | Tensor) -> None:
        """Adds the sum over rows of weight, a number or (rows,), times E[S | what the row shows].

        Of two layers the products of units that an edge joins, or of which rows show one, are added.
        """
        # E[S] is the derivative of E[-E] in θ and βJ with p held as it is, so that no statistic of any kind
        # of unit is written out here. Tables that all rows share want the sum of p over rows alone.
        hamiltonian, dtype = self._double, self.hamiltonian.dtype
        row_weights = torch.as_tensor(weight, dtype=torch.float64, device=hamiltonian.device).expand(
            self.rows
        )
        thetas = [tuple(p.detach().requires_grad_() for p in theta) for theta in hamiltonian.thetas]
        J = [hamiltonian.beta_times(x.detach()).requires_grad_() for x in hamiltonian.J]
        with torch.enable_grad():
            machine = replace(hamiltonian, thetas=tuple(thetas), J=type(hamiltonian.J)(J), beta=1.0)
            base, _, stacks, _ = self._weigh(machine)
        left, weights = iter(self._marginals), [row_weights]
        for stack in stacks:
            p = torch.stack([next(left) for _ in stack])
            weights.append((p @ row_weights).unsqueeze(-1) if stack.shape[-1] == 1 else p * row_weights)
        parameters = [*chain(*thetas), *J]
        rest = iter(torch.autograd.grad([base, *stacks], parameters, weights, materialize_grads=True))
        sums = [[next(rest).to(dtype) for _ in theta] for theta in thetas]
        products = [next(rest).to(dtype) for _ in J]
        for edge, (l, m) in enumerate(hamiltonian.graph.edges):
            if l == m and hamiltonian.graph.patterns[edge] is None:  # both halves of a symmetric matrix
                products[edge] = (products[edge] + products[edge].t()) / 2
        into.add_sums(sums, products)


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
    shared = [unit for unit in clique if unit in scope]
    total = belief.sum(others) if others else belief
    return total.permute(*map(shared.index, scope), len(scope))


def _select(factor: _Factor, chosen: Sequence[Tensor], skip: int, columns: bool = False) -> Tensor:
    """Returns a table at chosen states, each (draws, rows), of all units of its scope but the first ``skip``.

    Returns:
        (states of the first unit, or columns, draws, rows); rows may be 1 where nothing differs by row.
    """
    sizes = factor.table.shape
    scope = factor.scope[skip:]
    if not scope:
        return factor.table.unsqueeze(-2)
    index = torch.zeros_like(chosen[0])  # of the joint state of the scope's units, the last of them fastest
    for j, size in zip(scope, sizes[skip:], strict=False):
        index = index * size + chosen[j]
    rows = torch.arange(index.shape[1], device=index.device) if sizes[-1] > 1 else 0
    if columns:
        return factor.table.reshape(-1, *sizes[-2:])[index, :, rows].movedim(-1, 0)
    return factor.table.reshape(sizes[0], -1, sizes[-1])[:, index, rows]
