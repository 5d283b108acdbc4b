"""A running average of a machine's parameters."""

from __future__ import annotations

import copy

import torch

from harmonium.machine import BoltzmannMachine


class RunningAverage:
    """Polyak's average with exponential forgetting.

    The weight of the newest parameters is the larger of ``1 - decay`` and ``1 / step``: a plain mean at
    first, so that the average owes nothing to where the machine started.

    Attributes:
        machine: a machine whose parameters are the average.
    """

    def __init__(self, machine: BoltzmannMachine, decay: float) -> None:
        self.machine = copy.deepcopy(machine)
        self._decay = decay
        self._average = [parameter.detach() for parameter in self.machine.parameters()]
        self._current = [parameter.detach() for parameter in machine.parameters()]

    def update(self, step: int) -> None:
        """Take in the parameters as they are after ``step`` >= 1 updates."""
        torch._foreach_lerp_(self._average, self._current, max(1.0 - self._decay, 1.0 / step))
