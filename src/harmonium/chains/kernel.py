"""What moves a chain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harmonium.machine import Hamiltonian, States


class Step(NamedTuple):
    """One sweep of a kernel.

    Attributes:
        states: for each layer (batch, width_l).
        fields: fields of layers given the others of ``states``, where the sweep knows them.
        diagnostics: numbers about the sweep, such as an acceptance rate: floats, or tensors of one element,
            which a GPU need not be waited for.
        carried: what else the kernel's next sweep may use of these states; None where it uses nothing.
    """

    states: States
    fields: dict[int, Tensor]
    diagnostics: Mapping[str, float | Tensor]
    carried: Any = None


class Kernel(ABC):
    """A Markov kernel on the states of a machine.

    A kernel holds settings only. What a sweep needs comes in, what it made goes out.
    """

    @property
    @abstractmethod
    def invariant(self) -> bool:
        """Returns whether the kernel leaves the machine's distribution invariant, after finitely many sweeps.

        Chains that start with other sweeps, such as unadjusted ones, count as long as those come to an end
        (``after``). A class declares it in one line, ``invariant = True``. Rules with persistent chains are
        "asymptotic" for such kernels and "biased" for all others.
        """

    @abstractmethod
    def sweep(self, hamiltonian: Hamiltonian, states: Sequence[Tensor], generator: torch.Generator) -> Step:
        """Moves every chain once but for what the Hamiltonian holds; the given tensors are not changed."""

    def onward(self, hamiltonian: Hamiltonian, step: Step, generator: torch.Generator) -> Step:
        """``sweep`` from where a step of this kernel ended, without computing again what that one knows."""
        return self.sweep(hamiltonian, step.states, generator)

    def after(self, sweeps: int) -> Kernel:
        """Returns the kernel of chains that took so many sweeps: another one where the first ones differ."""
        return self

    def at(self, sweep: int, sweeps: int) -> Kernel:
        """Returns the kernel of sweep 0 ≤ sweep < sweeps of a run: another one where steps are scheduled."""
        return self.after(sweep)

    def scaled(self, factor: float) -> Kernel:
        """The same with its steps multiplied by a factor; a kernel without steps stays as it is."""
        return self

    def expand(
        self, hamiltonian: Hamiltonian, states: Sequence[Tensor], generator: torch.Generator
    ) -> States:
        """The states that the kernel moves, from one for each chain; more rows if it keeps replicas."""
        return list(states)

    def target(self, states: Sequence[Tensor]) -> States:
        """The rows of moved states that follow the machine's own law, one for each chain."""
        return list(states)
