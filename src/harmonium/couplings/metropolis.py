"""Coupled Metropolis chains with one proposal for the whole state."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from harmonium import _random
from harmonium.couplings.pairs import PairKernel, Place
from harmonium.machine import Clamp, Hamiltonian


@final
class Metropolis(PairKernel):
    """Pairs of Metropolis chains that share a uniform proposal x' and one u (Taniguchi et al. 2023, §3.2).

    Each chain accepts with min(1, exp(E(x) - E(x'))). The chains meet when both accept. Discrete layers only.
    """

    def chain_layers(self, hamiltonian: Hamiltonian) -> tuple[int, ...]:
        return tuple(range(len(hamiltonian.layers)))

    def prepare(self, hamiltonian: Hamiltonian, place: Place, clamp: Clamp, copies: int) -> Place:
        return place

    def single(
        self,
        hamiltonian: Hamiltonian,
        place: Place,
        clamp: Clamp,
        generator: torch.Generator,
        antithetic: bool = False,
    ) -> Place:
        return self._move(hamiltonian, place, clamp, generator, copies=1, antithetic=antithetic)

    def coupled(
        self, hamiltonian: Hamiltonian, both: Place, clamp: Clamp, generator: torch.Generator
    ) -> tuple[Place, Tensor]:
        moved = self._move(hamiltonian, both, clamp, generator, copies=2)
        return moved, torch.zeros(len(both.states[0]) // 2, dtype=torch.int64, device=hamiltonian.device)

    @classmethod
    def _move(
        cls,
        hamiltonian: Hamiltonian,
        place: Place,
        clamp: Clamp,
        generator: torch.Generator,
        copies: int,
        antithetic: bool = False,
    ) -> Place:
        cls._check(hamiltonian, clamp)
        rows = len(place.states[0]) // copies
        noise = [hamiltonian.noise(l, rows, generator, antithetic) for l in range(len(place.states))]
        proposal = [
            hamiltonian.layers[l].propose(x[:rows], u).repeat(copies, 1)
            for l, (x, u) in enumerate(zip(place.states, noise, strict=True))
        ]
        proposal = clamp.apply_all(proposal)
        log_u = torch.log1p(-_random.uniform((rows,), generator, torch.float64)).repeat(copies)
        move = (log_u <= hamiltonian.energy(place.states) - hamiltonian.energy(proposal)).unsqueeze(-1)
        moved = [torch.where(move, new, old) for new, old in zip(proposal, place.states, strict=True)]
        return Place(moved, {})

    @staticmethod
    def _check(hamiltonian: Hamiltonian, clamp: Clamp) -> None:
        for l, layer in enumerate(hamiltonian.layers):
            # A real unit proposes by a random walk from its own state, which two chains cannot share.
            if not layer.discrete and not clamp.fixes(l):
                raise ValueError(f"coupling: expected discrete layers for Metropolis pairs, received {layer}")

    def __repr__(self) -> str:
        return "Metropolis()"
