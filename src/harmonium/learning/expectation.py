"""How an expected sufficient statistic is estimated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harmonium.machine import Hamiltonian, Statistics


class Outcome(NamedTuple):
    """What an expectation hands back beside the statistics that it added.

    Attributes:
        state: what its next call wants, or None.
        diagnostics: numbers about the estimate.
    """

    state: Any
    diagnostics: dict[str, float]


class Expectation(ABC):
    """An estimate of E[S], of the free machine or of the machine with its visible layer clamped to data.

    All estimates of a gradient differ only in this (DESIGN, "the one idea"). It holds settings only.
    """

    @abstractmethod
    def add(
        self,
        hamiltonian: Hamiltonian,
        v: Tensor,
        state: Any,
        generator: torch.Generator,
        into: Statistics,
        weight: float,
    ) -> Outcome:
        """Adds weight times the estimated expectation of the mean over rows.

        Args:
            hamiltonian: the machine.
            v: data, (batch, width_0).
            state: what the last call returned, None at first.
            generator: source of all noise.
            into: where to add.
            weight: +1 for the clamped phase of a gradient, -1 for the free phase.
        """

    def check_state(self, hamiltonian: Hamiltonian, state: Any) -> None:  # noqa: B027
        """Refuses a state, read from a file, that ``add`` could not have returned for this machine.

        An expectation that keeps none has nothing to refuse.

        Raises:
            TypeError, ValueError: naming what is wrong with it.
        """
