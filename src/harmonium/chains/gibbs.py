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

    def sweep(self, hamiltonian: Hamiltonian, states: Sequence[Tensor], generator: torch.Generator) -> Step:
        moved = list(states)
        for l in hamiltonian.graph.inner:
            moved[l] = states[l].clone()  # to be written over part by part
        fields: dict[int, Tensor] = {}
        for colour in hamiltonian.graph.colours:
            for part in colour:
                l = part.layer
                if hamiltonian.fixes(l):
                    continue
                field = hamiltonian.field(part, moved)
                moved[l] = hamiltonian.draw(part, moved, generator, field)
                if l in hamiltonian.graph.summed:
                    fields[l] = field
        return Step(moved, fields, {})

    def __repr__(self) -> str:
        return "Gibbs()"
