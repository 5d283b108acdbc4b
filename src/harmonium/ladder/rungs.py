"""Rungs of a ladder: machines as lists of natural parameters, their mixtures, and states that follow them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.chains import Gibbs, KernelState
from harmonium.machine import BoltzmannMachine, Hamiltonian, States

Rung = list[Tensor]
"""The natural parameters of a machine: those of every layer, (width_l,), then J of every edge."""

_CLIMB_SWEEPS = 3  # at every rung, of states that begin at rung 0


def as_rung(machine: BoltzmannMachine | Hamiltonian, name: str = "machine") -> Rung:
    """Returns the natural parameters of a machine, each (width_l,) or (width_l, width_m), detached.

    Args:
        machine: a machine, or its law at one inverse temperature.
        name: what to call it in messages.

    Raises:
        TypeError: no machine.
        ValueError: a law whose parameters differ by row.
    """
    law = machine.hamiltonian() if isinstance(machine, BoltzmannMachine) else machine
    _checks.instance(law, name, Hamiltonian, "a BoltzmannMachine")
    if not isinstance(law.beta, float) or any(p.dim() != 1 for theta in law.thetas for p in theta):
        raise ValueError(f"{name}: expected one law for all rows, received one that differs by row")
    J = law.J if law.beta == 1.0 else [law.beta * each for each in law.J]
    return [x.detach() for x in (*chain.from_iterable(law.thetas), *J)]


def law_of(like: Hamiltonian, rung: Sequence[Tensor]) -> Hamiltonian:
    """Returns the law of a rung, with the layers, the graph and the held entries of another law.

    Args:
        like: a law of the same graph.
        rung: natural parameters, (width_l,) and (width_l, width_m).
    """
    rest = iter(rung)
    thetas = tuple(tuple(next(rest) for _ in theta) for theta in like.thetas)
    return Hamiltonian(like.layers, like.graph, thetas, tuple(rest), 1.0, like.held)  # type: ignore[arg-type]


def laws_of(law: Hamiltonian, rungs: Sequence[Sequence[Tensor]]) -> list[Hamiltonian]:
    """Returns the laws of some rungs, then the law that they lead to."""
    return [*(law_of(law, rung) for rung in rungs), law]


def mix(low: Sequence[Tensor], high: Sequence[Tensor], t: float) -> Rung:
    """Returns (1 - t) of one rung and t of another, in natural parameters, shaped as they are."""
    return [torch.lerp(x, y, t) for x, y in zip(low, high, strict=True)]


def require_bottom(like: Hamiltonian | None, rungs: Sequence[Sequence[Tensor]]) -> None:
    """Refuses rungs that do not begin with independent units, or that are not of one graph.

    Args:
        like: the law that they lead to, where it is known.
        rungs: natural parameters, (width_l,) and (width_l, width_m).

    Raises:
        ValueError: naming the rung.
    """
    if not rungs:
        raise ValueError("rungs: expected at least one machine, without couplings, received none")
    expected = [tuple(x.shape) for x in (rungs[0] if like is None else as_rung(like))]
    for r, rung in enumerate(rungs):
        received = [tuple(x.shape) for x in rung]
        if received != expected:
            raise ValueError(f"rungs[{r}]: expected parameters of shapes {expected}, received {received}")
    couplings = [x for x in rungs[0] if x.dim() == 2]
    if any(bool(J.any()) for J in couplings):
        raise ValueError(
            "rungs[0]: expected a machine whose couplings are all 0, whose units are independent, received "
            f"couplings up to {max(float(J.abs().max()) for J in couplings):.3g}"
        )


def fields_of(
    law: Hamiltonian, states: Sequence[Tensor], known: Mapping[int, Tensor] | None = None
) -> dict[int, Tensor]:
    """Returns the fields of the layers that are summed out, by layer (rows, width_l).

    Args:
        law: the machine.
        states: for each layer (rows, width_l).
        known: fields that have been made.
    """
    known = known or {}
    return {l: known[l] if l in known else law.field(l, states) for l in law.graph.summed}


def complete(
    law: Hamiltonian, states: Sequence[Tensor], fields: Mapping[int, Tensor], generator: torch.Generator
) -> States:
    """Returns the states with the layers that are summed out drawn anew from their fields.

    Args:
        law: the machine.
        states: for each layer (rows, width_l); those of summed layers are not read.
        fields: of the summed layers, by layer (rows, width_l).
        generator: source of noise.
    """
    drawn = list(states)
    for l in law.graph.summed:
        if not law.is_clamped(l):
            drawn[l] = law.apply_clamp(l, law.sample(l, fields[l], generator))
    return drawn


def draw_bottom(law: Hamiltonian, chains: int, generator: torch.Generator) -> States:
    """Draws states of independent units, for each layer (chains, width_l)."""
    zeros = [law.thetas[l][0].new_zeros(chains, layer.width) for l, layer in enumerate(law.layers)]
    return law.clamp_states([law.sample(l, zero, generator) for l, zero in enumerate(zeros)])


def climb(laws: Sequence[Hamiltonian], chains: int, generator: torch.Generator) -> list[States]:
    """Draws states at rung 0 and moves copies up by some sweeps at every rung.

    Args:
        laws: of the rungs from the bottom.
        chains: states of every rung.
        generator: source of noise.

    Returns:
        For every rung and each layer (chains, width_l); equilibrium is exact at rung 0 alone.
    """
    states = [draw_bottom(laws[0], chains, generator)]
    for law in laws[1:]:
        states.append(climb_from(law, states[-1], generator))
    return states


def climb_from(law: Hamiltonian, states: States, generator: torch.Generator) -> States:
    """Returns states of another rung, for each layer (chains, width_l), after some sweeps of a law."""
    moved = KernelState(complete(law, states, fields_of(law, states), generator), 0)
    for _ in range(_CLIMB_SWEEPS):
        moved, _ = Gibbs().step(law, moved, generator)
    return list(moved.states)


def log_partition_of_bottom(law: Hamiltonian) -> float:
    """Returns ln Z of independent units, with the held ones as they are."""
    zeros = [law.thetas[l][0].new_zeros(1, layer.width) for l, layer in enumerate(law.layers)]
    return sum(float(law.log_partition(l, zero)) for l, zero in enumerate(zeros))
