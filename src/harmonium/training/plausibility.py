"""Signs, cheap to read, that a machine has run away from its data.

No state is more probable than 1. With -F the log of what a state weighs, ln p(v) <= F(v') - F(v) for every v'
of discrete units: a v' near the data that outweighs them by far proves that the machine finds the data all
but impossible, with no need of ln Z. A machine of large fields draws next to its modes, so that one sweep to
a mode finds such a v' where there is one. docs/design_notes.md, "Runs that run away", has how near the bound
comes and what healthy runs show.
"""

from __future__ import annotations

import math
from copy import deepcopy

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine, Hamiltonian, States, fit_

_ROWS = 8
_MANY_ROWS = 100
_SATURATED = 1e-3  # variance of a unit
_NEARLY_ALL, _HARDLY = 0.95, 0.9  # docs/design_notes.md


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
    for _ in even[1:]:  # hidden layers of a deep machine settle to the data
        _to_modes(hamiltonian, states, (*even[1:], *odd))
    data = hamiltonian.free_energy(states, odd)
    _to_modes(hamiltonian, states, even)
    least = torch.minimum(data.min(), hamiltonian.free_energy(states, odd).min())
    noise = sum(
        layer.n_units * (math.log(layer.n_states) if layer.n_states is not None else 1.0)
        for layer in (hamiltonian.layers[l] for l in even)
    )
    return float((data - least).median()) / noise


@torch.no_grad()
def useless(machine: BoltzmannMachine, v: Tensor) -> bool:
    """Whether the hidden layer is frozen without knowing the data.

    That is: nearly all units of the first hidden layer are saturated, and rebuild the rows hardly better than
    independent units say them. A machine that froze on its data rebuilds them. False with real units in
    either layer.
    """
    hamiltonian = machine.hamiltonian()
    visible, hidden = hamiltonian.layers[:2]
    if not (visible.discrete and hidden.discrete):
        return False
    states = _upwards(hamiltonian, v[:_MANY_ROWS])
    variance = hidden.moments(hamiltonian.field(1, states), theta=hamiltonian.thetas[1]).variance
    if float((variance < _SATURATED).double().mean()) < _NEARLY_ALL:
        return False
    rows = states[0]
    independent = deepcopy(visible)
    fit_(
        independent, tuple(t.mean(0) for t in visible.statistics(rows)), rows.var(0, correction=0), len(rows)
    )
    rebuilt = visible.log_conditional(rows, hamiltonian.field(0, states), hamiltonian.thetas[0])
    alone = independent.log_conditional(rows, torch.zeros_like(rows))
    return not float(rebuilt.double().mean()) > _HARDLY * float(alone.double().mean())


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
