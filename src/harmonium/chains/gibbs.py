"""Block Gibbs sampling."""

from __future__ import annotations

from itertools import chain
from typing import final

import torch

from harmonium.backends import half_steps
from harmonium.chains.kernel import Info, Kernel, KernelState
from harmonium.machine import Hamiltonian


@final
class Gibbs(Kernel):
    """Gibbs sampling: the blocks of every colour drawn given all others, colour by colour.

    In a chain of layers these are two half-steps at any depth: the even layers given the odd ones, then the
    odd ones. Where compiled code serves, the units of a layer with inner edges are drawn one after the other,
    at the layer's first colour. Chains that start from visible data first draw the hidden layers
    (``chains.fill_hidden``).

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
        >>> start = machine.random_states(200, seed=0)
        >>> states = hm.chains.run(machine, hm.chains.Gibbs(), start, sweeps=10, seed=1)
        >>> bool(0.4 < states[0].mean() < 0.6)
        True
    """

    kind = "gibbs"
    invariant = True

    def is_steady(self, persistent: bool) -> bool:
        return True

    def step(
        self, hamiltonian: Hamiltonian, state: KernelState, generator: torch.Generator
    ) -> tuple[KernelState, Info]:
        moved, known = list(state.states), dict(state.fields)
        graph = hamiltonian.graph
        parts = chain.from_iterable(graph.colours)
        for part, in_turn in half_steps.walk(hamiltonian, moved, parts, generator):
            l = part.layer
            if in_turn is not None:
                moved[l] = in_turn
            else:
                summed = l in graph.summed
                field = known.get(l) if part.columns is None else None
                keeps = summed and part in graph.colours[-1]
                moved[l], field = hamiltonian.draw(part, moved, generator, field, keeps)
                if summed and field is not None:
                    known[l] = field
            for joint in graph.joints[l]:
                known.pop(joint.other, None)
        return KernelState(moved, state.sweeps + 1, state.memory, known), {}

    def run_sweeps(
        self, hamiltonian: Hamiltonian, state: KernelState, generator: torch.Generator, sweeps: int
    ) -> KernelState | None:
        moved = half_steps.sweep_alone(hamiltonian, state.states, generator, sweeps)
        return None if moved is None else KernelState(moved, state.sweeps + sweeps, state.memory)
