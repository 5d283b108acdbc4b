"""Block Gibbs sampling."""

from __future__ import annotations

from itertools import chain
from typing import final

import torch

from harmonium import _random
from harmonium.backends import calls, choice
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
        in_turn = choice.layers_in_turn(hamiltonian, len(moved[0])) if hamiltonian.graph.inner else set()
        for l in set(hamiltonian.graph.inner) - in_turn:
            moved[l] = moved[l].clone()  # to be written over part by part
        drawn, last = set[int](), hamiltonian.graph.colours[-1]
        for part in chain.from_iterable(hamiltonian.graph.colours):
            l = part.layer
            if l in drawn or (hamiltonian.held is not None and hamiltonian.held.is_clamped(l)):
                continue
            if l in in_turn:
                moved[l] = calls.draw_in_turn(hamiltonian, l, moved, _random.key(generator))
                drawn.add(l)
            else:
                summed = l in hamiltonian.graph.summed
                field = known.get(l) if part.columns is None else None
                moved[l], field = hamiltonian.draw(
                    part, moved, generator, field, keeps=summed and part in last
                )
                if summed and field is not None:
                    known[l] = field
            for joint in hamiltonian.graph.joints[l]:
                known.pop(joint.other, None)
        return KernelState(moved, state.sweeps + 1, state.memory, known), {}

    def run_sweeps(
        self, hamiltonian: Hamiltonian, state: KernelState, generator: torch.Generator, sweeps: int
    ) -> KernelState | None:
        l = choice.only_layer_in_turn(hamiltonian, len(state.states[0]))
        if l is None:
            return None
        moved = list(state.states)
        moved[l] = calls.sweep_two_valued(hamiltonian, l, moved, _random.keys(sweeps, generator))
        return KernelState(moved, state.sweeps + sweeps, state.memory)
