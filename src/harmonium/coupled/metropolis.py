"""Coupled Metropolis chains with one proposal for the whole state."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from harmonium import _device, _random
from harmonium.coupled.pairs import ChainState, PairKernel, join_states
from harmonium.machine import Hamiltonian


@final
class Metropolis(PairKernel):
    """Pairs of Metropolis chains that share a uniform proposal x' and one u (Taniguchi et al. 2023, §3.2).

    Each chain accepts with min(1, exp(E(x) - E(x'))). The chains meet when both accept. Discrete layers only.
    """

    def chain_layers(self, hamiltonian: Hamiltonian) -> tuple[int, ...]:
        return tuple(range(len(hamiltonian.layers)))

    def prepare(self, hamiltonian: Hamiltonian, state: ChainState, copies: int) -> ChainState:
        return _add_fields(hamiltonian, state)

    def single(
        self,
        hamiltonian: Hamiltonian,
        state: ChainState,
        generator: torch.Generator,
        antithetic: bool = False,
    ) -> ChainState:
        return self._move(hamiltonian, state, generator, copies=1, antithetic=antithetic)

    def coupled(
        self, hamiltonian: Hamiltonian, both: ChainState, generator: torch.Generator
    ) -> tuple[ChainState, Tensor]:
        moved = self._move(hamiltonian, both, generator, copies=2)
        return moved, torch.zeros(len(both.states[0]) // 2, dtype=torch.int64, device=hamiltonian.device)

    def _move(
        self,
        hamiltonian: Hamiltonian,
        state: ChainState,
        generator: torch.Generator,
        copies: int,
        antithetic: bool = False,
    ) -> ChainState:
        for l, layer in enumerate(hamiltonian.layers):
            # A real unit proposes by a random walk from its own state, which two chains cannot share.
            if not layer.discrete and not hamiltonian.is_clamped(l):
                raise ValueError(
                    f"pair_kernel: expected discrete layers for Metropolis pairs, received {layer}"
                )
        state = _add_fields(hamiltonian, state)
        rows = len(state.states[0]) // copies
        noise = [hamiltonian.noise(l, rows, generator, antithetic) for l in range(len(state.states))]
        states = [
            hamiltonian.layers[l].propose(x[:rows], u)
            for l, (x, u) in enumerate(zip(state.states, noise, strict=True))
        ]
        single = hamiltonian if copies == 1 else hamiltonian.select_rows(slice(0, rows))
        proposal = _add_fields(single, ChainState(single.clamp_states(states), {}))
        log_u = torch.log1p(-_random.uniform((rows,), generator, torch.float64)).repeat(copies)
        gain = _find_energy(hamiltonian, state) - _find_energy(single, proposal).repeat(copies)
        taken = log_u <= gain
        if not _device.is_async(taken.device) and not bool(taken.any()):
            return state
        taken, new = taken.unsqueeze(-1), join_states(*[proposal] * copies)
        pairs = zip(new.states, state.states, strict=True)
        return ChainState(
            [_device.where(taken, y, x) for y, x in pairs],
            {l: _device.where(taken, new.fields[l], field) for l, field in state.fields.items()},
        )

    def __repr__(self) -> str:
        return "Metropolis()"


def _add_fields(hamiltonian: Hamiltonian, state: ChainState) -> ChainState:
    """Returns the state with the fields of ``graph.summed``: in a chain every coupling is in one of them."""
    fields = {
        l: state.fields[l] if l in state.fields else hamiltonian.field(l, state.states)
        for l in hamiltonian.graph.summed
    }
    return ChainState(state.states, fields)


def _find_energy(hamiltonian: Hamiltonian, state: ChainState) -> Tensor:
    weights = [hamiltonian.log_weight(l, x).double() for l, x in enumerate(state.states)]
    couplings = [(field * state.states[l]).sum(-1, dtype=torch.float64) for l, field in state.fields.items()]
    total = torch.stack(weights + couplings).sum(0)
    kept = hamiltonian.graph.kept
    if any(l in kept and m in kept for l, m in hamiltonian.graph.edges):
        total = total + hamiltonian.beta_times(hamiltonian.coupling_energy(state.states, kept))
    return -total
