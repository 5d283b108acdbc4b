"""Block Gibbs sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from harmonium.chains.kernel import Kernel, Step
from harmonium.machine import Hamiltonian


@final
class Gibbs(Kernel):
    """The blocks of every colour drawn given all others, colour by colour.

    In a chain of layers these are two half-steps at any depth: the even layers given the odd ones, then the
    odd ones. Chains that start from visible data first draw the hidden layers (``chains.complete``).
    """

    invariant = True

    def sweep(self, hamiltonian: Hamiltonian, states: Sequence[Tensor], generator: torch.Generator) -> Step:
        return self.onward(hamiltonian, Step(list(states), {}, {}), generator)

    def onward(self, hamiltonian: Hamiltonian, step: Step, generator: torch.Generator) -> Step:
        moved, known = list(step.states), dict(step.fields)
        for l in hamiltonian.graph.inner:
            moved[l] = moved[l].clone()  # to be written over part by part
        for colour in hamiltonian.graph.colours:
            for part in colour:
                l = part.layer
                if hamiltonian.fixes(l):
                    continue
                whole = part.columns is None
                field = known[l] if whole and l in known else hamiltonian.field(part, moved)
                moved[l] = hamiltonian.draw(part, moved, generator, field)
                for joint in hamiltonian.graph.joints[l]:
                    known.pop(joint.other, None)
                if l in hamiltonian.graph.summed:
                    known[l] = field
        return Step(moved, known, {})

    def __repr__(self) -> str:
        return "Gibbs()"
