"""Starts of a reverse annealing run where no data are given."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harmonium import _random
from harmonium.chains import Tempering, climb, run_kernel
from harmonium.machine import Hamiltonian, States

_REPLICAS = 10
_CLIMB = 30  # sweeps at most; units of two values seldom take ten


def draw_likely_modes(
    law: Hamiltonian, found: Sequence[States], chains: int, sweeps: int, generator: torch.Generator
) -> States:
    """Draws local modes of a machine by their weight, from all that several kinds of chains lead to.

    Candidates are the states in ``found``, all replicas of tempered chains and noise, about ``chains`` each.
    Every candidate climbs to a local mode. A distinct mode is drawn with probability proportional to exp(-F),
    so that light modes, which any chain may be caught in, count for little.

    Args:
        law: the machine.
        found: states of other chains, each for every layer (batch, width_l).
        chains: how many modes to draw.
        sweeps: of the tempered chains.
        generator: source of noise.

    Returns:
        For each layer (chains, width_l).
    """
    noise = [law.pure_noise(l, chains, generator) for l in range(len(law.layers))]
    tempering = Tempering(_REPLICAS)
    few = [x[: -(-chains // _REPLICAS)] for x in noise]
    begun = tempering.init(law, few, generator, sweeps)
    tempered = run_kernel(law, tempering, begun, sweeps, generator).memory.states
    modes = [torch.cat(layer) for layer in zip(*found, tempered, noise, strict=True)]
    climb(law, modes, law.graph.backwards, _CLIMB)
    states = torch.cat([modes[l] for l in law.graph.kept], -1)
    _, which, copies = torch.unique(states, dim=0, return_inverse=True, return_counts=True)
    weight = -law.free_energy(modes, law.graph.summed) - copies[which].log()
    drawn = _random.weighted(weight.softmax(0), chains, generator)
    return [x[drawn] for x in modes]


def count_heavier(backward: Tensor, forward: Tensor) -> int:
    """Counts reverse runs whose weights are more than e times the largest of the forward run.

    By Crooks' relation a reverse run from the machine's own law has each weight as often as a forward run,
    times the weight over its mean. Their share therefore estimates the part of Z that the forward run missed.

    Args:
        backward: ln of the weights of the reverse run's paths, taken forwards, (chains,).
        forward: ln of the weights of the forward run, (chains,).
    """
    return int((backward > forward.max() + 1).sum())
