"""Coupled Metropolis chains with one proposal for the whole state."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from harmonium import _host, _random
from harmonium.couplings.pairs import PairKernel, Place
from harmonium.machine import Hamiltonian


@final
class Metropolis(PairKernel):
    """Pairs of Metropolis chains that share a uniform proposal x' and one u (Taniguchi et al. 2023, §3.2).

    Each chain accepts with min(1, exp(E(x) - E(x'))). The chains meet when both accept. Discrete layers only.
    """

    def chain_layers(self, hamiltonian: Hamiltonian) -> tuple[int, ...]:
        return tuple(range(len(hamiltonian.layers)))

    def prepare(self, hamiltonian: Hamiltonian, place: Place, copies: int) -> Place:
        return _with_fields(hamiltonian, place)

    def single(
        self, hamiltonian: Hamiltonian, place: Place, generator: torch.Generator, antithetic: bool = False
    ) -> Place:
        return self._move(hamiltonian, place, generator, copies=1, antithetic=antithetic)

    def coupled(
        self, hamiltonian: Hamiltonian, both: Place, generator: torch.Generator
    ) -> tuple[Place, Tensor]:
        moved = self._move(hamiltonian, both, generator, copies=2)
        return moved, torch.zeros(len(both.states[0]) // 2, dtype=torch.int64, device=hamiltonian.device)

    @classmethod
    def _move(
        cls,
        hamiltonian: Hamiltonian,
        place: Place,
        generator: torch.Generator,
        copies: int,
        antithetic: bool = False,
    ) -> Place:
        cls._check(hamiltonian)
        place = _with_fields(hamiltonian, place)
        rows = len(place.states[0]) // copies
        noise = [hamiltonian.noise(l, rows, generator, antithetic) for l in range(len(place.states))]
        states = [
            hamiltonian.layers[l].propose(x[:rows], u)
            for l, (x, u) in enumerate(zip(place.states, noise, strict=True))
        ]
        single = hamiltonian if copies == 1 else hamiltonian.take(slice(0, rows))
        proposal = _with_fields(single, Place(single.hold_all(states), {}))
        log_u = torch.log1p(-_random.uniform((rows,), generator, torch.float64)).repeat(copies)
        gain = _energy(hamiltonian, place) - _energy(single, proposal).repeat(copies)
        if _host.behind(gain.device):
            taken = (log_u <= gain).unsqueeze(-1)
            return Place(
                [
                    torch.where(taken, y.repeat(copies, 1), x)
                    for x, y in zip(place.states, proposal.states, strict=True)
                ],
                {
                    l: torch.where(taken, proposal.fields[l].repeat(copies, 1), field)
                    for l, field in place.fields.items()
                },
            )
        accepted = torch.nonzero(log_u <= gain).squeeze(-1)
        if len(accepted) == 0:
            return place
        new = proposal.take(accepted % rows)
        return Place(
            [x.index_copy(0, accepted, y) for x, y in zip(place.states, new.states, strict=True)],
            {l: field.index_copy(0, accepted, new.fields[l]) for l, field in place.fields.items()},
        )

    @staticmethod
    def _check(hamiltonian: Hamiltonian) -> None:
        for l, layer in enumerate(hamiltonian.layers):
            # A real unit proposes by a random walk from its own state, which two chains cannot share.
            if not layer.discrete and not hamiltonian.fixes(l):
                raise ValueError(f"coupling: expected discrete layers for Metropolis pairs, received {layer}")

    def __repr__(self) -> str:
        return "Metropolis()"


def _with_fields(hamiltonian: Hamiltonian, place: Place) -> Place:
    """The place with the fields of ``graph.summed``: in a chain every coupling is in one of them."""
    fields = {
        l: place.fields[l] if l in place.fields else hamiltonian.field(l, place.states)
        for l in hamiltonian.graph.summed
    }
    return Place(place.states, fields)


def _energy(hamiltonian: Hamiltonian, place: Place) -> Tensor:
    weights = [hamiltonian.log_weight(l, x).double() for l, x in enumerate(place.states)]
    couplings = [(field * place.states[l]).sum(-1, dtype=torch.float64) for l, field in place.fields.items()]
    total = torch.stack(weights + couplings).sum(0)
    given = hamiltonian.graph.given
    if any(l in given and m in given for l, m in hamiltonian.graph.edges):
        total = total + hamiltonian.beta_times(hamiltonian.coupling_energy(place.states, given))
    return -total
