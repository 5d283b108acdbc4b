"""Jumps between given visible states: a Metropolis move that crosses between modes."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from harmonium import _host, _random
from harmonium.machine import Hamiltonian


@final
class Jumps:
    """Proposals drawn uniformly from a list of visible states, such as the distinct rows of a small data set.

    A chain whose visible state is on the list moves to the proposed one with probability min(1, exp(F(v) -
    F(v'))); from any other state the reverse move could not be proposed, and it stays. Between Gibbs sweeps
    this leaves the machine's law invariant. Where a machine's modes are data, as on bars and stripes, chains
    then mix at once and pairs, which share the proposal, meet at once; on large images chains are never
    exactly at a datum and nothing happens. For machines with one visible and one hidden
    layer.

    Args:
        states: (rows, visible_width); repeated rows count once.
    """

    def __init__(self, states: Tensor) -> None:
        self.states = torch.unique(states, dim=0)
        # Rows are looked up by a projection and then compared, so a collision costs nothing but a refusal.
        generator = _random.as_generator(0)
        self._direction = _random.normal((self.states.shape[1],), generator, torch.float64).to(states.device)
        self._keys, order = (self.states.double() @ self._direction).sort()
        self.states = self.states[order]

    def move(self, hamiltonian: Hamiltonian, v: Tensor, copies: int, generator: torch.Generator) -> Tensor:
        """Offers every row of v one jump; ``copies`` equal parts of the rows share proposals and decisions.

        Args:
            hamiltonian: the machine.
            v: visible states, (rows, visible_width).
            copies: 1 for chains alone, 2 for pairs.
            generator: source of noise.
        """
        if self.states.device != v.device:
            self._to(v.device)
        states = self.states.to(v)
        free_energy = hamiltonian.free_energy(hamiltonian.split(states), (1,))
        here = torch.searchsorted(self._keys, v.double() @ self._direction).clamp_(max=len(states) - 1)
        listed = (states[here] == v).all(-1)
        there = _random.integers(len(states), (len(v) // copies,), generator).repeat(copies)
        gain = (free_energy[here] - free_energy[there]).view(copies, -1)
        u = _random.uniform((gain.shape[1],), generator, torch.float64)
        moves = (torch.log1p(-u) <= gain).flatten() & listed
        return torch.where(moves.unsqueeze(-1), states[there], v)

    def _to(self, device: torch.device) -> None:
        """Once for all sweeps."""
        self.states, self._keys, self._direction = (
            _host.sent(x, device) for x in (self.states, self._keys, self._direction)
        )

    def __repr__(self) -> str:
        return f"Jumps({len(self.states)} states)"
