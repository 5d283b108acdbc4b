"""Block Gibbs sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from harmonium.chains.kernel import Kernel, Step
from harmonium.machine import Clamp, Hamiltonian


@final
class Gibbs(Kernel):
    """All even layers drawn given the odd ones, then all odd layers given the even ones.

    One sweep is these two half-steps at any depth. Chains that start from visible data first draw the hidden
    layers (``chains.complete``).
    """

    def sweep(
        self, hamiltonian: Hamiltonian, states: Sequence[Tensor], clamp: Clamp, generator: torch.Generator
    ) -> Step:
        moved = list(states)
        fields: dict[int, Tensor] = {}
        for parity in ("even", "odd"):
            for l in hamiltonian.parity(parity):
                if clamp.fixes(l):
                    continue
                field = hamiltonian.field(l, moved)
                moved[l] = clamp.apply(l, hamiltonian.sample(l, field, generator))
                if parity == "odd":
                    fields[l] = field
        return Step(moved, fields, {})

    def __repr__(self) -> str:
        return "Gibbs()"
