"""Sufficient statistics, summed in place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from harmonium.backends import (
    OuterProductSum,
    SparseProductSum,
    choice,
    sum_of_lots,
    tensor_core_sums,
)
from harmonium.machine.hamiltonian import Hamiltonian

_WAITING = 1 << 24  # numbers of lots of one weight that wait, 64 MB: one product of more is no faster


class _Lot(NamedTuple):
    """States or means of rows whose products wait, their weight, and which layers are -1, 0 or 1.

    Attributes:
        means: of every layer, those of several ``add`` of the same weight.
        states: the layers whose are states, and not means.
    """

    means: list[list[Tensor]]
    weight: float | Tensor
    short: list[bool]
    states: list[bool]

    def takes(self, weight: float | Tensor, short: list[bool], states: list[bool]) -> bool:
        """Returns whether more rows of this weight may wait with these."""
        if isinstance(weight, Tensor) or isinstance(self.weight, Tensor):
            return False
        return weight == self.weight and short == self.short and states == self.states


@final
class Statistics:
    """A weighted sum of S(x) = (t_l(x_l) for every layer l; x_l ⊗ x_m for every edge (l, m)) over states.

    For an inner edge it is ½ x_l ⊗ x_l, so that each pair of units counts once. Of a sparse coupling the
    products of its pairs alone are summed, within a layer both halves as one.

    The sum is signed and grows in place: adding clamped states with weight +1/batch and free ones with weight
    -1/chains leaves the gradient in natural parameters, and nothing else is ever kept.

    Args:
        hamiltonian: the machine.

    Attributes:
        readings: see ``in_readings``; None: the ``summed`` of each ``add``.
    """

    def __init__(self, hamiltonian: Hamiltonian) -> None:
        self.readings: Sequence[Collection[int]] | None = None
        self._hamiltonian = hamiltonian
        # On a GPU a sum that is the first of its kind needs no zeros.
        self._on_gpu = hamiltonian.thetas[0][0].device.type in choice.UNITS
        self._thetas: list[list[Tensor | None]] = [
            [None] * len(theta) if self._on_gpu else [*map(torch.zeros_like, theta)]
            for theta in hamiltonian.thetas
        ]
        self._products: list[OuterProductSum | SparseProductSum] = [*map(OuterProductSum, hamiltonian.J)]
        for edge, pattern in enumerate(hamiltonian.graph.patterns):
            if pattern is not None:
                self._products[edge] = SparseProductSum(hamiltonian.J[edge], pattern)
        self._lots: list[_Lot] = []

    def in_readings(self, readings: Sequence[Collection[int]] | None) -> Statistics:
        """Returns a view of the sums whose ``add`` sums out these sets of layers instead of its ``summed``.

        Args:
            readings: sets of layers to sum out; the mean over them is added. An empty set reads the states as
                they are; both parities give the marginalised gradient (FORMULAS §2).
        """
        same = copy(self)
        same.readings = readings
        return same

    @property
    def thetas(self) -> list[list[Tensor]]:
        """Sums of t_l, in the order of ``Layer.natural``, each (width_l,)."""
        if not self._on_gpu:
            return self._thetas  # type: ignore[return-value]
        self._conclude()
        return [[self._theta(l, i) for i in range(len(theta))] for l, theta in enumerate(self._thetas)]

    @property
    def products(self) -> list[Tensor]:
        """Sums of x_l ⊗ x_m, each in the shape of J: (width_l, width_m), or the entries of a sparse one."""
        if self._lots:
            self._conclude()
        return [sums.total for sums in self._products]

    def product(self, edge: int) -> Tensor:
        """Returns the sum for one edge, in the shape of its J, where the others need not be made yet."""
        self._conclude()
        return self._products[edge].total

    def add(
        self,
        hamiltonian: Hamiltonian,
        states: Sequence[Tensor],
        weight: float | Tensor,
        summed: Collection[int] = (),
        fields: Mapping[int, Tensor] = MappingProxyType({}),
        exact: bool = False,
    ) -> None:
        """Adds Σ_rows weight · S(states), in expectation over the layers in ``summed`` given the others.

        Args:
            hamiltonian: the machine.
            states: one entry for each layer, (batch, width_l); entries of summed layers are not read.
            weight: a number, or one for each row (batch,).
            summed: layers replaced by their conditional expectation (Rao-Blackwell), no two of them
                joined.
            fields: fields of summed layers where they are already known.
            exact: whether the states are known to be drawn, or data within the support of the units, and no
                means: a GPU then needs fewer products.
        """
        readings = (summed,) if self.readings is None else self.readings
        weight, read = weight / len(readings), list[list[Tensor]]()
        for reading in readings:
            means = list(states)
            queued = self._on_gpu and self._queues(hamiltonian, states, readings)
            for l, layer in enumerate(hamiltonian.layers):
                if l in reading:
                    known = fields.get(l)
                    terms = (
                        hamiltonian.expect(l, states, exact)
                        if known is None
                        else hamiltonian.expected_statistics(l, known)
                    )
                    means[l] = terms[0]
                elif queued and hamiltonian.graph.joints[l]:
                    continue  # added with all that wait
                else:
                    terms = layer.statistics(states[l])
                self.add_terms(l, terms, weight, first=1 if queued and hamiltonian.graph.joints[l] else 0)
            read.append(means)
            if queued:
                drawn = [l not in reading for l in range(len(hamiltonian.layers))]
                short = [
                    exact and layer.short and l not in reading for l, layer in enumerate(hamiltonian.layers)
                ]
                each = weight.to(hamiltonian.dtype) if isinstance(weight, Tensor) else weight
                self._queue(means, each, short, drawn)
                return
        if len(read) > 1:  # rows of one product: a second one would pass over the large result again
            means = [torch.cat(parts) for parts in zip(*read, strict=True)]
            weight = weight.repeat(len(read)) if isinstance(weight, Tensor) else weight
        for edge, (l, m) in enumerate(hamiltonian.graph.edges):
            self._products[edge].add(means[l], means[m], weight / 2 if l == m else weight)

    def add_terms(self, layer: int, terms: Sequence[Tensor], weight: float | Tensor, first: int = 0) -> None:
        """Adds Σ_rows weight · t_l, with a number or weights (batch,), and t_l in the order of ``thetas``.

        The ``first`` of them are left out, as they are added elsewhere.
        """
        for i, term in enumerate(terms):
            if i < first:
                continue
            total = self._thetas[layer][i]
            if total is None:
                total = self._theta(layer, i)
            if isinstance(weight, Tensor):
                total.add_(sum_of_lots(weight.to(term.dtype).unsqueeze(-1), term)[0])
            else:
                total.add_(term.sum(0), alpha=weight)

    def add_products(
        self, edge: int, x: Tensor, y: Tensor, weight: float | Tensor, more: Tensor | None = None
    ) -> None:
        """Adds Σ_rows weight · x ⊗ y to the sum of an edge.

        Args:
            edge: Index of the edge in the graph.
            x: states or means of the layer below, (rows, width_l).
            y: States or means of the layer above, (rows, width_m).
            weight: a number, or (rows,).
            more: another term, (width_l, width_m), which may be written over from now on.
        """
        self._products[edge].add(x, y, weight)
        if more is not None:
            self._products[edge].grow(more)

    def sum_in(self, edge: int, memory: Tensor) -> None:
        """Makes the sum for one edge, (width_l, width_m), where a matrix of its shape stands."""
        self._products[edge].stand_in(memory)

    def add_sums(self, thetas: Sequence[Sequence[Tensor]], products: Sequence[Tensor]) -> None:
        """Adds sums that were made elsewhere, in the shapes of the attributes: a sequence for each layer."""
        for totals, terms in zip(self.thetas, thetas, strict=True):
            for total, term in zip(totals, terms, strict=True):
                total.add_(term)
        for sums, term in zip(self._products, products, strict=True):
            sums.grow(term)

    def _theta(self, layer: int, number: int) -> Tensor:
        """Returns a sum of t_l, which begins at 0."""
        total = self._thetas[layer][number]
        if total is None:
            total = self._thetas[layer][number] = torch.zeros_like(self._hamiltonian.thetas[layer][number])
        return total

    def _queues(self, hamiltonian: Hamiltonian, states: Sequence[Tensor], readings: Sequence[Any]) -> bool:
        """Returns whether products wait for others, with which a GPU's matrix units make them at once."""
        graph = hamiltonian.graph
        if len(readings) != 1 or graph.inner or not graph.edges or graph.sparse:
            return False
        rows = max(len(x) for x in states)
        return choice.tensor_cores(hamiltonian, rows, min(J.numel() for J in hamiltonian.J))

    def _queue(
        self, means: list[Tensor], weight: float | Tensor, short: list[bool], states: list[bool]
    ) -> None:
        """Lets states or means wait for others; adds them where there are enough."""
        lot = next((lot for lot in self._lots if lot.takes(weight, short, states)), None)
        if lot is None:
            if len(self._lots) == 2:  # as many as one kernel takes: data and chains
                self._flush()
            self._lots.append(_Lot([[x] for x in means], weight, short, states))
            return
        for waiting, x in zip(lot.means, means, strict=True):
            waiting.append(x)
        if sum(x.numel() for waiting in lot.means for x in waiting) > _WAITING:
            self._flush()

    def _conclude(self) -> None:
        """Adds the lots that wait, in the memory of what made them."""
        if self._lots:
            self._hamiltonian.J.forget_digits()
            self._flush()

    def _flush(self) -> None:
        """Adds the lots that wait."""
        if not self._lots:
            return
        lots, counted = [*self._lots], set[int]()
        means = [[x[0] if len(x) == 1 else torch.cat(x) for x in lot.means] for lot in lots]
        self._lots.clear()
        layers, joints = self._hamiltonian.layers, self._hamiltonian.graph.joints
        for x, lot in zip(means, lots, strict=True):
            for l, units in enumerate(layers):
                if lot.states[l] and joints[l] and len(self._thetas[l]) > 1:
                    self.add_terms(l, units.statistics(x[l]), lot.weight, first=1)
        for edge, (l, m) in enumerate(self._hamiltonian.graph.edges):
            bounded = layers[l].short, layers[m].short
            pairs = [
                tensor_core_sums.Pair(x[l], x[m], lot.weight, lot.short[l], lot.short[m], *bounded)
                for x, lot in zip(means, lots, strict=True)
            ]
            made = tensor_core_sums.statistics(pairs)
            self._products[edge].grow(made.products)
            for layer, total in ((l, made.x), (m, made.y)):
                before = self._thetas[layer][0]
                if layer not in counted:
                    self._thetas[layer][0] = total if before is None else before.add_(total)
                counted.add(layer)

    def means(self) -> list[Tensor]:
        """Returns copies of the sums of x_l, each (width_l,)."""
        return [theta[0].clone() for theta in self.thetas]
