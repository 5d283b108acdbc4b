"""Local modes: states that no change of one parity of layers makes more probable."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._products import Changes
from harmonium.machine import BoltzmannMachine, Clamp, ClampLike, Hamiltonian, Parity, States

_PARITIES: tuple[Parity, Parity] = ("even", "odd")
_COMPACT = 4  # chains that have arrived leave once they are one in so many: copies cost more than they do
_PATIENCE = 128  # half-steps before cycles are looked for; a search seldom takes as many


@torch.no_grad()
def local_search(
    machine: BoltzmannMachine,
    states: Sequence[Tensor],
    clamp: ClampLike = None,
    *,
    generator: torch.Generator,
) -> tuple[States, Tensor]:
    """Climbs from every state to a local mode (Taniguchi et al. 2023, Algs. 1 and 5; FORMULAS §4).

    The layers of one parity are set to the mode of their conditional, then those of the other, until nothing
    changes. A fair coin for each chain says which parity is first. Chains that have arrived leave the batch.
    No half-step lowers the probability and ties go to the upper value, so that a chain cannot come back to a
    state it has left but through rounding; that is noticed, and the chain stops there, at a local mode but
    for the rounding.

    Units of one parity must be discrete (or held), so that the search ends; the other parity may be real.

    Args:
        machine: the machine.
        states: where to start, for each layer (batch, width_l).
        clamp: entries to hold, see ``chains.run``.
        generator: source of the coins.

    Returns:
        The modes, for each layer (batch, width_l), and the number of sweeps that each chain took, (batch,),
        with the half-step that found nothing to change.

    Raises:
        ValueError: states or clamp of the wrong shape or support, or free real units in both parities.
    """
    _checks.generator(generator, machine.device)
    machine.check_states(states)
    hamiltonian = machine.hamiltonian()
    return search(hamiltonian, states, Clamp(hamiltonian, clamp, len(states[0])), generator)


def search(
    hamiltonian: Hamiltonian, states: Sequence[Tensor], clamp: Clamp, generator: torch.Generator
) -> tuple[States, Tensor]:
    """``local_search`` on a machine in natural parameters, with one β for all chains."""
    free = [tuple(l for l in hamiltonian.parity(parity) if not clamp.fixes(l)) for parity in _PARITIES]
    discrete = [all(hamiltonian.layers[l].discrete for l in layers) for layers in free]
    if not any(discrete):
        raise ValueError(
            "machine: expected discrete (or held) units in one parity, received real ones in both"
        )
    modes = [x.clone() for x in clamp.apply_all(states)]
    rows = len(modes[0])
    halves = torch.zeros(rows, dtype=torch.int64, device=hamiltonian.device)
    # Half-steps alternate for all chains alike, even layers first; the coin says who sits out the first of
    # them.
    late = (_random.uniform((rows,), generator) < 0.5).unsqueeze(-1)
    active = torch.arange(rows, device=hamiltonian.device)
    ended = torch.zeros(rows, dtype=torch.bool, device=hamiltonian.device)
    current, held = list(modes), clamp
    onward = _onward(hamiltonian)
    fields: dict[int, Tensor] = {}
    landmark: dict[int, Tensor] = {}
    for half in count():
        parity = half % 2
        moved, returned = torch.zeros_like(ended), torch.ones_like(ended)
        for l in free[parity]:
            if l not in fields:
                fields[l] = hamiltonian.field(l, current)
            x = held.apply(l, hamiltonian.layers[l].mode(fields[l], hamiltonian.thetas[l]))
            if half == 0:
                x = torch.where(late, current[l], x)
            changes = Changes(x - current[l])
            current[l] = x
            moved[changes.rows] = True
            if l in landmark:
                returned &= (x == landmark[l]).all(-1)
            # Few units change from the third half-step on: that is most of the speed of a search.
            for neighbour, J in onward[l]:
                if neighbour in fields:
                    fields[neighbour] += hamiltonian.beta_times(changes.product(J))
        if half == 0 or not discrete[parity]:
            continue
        if half == 1:
            moved |= late.squeeze(-1)  # their other parity is not a mode yet
        if free[parity] and landmark.keys() >= set(free[parity]):
            moved &= ~returned
        if half >= _PATIENCE and (half - parity).bit_count() == 1:
            landmark = {l: current[l] for l in free[parity]}
        arrived = (moved | ended).logical_not_()
        if not bool(arrived.any()):
            continue
        halves[active[arrived]] = half + 1
        ended |= arrived
        if int(ended.sum()) * _COMPACT >= len(ended):
            _put(modes, active[ended], [x[ended] for x in current])
            rest = ~ended
            active, ended = active[rest], ended[rest]
            if len(active) == 0:
                break
            current, held = [x[rest] for x in current], clamp.take(active)
            fields = {l: field[rest] for l, field in fields.items()}
            landmark = {l: x[rest] for l, x in landmark.items()}
    halves -= late.squeeze(-1).to(halves.dtype)
    return modes, halves.add(1).div(2, rounding_mode="floor")


def _onward(hamiltonian: Hamiltonian) -> list[list[tuple[int, Tensor]]]:
    """For each layer its neighbours and J from it to them, (width, width_neighbour), contiguous."""
    onward: list[list[tuple[int, Tensor]]] = [[] for _ in hamiltonian.layers]
    for l, (J, transposed) in enumerate(zip(hamiltonian.couplings, hamiltonian.transposed, strict=True)):
        onward[l].append((l + 1, J.contiguous()))
        onward[l + 1].append((l, transposed))
    return onward


def _put(target: States, rows: Tensor, values: Sequence[Tensor]) -> None:
    for x, value in zip(target, values, strict=True):
        x.index_copy_(0, rows, value)
