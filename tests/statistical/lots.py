"""Many independent estimates from one run of coupled chains.

A run ends with its last pair, so that one of many pairs takes little longer than one of a few. Lots of its
pairs are independent estimates, which tell the standard error; their mean is what the library made of all.
"""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import torch
from machines import request_of
from torch import Tensor

from harmonium.coupled import meeting
from harmonium.coupled.kernels import ChainState
from harmonium.coupled.meeting import SignedAccumulator
from harmonium.learning import Rule
from harmonium.learning.parametrisation import Parametrisation
from harmonium.machine import BoltzmannMachine, Hamiltonian, Statistics


class Recorder:
    """A ledger, and what it was told."""

    def __init__(self, *arguments) -> None:
        self.ledger = SignedAccumulator(*arguments)
        self.hamiltonian, self.into, self.row_weights = arguments
        self.unread = self.ledger.unread
        self.entries: list[tuple[list[Tensor], Tensor, Tensor]] = []

    def add(self, place: ChainState, pairs: Tensor, weight: float) -> None:
        self.ledger.add(place, pairs, weight)
        self.enter(place, pairs, weight * self.of(pairs))

    def add_difference(self, both: ChainState, pairs: Tensor, weight: float) -> None:
        self.ledger.add_difference(both, pairs, weight)
        each = weight * self.of(pairs)
        self.enter(both, pairs.repeat(2), torch.cat((each, -each)))

    def of(self, pairs: Tensor) -> Tensor:
        return torch.ones(len(pairs)) if self.row_weights is None else self.row_weights[pairs]

    def enter(self, place: ChainState, pairs: Tensor, weights: Tensor) -> None:
        if bool(weights.any()):
            self.entries.append((place.without(self.unread).states, pairs, weights))

    def flush(self) -> None:
        self.ledger.flush()

    def add_to(self, lots: list[Statistics]) -> None:
        """Adds the sums of each lot."""
        layers, every_pair, every_weight = zip(*self.entries, strict=True)
        states = [torch.cat(parts) for parts in zip(*layers, strict=True)]
        pairs, weights = torch.cat(every_pair), torch.cat(every_weight).to(states[0])
        count = int(pairs.max()) + 1
        lot = pairs * len(lots) // count
        summed = self.ledger._summed
        for number, total in enumerate(lots):
            rows = (lot == number).nonzero().squeeze(-1)
            own = Statistics(self.hamiltonian).in_readings(self.into.readings)
            own.add(
                self.hamiltonian.select_rows(pairs[rows]), [x[rows] for x in states], weights[rows], summed
            )
            total.add_sums(own.thetas, own.products)


@torch.no_grad()
def in_lots(
    hamiltonian: Hamiltonian, into: Statistics, lots: int, run: Callable[[], object]
) -> list[Statistics]:
    """Independent estimates with ``into``, to which ``run`` adds by coupled chains, for their mean.

    Lots are of neighbouring pairs, so that equal parts of the rows, one after the other, have one each.
    """
    made: list[Recorder] = []

    def recorder(*arguments) -> Recorder:
        made.append(Recorder(*arguments))
        return made[-1]

    with patch.object(meeting, "SignedAccumulator", recorder):
        run()
    assert made, "compiled pairs have no ledger"
    parts = [Statistics(hamiltonian) for _ in range(lots)]
    for each in made:
        each.add_to(parts)
    every = combined(hamiltonian, [(part, 1.0) for part in parts])
    return [combined(hamiltonian, [(into, 1.0), (part, float(lots)), (every, -1.0)]) for part in parts]


def combined(hamiltonian: Hamiltonian, terms: list[tuple[Statistics, float]]) -> Statistics:
    total = Statistics(hamiltonian)
    for sums, factor in terms:
        thetas = [[factor * part for part in theta] for theta in sums.thetas]
        total.add_sums(thetas, [factor * J for J in sums.products])
    return total


def gradients_in_lots(
    rule: Rule, machine: BoltzmannMachine, v: Tensor, lots: int, weights: Tensor | None = None
) -> list[dict[str, Tensor]]:
    """Independent estimates of a gradient, each from its part of the rows of v, which are alike."""
    task = request_of(machine, v, torch.Generator().manual_seed(0), weights)
    found = in_lots(task.hamiltonian, task.into, lots, lambda: rule.add(task, None))
    return [rule.direction(Parametrisation(machine), sums, []) for sums in found]
