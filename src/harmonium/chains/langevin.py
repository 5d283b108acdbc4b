"""Langevin sampling of Gaussian layers on the marginal density."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.chains.kernel import Info, Kernel, KernelState
from harmonium.chains.relaxation import Relaxation
from harmonium.machine import Hamiltonian


@final
class Langevin(Kernel):
    """A Langevin step of every Gaussian layer with its neighbours summed out, then all else drawn given it.

    x' = x - α_i ∂F/∂x + √(2 α_i) ξ with F the free energy of the Gaussian units, and accepted or refused by
    Metropolis's rule (MALA; Liao et al. 2022, Alg. 1, Eqs. 6 and 7). The step of unit i is α_i = step · σ_i²,
    at temperature 1 whatever the batch, so that it follows the variances as they are learned. Gaussian layers
    may be visible or hidden, in machines of any depth.

    Args:
        step: α₀, of the order of n^(-1/3) for n units; above 0.
        adjust: first sweeps of a chain that are left unadjusted (the paper's adjust step); None leaves all
            of them so. An unadjusted sweep does not keep the machine's law. In ``chains.run`` and for fresh
            chains they are those of the run; persistent chains have them once, and not at every update.
        anneal: whether the step falls along a half cosine in the course of a run, from ``step`` at its first
            sweep towards 0 after its last. Persistent chains, which have no last sweep, run through it at
            every update. Adjusted sweeps keep the law at any step.
    """

    kind = "langevin"

    def __init__(self, step: float = 0.1, adjust: int | None = 0, anneal: bool = False) -> None:
        self.step_size = _checks.real(step, "step", low=torch.finfo(torch.float32).tiny)
        self.adjust = None if adjust is None else _checks.positive_int(adjust, "adjust", minimum=0)
        self.anneal = anneal

    @property
    def invariant(self) -> bool:
        return self.adjust is not None

    def scaled(self, factor: float) -> Langevin:
        other = copy.copy(self)
        other.step_size = self.step_size * factor
        return other

    def init(
        self,
        law: Hamiltonian,
        states: Sequence[Tensor],
        generator: torch.Generator,
        planned: int | None = None,
    ) -> KernelState:
        if not self.anneal:
            return KernelState(list(states), 0)
        planned = max(1, _checks.positive_int(planned, "planned", minimum=0))
        return KernelState(list(states), 0, {"planned": planned})

    def relaxation(self, state: KernelState) -> Relaxation:
        """Returns what the next sweep does."""
        size = self.step_size
        if self.anneal:
            planned = state.own["planned"]
            size *= 0.5 * (1 + math.cos(math.pi * (state.sweeps % planned) / planned))
        adjusted = self.adjust is not None and state.sweeps >= self.adjust
        return Relaxation(1 - size, math.sqrt(2 * size), collapsed=True, adjusted=adjusted)

    def step(
        self, law: Hamiltonian, state: KernelState, generator: torch.Generator
    ) -> tuple[KernelState, Info]:
        return self.relaxation(state).step(law, state, generator)

    def check(self, law: Hamiltonian, state: KernelState) -> None:
        super().check(law, state)
        if self.anneal:
            _checks.positive_int(state.own["planned"], "state['own']['planned']")

    def __repr__(self) -> str:
        return f"Langevin(step={self.step_size:g}, adjust={self.adjust}, anneal={self.anneal})"
