"""Sufficient statistics, summed in place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import final

import torch
from torch import Tensor

from harmonium.backends import Lots, LotSums, OuterProductSum, sum_of_lots
from harmonium.machine.hamiltonian import Hamiltonian


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
        self._lots = Lots(hamiltonian)
        # The first term of a sum becomes the sum: zeros to add it to would be one more pass for each layer.
        self._thetas: list[list[Tensor | None]] = [[None] * len(theta) for theta in hamiltonian.thetas]
        self._products = [*map(OuterProductSum, hamiltonian.J, hamiltonian.graph.patterns)]

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
        if self._lots.wait:
            self._grow(self._lots.conclude())
        for totals, theta in zip(self._thetas, self._hamiltonian.thetas, strict=True):
            for i, total in enumerate(totals):
                if total is None:
                    totals[i] = torch.zeros_like(theta[i])
        return self._thetas  # type: ignore[return-value]

    @property
    def products(self) -> list[Tensor]:
        """Sums of x_l ⊗ x_m, each in the shape of J: (width_l, width_m), or the entries of a sparse one."""
        if self._lots.wait:
            self._grow(self._lots.conclude())
        totals = zip(self._products, self._hamiltonian.J, strict=True)
        return [torch.zeros_like(J) if sums.total is None else sums.total for sums, J in totals]

    def add(
        self,
        hamiltonian: Hamiltonian,
        states: Sequence[Tensor],
        weight: float | Tensor,
        summed: Collection[int] = (),
        fields: Mapping[int, Tensor] = MappingProxyType({}),
        exact: bool = False,
    ) -> dict[int, Tensor]:
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

        Returns:
            The fields of summed layers that are known now.
        """
        # Each reading alone has the expectation that is asked for, and so has their mean (FORMULAS §2).
        readings = (summed,) if self.readings is None else self.readings
        weight, read, fields = weight / len(readings), list[list[Tensor]](), dict(fields)
        for reading in readings:
            means = list(states)
            # Few rows do not fill a GPU: lots of one weight wait, and are one product at the end.
            waits = self._lots.wait and len(readings) == 1 and self._lots.serve(hamiltonian, states)
            for l, layer in enumerate(hamiltonian.layers):
                if l in reading:
                    # The field is what a mean costs: it is returned, for whoever draws the layer next.
                    terms, layer_fields = hamiltonian.expect(l, states, exact, fields.get(l))
                    if layer_fields is not None:
                        fields[l] = layer_fields
                    means[l] = terms[0]
                elif waits and hamiltonian.graph.joints[l]:
                    continue  # added with all that wait
                else:  # the first statistic is the state itself
                    terms = layer.statistics(states[l]) if len(self._thetas[l]) > 1 else (states[l],)
                self.add_terms(l, terms, weight, first=1 if waits and hamiltonian.graph.joints[l] else 0)
            read.append(means)
            if waits:
                drawn = [l not in reading for l in range(len(means))]
                self._grow(self._lots.add(means, weight, drawn, exact))
                return fields
        if len(read) > 1:  # rows of one product: a second one would pass over the large result again
            means = [torch.cat(parts) for parts in zip(*read, strict=True)]
            weight = weight.repeat(len(read)) if isinstance(weight, Tensor) else weight
        # E[x_l ⊗ x_m] is the product of means only because no two summed layers are joined.
        for edge, (l, m) in enumerate(hamiltonian.graph.edges):
            self._products[edge].add(means[l], means[m], weight / 2 if l == m else weight)
        return fields

    def add_terms(self, layer: int, terms: Sequence[Tensor], weight: float | Tensor, first: int = 0) -> None:
        """Adds Σ_rows weight · t_l, with a number or weights (batch,), and t_l in the order of ``thetas``.

        The ``first`` of them are left out, as they are added elsewhere.
        """
        totals = self._thetas[layer]
        for i in range(first, len(terms)):
            total, term = totals[i], terms[i]
            if isinstance(weight, Tensor):  # as a product, by which no weighted copy of the rows is made
                summed = sum_of_lots(weight.to(term.dtype).unsqueeze(-1), term)[0]
                totals[i] = summed if total is None else total.add_(summed)
            elif total is None:
                totals[i] = term.sum(0).mul_(weight)
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

    def _grow(self, sums: LotSums | None) -> None:
        """Adds what rows that waited have come to."""
        if sums is None:
            return
        layers, joints = self._hamiltonian.layers, self._hamiltonian.graph.joints
        # First statistics came with the products, as sums of their columns; x² and the like follow here.
        for x, weight, drawn in sums.rows:
            for l, units in enumerate(layers):
                if drawn[l] and joints[l] and len(self._thetas[l]) > 1:
                    self.add_terms(l, units.statistics(x[l]), weight, first=1)
        for product, term in zip(self._products, sums.products, strict=True):
            product.grow(term)
        for l, total in sums.firsts.items():
            before = self._thetas[l][0]
            self._thetas[l][0] = total if before is None else before.add_(total)

    def means(self) -> list[Tensor]:
        """Returns copies of the sums of x_l, each (width_l,)."""
        return [theta[0].clone() for theta in self.thetas]
