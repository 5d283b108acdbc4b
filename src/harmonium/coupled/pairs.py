"""Kernels for pairs of chains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium.backends import calls, choice
from harmonium.machine import Hamiltonian, States


class ChainState(NamedTuple):
    """The states of chains, with the fields that are known.

    Attributes:
        states: for each layer (rows, width_l), or (rows, 0) where they are not read again.
        fields: fields of the layers of ``graph.summed`` given the others, where they are known.
    """

    states: States
    fields: dict[int, Tensor]

    def select_rows(self, rows: Tensor | slice) -> ChainState:
        """Returns some of the rows."""
        return ChainState(
            [x[rows] for x in self.states], {l: field[rows] for l, field in self.fields.items()}
        )

    def without(self, layers: Collection[int]) -> ChainState:
        """Returns the state without the states of some layers: (rows, 0) there."""
        states = [x.new_empty(len(x), 0) if l in layers else x for l, x in enumerate(self.states)]
        return ChainState(states, self.fields)


def join_states(*places: ChainState) -> ChainState:
    """Joins the rows of all; drops fields that not all of them have."""
    shared = set.intersection(*(set(state.fields) for state in places))
    return ChainState(
        [torch.cat(parts) for parts in zip(*(state.states for state in places), strict=True)],
        {l: torch.cat([state.fields[l] for state in places]) for l in sorted(shared)},
    )


@torch.no_grad()
def count_differences(x: Tensor, y: Tensor) -> Tensor:
    """Counts the entries in which two batches of states, (rows, width), differ: (rows,)."""
    if not choice.single(x):
        return (x != y).sum(-1)
    counts = torch.empty(len(x), dtype=torch.int64, device="cpu")
    calls.over("count_differences", len(x), x, y, counts)
    return counts


class PairKernel(ABC):
    """Two chains that each follow one Markov kernel, moved jointly so that they meet and stay together."""

    @abstractmethod
    def chain_layers(self, hamiltonian: Hamiltonian) -> tuple[int, ...]:
        """Returns the layers that the next sweep depends on: chains have met once these are equal.

        Other layers of ``graph.summed`` may come to ``coupled`` without their states, (rows, 0).
        """

    @abstractmethod
    def prepare(self, hamiltonian: Hamiltonian, state: ChainState, copies: int) -> ChainState:
        """Returns the state with the fields that the next sweep needs.

        Args:
            hamiltonian: the machine; what it holds has as many rows.
            state: where the chains are.
            copies: 1 for chains alone, 2 for pairs.
        """

    @abstractmethod
    def single(
        self,
        hamiltonian: Hamiltonian,
        state: ChainState,
        generator: torch.Generator,
        antithetic: bool = False,
    ) -> ChainState:
        """Moves every chain by a sweep, alone; if ``antithetic``, halves of the rows mirror their noise."""

    @abstractmethod
    def coupled(
        self, hamiltonian: Hamiltonian, both: ChainState, generator: torch.Generator
    ) -> tuple[ChainState, Tensor]:
        """Moves both chains by a sweep, each as ``single`` moves it; equal chains stay equal.

        Args:
            hamiltonian: the machine; what it holds has as many rows.
            both: 2 · pairs rows, the x chains, then the y chains; see ``chain_layers``.
            generator: source of all noise.

        Returns:
            The new state, and the number of rejection-sampling proposals of each pair (pairs,).
        """
