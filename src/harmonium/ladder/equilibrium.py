"""Equilibrium samples of a machine from those of another one nearby, by exchanges and sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harmonium import _random
from harmonium.chains import Gibbs, KernelState, convergence, run_kernel
from harmonium.ladder.rungs import complete, fields_of
from harmonium.machine import Hamiltonian, States

LEAST = 0.1
"""The acceptance of exchanges below which a machine counts as out of reach."""
_TIMES = 20  # autocorrelation times of a run
_FIRST, _MOST = 40, 20_480  # rounds of the first stage and of the longest
_WATCHED = 200  # chains whose autocorrelation is measured


def successive(count: int, total: int, generator: torch.Generator) -> Tensor:
    """Draws so many distinct rows of a total: successive ones, cyclically, from one that is drawn, (count,).

    Which rows meet is independent of what they hold, as with a permutation, which takes longer than all else.
    """
    start = _random.integers(total, (1,), generator)
    return (start + torch.arange(count, device=start.device)) % total


class Population(NamedTuple):
    """States of a machine, those of the layers that are summed out left empty.

    Attributes:
        states: for each layer (rows, width_l), or (0, 0) for a layer that is summed out.
        energies: their free energies, (rows,) float64.
    """

    states: States
    energies: Tensor

    @classmethod
    def of(cls, law: Hamiltonian, states: Sequence[Tensor]) -> Population:
        """Returns states, for each layer (rows, width_l), with their free energies."""
        empty = states[0].new_empty(0, 0)
        kept = [empty if l in law.graph.summed else x for l, x in enumerate(states)]
        return cls(kept, law.free_energy(kept, law.graph.summed, fields_of(law, kept)))

    def take(self, rows: Tensor | slice) -> Population:
        """Returns some of the states."""
        return Population([x[rows] if x.numel() else x for x in self.states], self.energies[rows])

    def put(self, rows: Tensor, states: Sequence[Tensor], energies: Tensor) -> Population:
        """Returns the population with the states of some rows replaced, for each layer (rows, width_l)."""
        pairs = zip(self.states, states, strict=True)
        new = [x.index_copy(0, rows, y) if x.numel() else x for x, y in pairs]
        return Population(new, self.energies.index_copy(0, rows, energies))

    def whole(self, law: Hamiltonian, generator: torch.Generator) -> States:
        """Returns the states with every layer, (rows, width_l), those summed out drawn given the others."""
        return complete(law, self.states, fields_of(law, self.states), generator)


class Exchange(NamedTuple):
    """An offer of chains of a law and members of the population of a rung to change places.

    Attributes:
        rows: of the members in the population, (chains,).
        members: the members.
        gain: log of the ratio of probabilities after and before, (chains,).
        energies: free energies under the law, of the chains and of the members, each (chains,).
        fields: under the law, of the chains and of the members, by layer (chains, width_l).
        under_rung: free energies of the chains under the rung, (chains,).
    """

    rows: Tensor
    members: Population
    gain: Tensor
    energies: tuple[Tensor, Tensor]
    fields: tuple[dict[int, Tensor], dict[int, Tensor]]
    under_rung: Tensor

    @classmethod
    def offer(
        cls,
        law: Hamiltonian,
        rung: Hamiltonian,
        chains: Sequence[Tensor],
        reservoir: Population,
        generator: torch.Generator,
    ) -> Exchange:
        """Draws distinct members for all chains, (chains, width_l) for each layer, and judges the change."""
        summed = law.graph.summed
        rows = successive(len(chains[0]), len(reservoir.energies), generator)
        members = reservoir.take(rows)
        fields = fields_of(law, chains), fields_of(law, members.states)
        x = law.free_energy(chains, summed, fields[0])
        y = law.free_energy(members.states, summed, fields[1])
        under = rung.free_energy(chains, summed, fields_of(rung, chains))
        return cls(rows, members, (x - under) - (y - members.energies), (x, y), fields, under)

    def accept(
        self, law: Hamiltonian, chains: Sequence[Tensor], reservoir: Population, generator: torch.Generator
    ) -> tuple[States, Population]:
        """Exchanges by the law of Metropolis; summed layers of the chains are drawn anew.

        Returns:
            The chains, for each layer (chains, width_l), and the reservoir.
        """
        swap = _random.accept(self.gain, generator)
        chosen, members = swap.unsqueeze(-1), self.members
        moved, given = list(chains), list(members.states)
        for l in law.graph.kept:
            moved[l] = torch.where(chosen, members.states[l], chains[l])
            given[l] = torch.where(chosen, chains[l], members.states[l])
        energies = torch.where(swap, self.under_rung, members.energies)
        fields = {l: torch.where(chosen, self.fields[1][l], own) for l, own in self.fields[0].items()}
        return complete(law, moved, fields, generator), reservoir.put(self.rows, given, energies)


class Frozen(NamedTuple):
    """The outcome of an attempt to freeze a machine.

    Attributes:
        cause: why it failed; empty if it did not.
        samples: equilibrium samples of the machine.
        chains: where its chains are, for each layer (chains, width_l).
        rounds: of exchanges and sweeps, of all stages.
        time: autocorrelation time in rounds.
    """

    cause: str
    samples: Population
    chains: States
    rounds: int
    time: float


def equilibrate(
    law: Hamiltonian,
    rung: Hamiltonian,
    chains: States,
    samples: Population,
    sweeps: int,
    generator: torch.Generator,
) -> Frozen:
    """Brings chains to equilibrium by exchanges with samples of a machine nearby, and collects samples.

    A stage begins at the samples as they are, as members that chains have left there lag behind. It is long
    enough at 20 autocorrelation times of F_law - F_rung along the chains; otherwise another one, as long as
    all before, goes on. As many samples are then taken as there were, every two times.

    Args:
        law: the machine.
        rung: the machine that the samples follow.
        chains: for each layer (chains, width_l).
        samples: of the rung, a multiple of the chains.
        sweeps: Gibbs sweeps of a round.
        generator: source of noise.

    Returns:
        The samples, or the cause of a failure: an acceptance below 0.1 over the second half of a stage, or
        no end after 20,480 rounds. See ``Frozen`` for the shapes.
    """
    reservoir, rounds = samples, 0

    def advance(chains: States, reservoir: Population) -> tuple[States, Population, Exchange]:
        offered = Exchange.offer(law, rung, chains, reservoir, generator)
        chains, reservoir = offered.accept(law, chains, reservoir, generator)
        moved = run_kernel(law, Gibbs(), KernelState(chains, 0), sweeps, generator)
        return list(moved.states), reservoir, offered

    while True:
        stage, reservoir = max(_FIRST, rounds), samples
        gaps, accepted = [], []
        for _ in range(stage):
            chains, reservoir, offered = advance(chains, reservoir)
            gaps.append((offered.energies[0] - offered.under_rung)[:_WATCHED])
            accepted.append(offered.gain.clamp(max=0).exp().mean())
        rounds += stage
        rate = float(torch.stack(accepted[stage // 2 :]).mean())
        if not rate >= LEAST:
            return Frozen(f"acceptance {rate:.3g} in a run", samples, chains, rounds, float(stage))
        draws = torch.stack(gaps, 1)
        size = convergence(draws).ess_bulk
        time = max(1.0, draws.numel() / size) if isfinite(size) and size > 0 else 1.0
        if stage >= _TIMES * time:
            break
        if stage >= _MOST:
            cause = f"an autocorrelation time of {time:.3g} rounds in a run of {rounds}"
            return Frozen(cause, samples, chains, rounds, time)
    found: list[States] = []
    for _ in range(len(samples.energies) // len(chains[0])):
        reservoir = samples
        for _ in range(ceil(2 * time)):
            chains, reservoir, _ = advance(chains, reservoir)
        found.append(chains)
    rounds += len(found) * ceil(2 * time)
    collected: Any = [torch.cat(each) for each in zip(*found, strict=True)]
    return Frozen("", Population.of(law, collected), chains, rounds, time)
