"""The one loop that runs chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.chains.kernel import Kernel, Step
from harmonium.machine import BoltzmannMachine, Clamp, ClampLike, Hamiltonian, States

Observer = Callable[[int, Step], None]


@torch.no_grad()
def run(
    machine: BoltzmannMachine,
    kernel: Kernel,
    states: Sequence[Tensor] | Tensor,
    sweeps: int,
    clamp: ClampLike = None,
    *,
    generator: torch.Generator,
    observer: Observer | None = None,
) -> States:
    """Runs independent chains, one a row.

    Args:
        machine: whose law to follow.
        kernel: what moves the chains.
        states: for each layer (batch, width_l); or visible states alone, from which the hidden layers are
            drawn upwards.
        sweeps: at least 0.
        clamp: entries to hold: visible values (batch, width_0) or a mapping from layers to values, NaN where
            free.
        generator: source of all noise.
        observer: called after every sweep with its number from 1 and the ``Step``; with a tempering
            kernel the step holds all replicas.

    Returns:
        For each layer (batch, width_l), new tensors.

    Raises:
        ValueError: states or clamp of the wrong shape or support.
    """
    _checks.instance(kernel, "kernel", Kernel, "a kernel")
    _checks.positive_int(sweeps, "sweeps", minimum=0)
    _checks.generator(generator, machine.device)
    hamiltonian = machine.hamiltonian()
    states = begin(machine, hamiltonian, states, "states", generator)
    rows = len(states[0])
    held = Clamp(hamiltonian, clamp, rows)
    current = kernel.expand(hamiltonian, held.apply_all(states), generator)
    if clamp is not None and len(current[0]) != rows:
        copies = len(current[0]) // rows
        values = {0: clamp} if isinstance(clamp, Tensor) else clamp
        held = Clamp(hamiltonian, {l: x.repeat(copies, 1) for l, x in values.items()}, rows * copies)
    current = advance(hamiltonian, kernel, current, sweeps, held, generator, observer)
    return [x.clone() if x is y else x for x, y in zip(kernel.target(current), states, strict=True)]


def advance(
    hamiltonian: Hamiltonian,
    kernel: Kernel,
    states: States,
    sweeps: int,
    clamp: Clamp,
    generator: torch.Generator,
    observer: Observer | None = None,
) -> States:
    """``run`` on states that the kernel has expanded; every chain in harmonium moves through this loop."""
    for number in range(1, sweeps + 1):
        step = kernel.at(number - 1, sweeps).sweep(hamiltonian, states, clamp, generator)
        states = step.states
        if observer is not None:
            observer(number, step)
    return states


def begin(
    machine: BoltzmannMachine,
    hamiltonian: Hamiltonian,
    states: Sequence[Tensor] | Tensor,
    name: str,
    generator: torch.Generator,
) -> Sequence[Tensor]:
    """Checked states of every layer; from visible states alone the hidden layers are drawn upwards.

    Args:
        machine: the machine, and
        hamiltonian: its own.
        states: as in ``run``.
        name: what to call visible states in messages.
        generator: source of noise.
    """
    if isinstance(states, Tensor):
        machine.layers[0].check_rows(states, name)
        if states.dtype != machine.dtype:
            raise TypeError(f"{name}: expected the machine's {machine.dtype}, received {states.dtype}")
        states = complete(hamiltonian, states, generator)
    machine.check_states(states)
    return states


def complete(hamiltonian: Hamiltonian, v: Tensor, generator: torch.Generator) -> States:
    """Hidden layers drawn upwards from visible states, each given the layer below alone.

    With one hidden layer that is an exact draw from p(h | v); deeper, it is a start.

    Args:
        hamiltonian: the machine.
        v: visible states, (batch, width_0).
        generator: source of noise.
    """
    states = [v]
    for l in range(1, len(hamiltonian.layers)):
        states.append(hamiltonian.sample(l, hamiltonian.lowest(l + 1).field(l, states), generator))
    return states
