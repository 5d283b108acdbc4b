"""Coupled Metropolis chains with one proposal for the whole state."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from harmonium import _host, _random
from harmonium.coupled.pairs import PairKernel, Place, join
from harmonium.machine import Hamiltonian


@final
class Metropolis(PairKernel):
    """Pairs of Metropolis chains that share a uniform proposal x' and one u (Taniguchi et al. 2023, §3.2).

    Each chain accepts with min(1, exp(E(x) - E(x'))). The chains meet when both accept. Discrete layers only.
    """

    def chain_layers(self, hamiltonian: Hamiltonian) -> tuple[int, ...]:
        return tuple(range(len(hamiltonian.layers)))

    def prepare(self, hamiltonian: Hamiltonian, place: Place, copies: int) -> Place:
        return _add_fields(hamiltonian, place)

    def single(
        self, hamiltonian: Hamiltonian, place: Place, generator: torch.Generator, antithetic: bool = False
    ) -> Place:
        return self._move(hamiltonian, place, generator, copies=1, antithetic=antithetic)

    def coupled(
        self, hamiltonian: Hamiltonian, both: Place, generator: torch.Generator
    ) -> tuple[Place, Tensor]:
        moved = self._move(hamiltonian, both, generator, copies=2)
        return moved, torch.zeros(len(both.states[0]) // 2, dtype=torch.int64, device=hamiltonian.device)

    def _move(
        self,
        hamiltonian: Hamiltonian,
        place: Place,
        generator: torch.Generator,
        copies: int,
        antithetic: bool = False,
    ) -> Place:
        for l, layer in enumerate(hamiltonian.layers):
            # A real unit proposes by a random walk from its own state, which two chains cannot share.
            if not layer.discrete and not hamiltonian.fixes(l):
                raise ValueError(f"coupling: expected discrete layers for Metropolis pairs, received {layer}")
        place = _add_fields(hamiltonian, place)
        rows = len(place.states[0]) // copies
        noise = [hamiltonian.noise(l, rows, generator, antithetic) for l in range(len(place.states))]
        states = [
            hamiltonian.layers[l].propose(x[:rows], u)
            for l, (x, u) in enumerate(zip(place.states, noise, strict=True))
        ]
        single = hamiltonian if copies == 1 else hamiltonian.take(slice(0, rows))
        proposal = _add_fields(single, Place(single.hold_all(states), {}))
        log_u = torch.log1p(-_random.uniform((rows,), generator, torch.float64)).repeat(copies)
        gain = _find_energy(hamiltonian, place) - _find_energy(single, proposal).repeat(copies)
        taken = log_u <= gain
        if not _host.behind(taken.device) and not bool(taken.any()):
            return place
        taken, new = taken.unsqueeze(-1), join(*[proposal] * copies)
        pairs = zip(new.states, place.states, strict=True)
        return Place(
            [_host.where(taken, y, x) for y, x in pairs],
            {l: _host.where(taken, new.fields[l], field) for l, field in place.fields.items()},
        )

    def __repr__(self) -> str:
        return "Metropolis()"


def _add_fields(hamiltonian: Hamiltonian, place: Place) -> Place:
    """Returns the place with the fields of ``graph.summed``: in a chain every coupling is in one of them."""
    fields = {
        l: place.fields[l] if l in place.fields else hamiltonian.field(l, place.states)
        for l in hamiltonian.graph.summed
    }
    return Place(place.states, fields)


def _find_energy(hamiltonian: Hamiltonian, place: Place) -> Tensor:
    weights = [hamiltonian.log_weight(l, x).double() for l, x in enumerate(place.states)]
    couplings = [(field * place.states[l]).sum(-1, dtype=torch.float64) for l, field in place.fields.items()]
    total = torch.stack(weights + couplings).sum(0)
    given = hamiltonian.graph.given
    if any(l in given and m in given for l, m in hamiltonian.graph.edges):
        total = total + hamiltonian.beta_times(hamiltonian.coupling_energy(place.states, given))
    return -total
