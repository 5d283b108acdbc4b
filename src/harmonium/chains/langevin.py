"""Langevin sampling of Gaussian layers on the marginal density."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.chains.kernel import Kernel, Step
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

    def __init__(self, step: float = 0.1, adjust: int | None = 0, anneal: bool = False) -> None:
        self.step = _checks.real(step, "step", low=torch.finfo(torch.float32).tiny)
        self.adjust = None if adjust is None else _checks.positive_int(adjust, "adjust", minimum=0)
        self.anneal = anneal

    @property
    def invariant(self) -> bool:
        return self.adjust is not None

    def after(self, sweeps: int) -> Langevin:
        if not self.adjust:
            return self
        other = copy.copy(self)
        other.adjust = max(0, self.adjust - sweeps)
        return other

    def at(self, sweep: int, sweeps: int) -> Langevin:
        now = self.after(sweep)
        return now.scaled(0.5 * (1 + math.cos(math.pi * sweep / sweeps))) if self.anneal else now

    def scaled(self, factor: float) -> Langevin:
        other = copy.copy(self)
        other.step = self.step * factor
        return other

    @property
    def relaxation(self) -> Relaxation:
        """What a sweep does."""
        return Relaxation(1 - self.step, math.sqrt(2 * self.step), collapsed=True, adjusted=self.adjust == 0)

    def sweep(self, hamiltonian: Hamiltonian, states: Sequence[Tensor], generator: torch.Generator) -> Step:
        return self.onward(hamiltonian, Step(list(states), {}, {}), generator)

    def onward(self, hamiltonian: Hamiltonian, step: Step, generator: torch.Generator) -> Step:
        return self.relaxation.sweep(hamiltonian, step, generator)

    def __repr__(self) -> str:
        return f"Langevin(step={self.step:g}, adjust={self.adjust}, anneal={self.anneal})"
