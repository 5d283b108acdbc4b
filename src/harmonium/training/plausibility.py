"""Signs, cheap to read, that a machine has run away from its data.

No state is more probable than 1. With -F the log of what a state weighs, ln p(v) <= F(v') - F(v) for every v'
of discrete units: a v' near the data that outweighs them by far proves that the machine finds the data all
but impossible, with no need of ln Z. A machine of large fields draws next to its modes, so that one sweep to
a mode finds such a v' where there is one. docs/design_notes.md, "Runs that run away", has how near the bound
comes and what healthy runs show.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine, Hamiltonian, States

_ROWS = 16
_SATURATED = 1e-3  # variance of a unit, or of its mean over the rows, in units of its largest


@torch.no_grad()
def shortfall(machine: BoltzmannMachine, v: Tensor) -> float:
    """How far the even layers of the machine at the data lie below the states one sweep to a mode away.

    Args:
        machine: the machine.
        v: data, (batch, width_0), of which the first few rows are read.

    Returns:
        The median over the rows of F - (the least F that was met), in units of what uniform noise has below
        a certain state: ln n_states for each discrete unit, 1 for each real one. Above 1 with discrete
        visible units and one hidden layer, these rows are less likely than under uniform noise. Not a number
        where an energy overflowed.
    """
    hamiltonian = machine.hamiltonian()
    odd, even = hamiltonian.parity("odd"), hamiltonian.parity("even")
    states = _upwards(hamiltonian, v[:_ROWS])
    for _ in range(len(even) - 1):  # hidden layers of a deep machine settle to the data
        _to_modes(hamiltonian, states, (*odd, *even[1:]))
    data = hamiltonian.free_energy(states, odd)
    _to_modes(hamiltonian, states, (*odd, *even))
    least = torch.minimum(data.min(), hamiltonian.free_energy(states, odd).min())
    noise = sum(
        layer.n_units * (math.log(layer.n_states) if layer.n_states is not None else 1.0)
        for layer in (hamiltonian.layers[l] for l in even)
    )
    return float((data - least).median()) / noise


@torch.no_grad()
def indifferent(machine: BoltzmannMachine, v: Tensor) -> bool:
    """Whether every unit of the first hidden layer is saturated, and alike for rows that differ.

    The machine then says no more about such rows than independent units do.
    """
    hamiltonian = machine.hamiltonian()
    layer = hamiltonian.layers[1]
    rows = v[:_ROWS]
    if not layer.discrete or not bool((rows != rows[0]).any()):
        return False
    states = _upwards(hamiltonian, rows)
    mean, variance = layer.moments(hamiltonian.field(1, states), theta=hamiltonian.thetas[1])
    return bool(variance.max() < _SATURATED) and bool((mean - mean[0]).abs().max() < _SATURATED)


def _upwards(hamiltonian: Hamiltonian, v: Tensor) -> States:
    """Every hidden layer at its mode given the layer below alone."""
    states = [v]
    for l in range(1, len(hamiltonian.layers)):
        field = hamiltonian.lowest(l + 1).field(l, states)
        states.append(hamiltonian.layers[l].mode(field, hamiltonian.thetas[l]))
    return states


def _to_modes(hamiltonian: Hamiltonian, states: States, order: tuple[int, ...]) -> None:
    """One layer after the other, each to its mode given its neighbours; in place."""
    for l in order:
        states[l] = hamiltonian.layers[l].mode(hamiltonian.field(l, states), hamiltonian.thetas[l])
