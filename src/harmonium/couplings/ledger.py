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

    def add(self, place: Place, pairs: Tensor, weight: float) -> None:
        """Adds weight · f of some pairs' rows, f = E[S | the layers that are not summed]."""
        self._enter(place, pairs, [weight])

    def add_difference(self, both: Place, pairs: Tensor, weight: float) -> None:
        """Adds weight · (f(x) - f(y)), with x the first half of the rows and y the second."""
        self._enter(both, pairs, [weight, -weight])

    def flush(self) -> None:
        """Adds what waits."""
        if self._into is None or not self._lots:
            return
        place, pairs, weights = self._lots[0]
        if len(self._lots) > 1:
            places, all_pairs, all_weights = zip(*self._lots, strict=True)
            place, pairs, weights = join(*places), torch.cat(all_pairs), torch.cat(all_weights)
        self._lots = []
        self._into.add(self._hamiltonian.take(pairs), place.states, weights, self._summed, place.fields)

    def _enter(self, place: Place, pairs: Tensor, weights: list[float]) -> None:
        """Keeps the rows of some pairs, as often as there are weights."""
        if self._into is None or weights[0] == 0 or len(pairs) == 0:
            return
        like = place.states[0]
        each = like.new_ones(len(pairs)) if self._row_weights is None else self._row_weights[pairs].to(like)
        rows = torch.cat([weight * each for weight in weights])
        self._lots.append((place.without(self.unread), pairs.repeat(len(weights)), rows))
        if sum(len(lot[1]) for lot in self._lots) >= _ROWS:
            self.flush()
