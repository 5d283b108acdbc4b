"""Rows whose products wait for others: a GPU's matrix units sum those of data and chains in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from harmonium.backends import choice, tensor_core_sums
from harmonium.backends.choice import Machine

_WAITING = 1 << 24  # numbers of lots of one weight that wait, 64 MB: one product of more is no faster


class _Lot(NamedTuple):
    """States or means of rows that wait, each the tensors of every layer.

    Attributes:
        means: of every layer, those of several ``add`` of the same weight.
        weight: a number, or (rows,).
        short: the layers whose are -1, 0 or 1.
        drawn: the layers whose are states, and not means.
    """

    means: list[list[Tensor]]
    weight: float | Tensor
    short: list[bool]
    drawn: list[bool]

    def takes(self, weight: float | Tensor, short: list[bool], drawn: list[bool]) -> bool:
        """Returns whether more rows of this weight may wait with these."""
        if isinstance(weight, Tensor) or isinstance(self.weight, Tensor):
            return False
        return weight == self.weight and short == self.short and drawn == self.drawn


class Sums(NamedTuple):
    """The sums of lots.

    Attributes:
        firsts: Σ_rows weight · x of every layer with edges, (width_l,).
        products: Σ_rows weight · x ⊗ y of every edge, (width_l, width_m).
        rows: states or means of every layer, weight, and which layers are states, of every lot.
    """

    firsts: dict[int, Tensor]
    products: list[Tensor]
    rows: list[tuple[list[Tensor], float | Tensor, list[bool]]]


@final
class Lots:
    """The rows that wait for one sum of statistics, at most two lots of them: data and chains."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lots: list[_Lot] = []

    @staticmethod
    def of(machine: Machine) -> Lots | None:
        """Returns lots where products may wait; None where each is made at once."""
        return Lots(machine) if machine.thetas[0][0].device.type in choice.UNITS else None

    def serve(self, machine: Machine, states: Sequence[Tensor]) -> bool:
        """Returns whether products of such states wait for others."""
        graph = machine.graph
        if graph.inner or not graph.edges or graph.sparse:
            return False
        rows = max(len(x) for x in states)
        return choice.tensor_cores(machine, rows, min(J.numel() for J in machine.J))

    def add(self, means: list[Tensor], weight: float | Tensor, drawn: list[bool], exact: bool) -> Sums | None:
        """Lets rows wait, and returns what others have come to where there are enough of them.

        Args:
            means: states or means of every layer, (rows, width_l).
            weight: a number, or (rows,).
            drawn: the layers whose are states, and not means.
            exact: whether states are drawn, or data within the support of the units.
        """
        layers = self._machine.layers
        weight = weight.to(self._machine.dtype) if isinstance(weight, Tensor) else weight
        short = [exact and layer.short and state for layer, state in zip(layers, drawn, strict=True)]
        lot = next((lot for lot in self._lots if lot.takes(weight, short, drawn)), None)
        if lot is None:
            made = self._sum() if len(self._lots) == 2 else None
            self._lots.append(_Lot([[x] for x in means], weight, short, drawn))
            return made
        for waiting, x in zip(lot.means, means, strict=True):
            waiting.append(x)
        full = sum(x.numel() for waiting in lot.means for x in waiting) > _WAITING
        return self._sum() if full else None

    def conclude(self) -> Sums | None:
        """Returns what all rows have come to, in the memory of what made them; None: none wait."""
        if not self._lots:
            return None
        self._machine.J.forget_digits()
        return self._sum()

    def _sum(self) -> Sums:
        """Returns what the rows that wait have come to."""
        lots, layers = [*self._lots], self._machine.layers
        self._lots.clear()
        means = [[x[0] if len(x) == 1 else torch.cat(x) for x in lot.means] for lot in lots]
        sums = Sums({}, [], [(x, lot.weight, lot.drawn) for x, lot in zip(means, lots, strict=True)])
        for l, m in self._machine.graph.edges:
            bounded = layers[l].short, layers[m].short
            pairs = [
                tensor_core_sums.Pair(x[l], x[m], lot.weight, lot.short[l], lot.short[m], *bounded)
                for x, lot in zip(means, lots, strict=True)
            ]
            made = tensor_core_sums.statistics(pairs)
            sums.products.append(made.products)
            sums.firsts.setdefault(l, made.x)
            sums.firsts.setdefault(m, made.y)
        return sums
