"""Signed sums of statistics along coupled chains."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from harmonium.couplings.pairs import Place, join
from harmonium.machine import Hamiltonian, Statistics

_ROWS = 512  # smaller lots wait


@final
class Ledger:
    """Adds weighted places to statistics; small lots wait, so that a long tail costs few products.

    Args:
        hamiltonian: the machine.
        into: the sums; None keeps none.
        row_weights: of the pairs, (pairs,), beside the weight of an entry; None where all count alike.

    Attributes:
        unread: layers whose states are not asked for.
    """

    def __init__(
        self,
        hamiltonian: Hamiltonian,
        into: Statistics | None,
        row_weights: Tensor | None = None,
    ) -> None:
        self._hamiltonian = hamiltonian
        self._into = into
        self._summed = tuple(l for l in hamiltonian.graph.summed if not hamiltonian.fixes(l))
        self.unread = self._summed if into is None or into.readings is None else ()
        self._row_weights = row_weights
        self._lots: list[tuple[Place, Tensor, Tensor]] = []
        self._magnitude = 0.0

    def add(self, place: Place, pairs: Tensor, weight: float) -> None:
        """Adds weight · f of some pairs' rows, f = E[S | the layers that are not summed]."""
        self._enter(place, pairs, self._of(pairs), weight)

    def add_difference(self, both: Place, pairs: Tensor, weight: float) -> None:
        """Adds weight · (f(x) - f(y)), with x the first half of the rows and y the second."""
        each = self._of(pairs)
        self._enter(both, pairs.repeat(2), torch.cat((each, -each)), weight)

    def _of(self, pairs: Tensor) -> Tensor:
        if self._row_weights is None:
            return torch.ones(len(pairs), device=pairs.device)
        return self._row_weights[pairs]

    def flush(self) -> None:
        """Adds what waits."""
        if self._into is None or not self._lots:
            return
        place, pairs, signs = self._lots[0]
        if len(self._lots) > 1:
            places, all_pairs, all_signs = zip(*self._lots, strict=True)
            place, pairs, signs = join(*places), torch.cat(all_pairs), torch.cat(all_signs)
        self._lots = []
        machine, states, fields = self._hamiltonian.take(pairs), place.states, place.fields
        weights = self._magnitude * signs.to(states[0])
        self._into.add(machine, states, weights, self._summed, fields)

    def _enter(self, place: Place, pairs: Tensor, signs: Tensor, weight: float) -> None:
        if self._into is None or weight == 0 or len(signs) == 0:
            return
        if abs(weight) != self._magnitude:
            self.flush()
            self._magnitude = abs(weight)
        self._lots.append((place.without(self.unread), pairs, signs if weight > 0 else -signs))
        if sum(len(lot[1]) for lot in self._lots) >= _ROWS:
            self.flush()
