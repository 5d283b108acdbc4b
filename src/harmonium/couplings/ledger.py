"""Signed sums of statistics along coupled chains."""

from __future__ import annotations

from collections.abc import Collection
from typing import final

import torch
from torch import Tensor

from harmonium import _random
from harmonium.compiled import serving
from harmonium.couplings.pairs import Place, join
from harmonium.machine import Hamiltonian, States, Statistics
from harmonium.products import int8_product, int8_works

_ROWS = 512  # smaller lots wait
_SCALE = 127  # the largest whole number that a mean is rounded to


@final
class Ledger:
    """Adds weighted places to statistics; small lots wait, so that a long tail costs few products.

    Args:
        hamiltonian: the machine.
        into: the sums; None keeps none.
        generator: source of the noise of unbiased rounding (``add_signed``).
        row_weights: of the pairs, (pairs,), beside the weight of an entry; None where all count alike.

    Attributes:
        unread: layers whose states are not asked for.
    """

    def __init__(
        self,
        hamiltonian: Hamiltonian,
        into: Statistics | None,
        generator: torch.Generator,
        row_weights: Tensor | None = None,
    ) -> None:
        self._hamiltonian = hamiltonian
        self._into = into
        self._summed = tuple(l for l in hamiltonian.graph.summed if not hamiltonian.fixes(l))
        self.unread = self._summed if into is None or into.readings is None else ()
        self._generator = generator
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
        whole = self._into.readings is None and self._row_weights is None
        if whole and serving.whole_numbers_pay(machine, states[0], len(signs)) and int8_works():
            add_signed(
                self._into, machine, states, fields, signs, self._magnitude, self._summed, self._generator
            )
        else:
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


@torch.no_grad()
def add_signed(
    into: Statistics,
    hamiltonian: Hamiltonian,
    states: States,
    fields: dict[int, Tensor],
    signs: Tensor,
    magnitude: float,
    summed: Collection[int],
    generator: torch.Generator,
) -> None:
    """``Statistics.add`` with weights ± magnitude, in whole numbers.

    Units are ±1 or 0; means of summed layers are rounded to multiples of 1/127, up or down at random so that
    their expectation stays what it is. Products of whole numbers are exact and take a quarter of the time.
    """
    whole_signs = signs.to(torch.int8)
    values: list[Tensor] = []
    for l, layer in enumerate(hamiltonian.layers):
        if l not in summed:
            values.append(states[l].to(torch.int8))
            continue
        field = fields[l] if l in fields else hamiltonian.field(l, states)
        if not bool(torch.isfinite(field.sum())):  # no whole number says so: let the general way
            into.add(hamiltonian, states, signs * magnitude, summed, fields)
            return
        rounded = torch.empty(field.shape, dtype=torch.int8, device="cpu")
        units = serving.units_of(hamiltonian.thetas[l], [layer.two_values])
        key = _random.key(generator)
        serving.over_rows("round_means", len(field), field, *units, key, _SCALE, rounded)
        values.append(rounded)
    unit = [1 / _SCALE if l in summed else 1.0 for l in range(len(values))]
    thetas = [
        [int8_product(whole_signs.unsqueeze(0), x).squeeze(0) * (magnitude * u)]
        for x, u in zip(values, unit, strict=True)
    ]
    signed = [x * whole_signs.unsqueeze(-1) if l not in summed else x for l, x in enumerate(values)]
    couplings = [
        int8_product(signed[l].t(), signed[m]).mul_(magnitude * unit[l] * unit[m])
        for l, m in hamiltonian.graph.edges
    ]
    into.add_sums(thetas, couplings)
