"""Block Gibbs sampling."""

from __future__ import annotations

from typing import final

import torch

from harmonium.chains.kernel import Info, Kernel, KernelState
from harmonium.machine import Hamiltonian


@final
class Gibbs(Kernel):
    """Gibbs sampling: the blocks of every colour drawn given all others, colour by colour.

    In a chain of layers these are two half-steps at any depth: the even layers given the odd ones, then the
    odd ones. Chains that start from visible data first draw the hidden layers (``chains.complete``).

    Example:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
        >>> start = machine.random_states(200, seed=0)
        >>> states = hm.chains.run(machine, hm.chains.Gibbs(), start, sweeps=10, seed=1)
        >>> bool(0.4 < states[0].mean() < 0.6)
        True
    """

    kind = "gibbs"
    invariant = True

    def step(
        self, law: Hamiltonian, state: KernelState, generator: torch.Generator
    ) -> tuple[KernelState, Info]:
        moved, known = list(state.states), dict(state.fields)
        for l in law.graph.inner:
            moved[l] = moved[l].clone()  # to be written over part by part
        for colour in law.graph.colours:
            for part in colour:
                l = part.layer
                if law.held is not None and law.held.fixes(l):
                    continue
                whole = part.columns is None
                field = known[l] if whole and l in known else law.field(part, moved)
                moved[l] = law.draw(part, moved, generator, field)
                for joint in law.graph.joints[l]:
                    known.pop(joint.other, None)
                if l in law.graph.summed:
                    known[l] = field
        return KernelState(moved, state.sweeps + 1, state.own, known), {}
