"""Metropolis sampling with uniform proposals."""

from __future__ import annotations

from itertools import chain
from typing import final

import torch
from torch import Tensor

from harmonium import _checks, _device, _random
from harmonium.backends import half_steps
from harmonium.chains.kernel import Info, Kernel, KernelState
from harmonium.machine import Hamiltonian


@final
class Metropolis(Kernel):
    """Metropolis moves with symmetric proposals.

    A discrete unit proposes any of its states, a real one x + step·N(0, 1).

    Every unit accepts or refuses on its own, colour by colour of the graph: units of a colour are independent
    given the rest, so all of them may move at once. Pairs of chains whose whole states are proposed
    (Taniguchi et al. 2023, §3.2) are those of ``coupled.Metropolis``.

    Args:
        step: standard deviation of the proposals of real units, > 0.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
        >>> start = machine.random_states(200, seed=0)
        >>> states = hm.chains.run(machine, hm.chains.Metropolis(), start, sweeps=10, seed=1)
        >>> bool(0.4 < states[0].mean() < 0.6)
        True
    """

    kind = "metropolis"
    invariant = True

    def __init__(self, *, step: float = 1.0) -> None:
        self.step_size = _checks.real(step, "step", low=torch.finfo(torch.float32).tiny)

    def is_steady(self, persistent: bool) -> bool:
        return True

    def step(
        self, hamiltonian: Hamiltonian, state: KernelState, generator: torch.Generator
    ) -> tuple[KernelState, Info]:
        moved = list(state.states)
        fields: dict[int, Tensor] = {}
        accepted = []
        parts = chain.from_iterable(hamiltonian.graph.colours)
        for part, in_turn in half_steps.walk(hamiltonian, moved, parts, generator, metropolis=True):
            l = part.layer
            if in_turn is not None:
                now, moved[l] = moved[l], in_turn
                # Half of the proposals, and all of held units, are the present value.
                same = 0.5 if (held := hamiltonian.mask(l)) is None else 0.5 + 0.5 * held.float().mean()
                accepted.append((moved[l] != now).float().mean() + same)
                continue
            field = hamiltonian.field(part, moved)
            layer, theta = hamiltonian.units(part)
            now = part.select_states(moved[l])
            proposal = layer.propose(now, hamiltonian.noise(part, len(now), generator), self.step_size)
            proposal = part.select_states(hamiltonian.apply_clamp(l, part.put_states(proposal, moved[l])))
            # Normalisers cancel in the difference.
            gain = layer.log_conditional(proposal, field, theta) - layer.log_conditional(now, field, theta)
            accept = _random.accept(gain, generator)
            accepted.append(accept.float().mean())
            by_unit = _device.where(accept.unsqueeze(-1), layer.by_unit(proposal), layer.by_unit(now))
            moved[l] = part.put_states(by_unit.flatten(-2), moved[l])
            if l in hamiltonian.graph.summed:
                fields[l] = field
        acceptance = torch.stack(accepted).mean() if accepted else 1.0
        return KernelState(moved, state.sweeps + 1, state.memory, fields), {"acceptance": acceptance}

    def run_sweeps(
        self, hamiltonian: Hamiltonian, state: KernelState, generator: torch.Generator, sweeps: int
    ) -> KernelState | None:
        moved = half_steps.sweep_alone(hamiltonian, state.states, generator, sweeps, metropolis=True)
        return None if moved is None else KernelState(moved, state.sweeps + sweeps, state.memory)

    def __repr__(self) -> str:
        return f"Metropolis(step={self.step_size:g})"
