"""Signs, cheap to read, that a machine has run away from its data, or stands at a saddle.

No state is more probable than 1. With -F the log of what a state weighs, ln p(v) <= F(v') - F(v) for every v'
of discrete units: a v' near the data that outweighs them by far proves that the machine finds the data all
but impossible, with no need of ln Z. A machine of large fields draws next to its modes, so that one sweep to
a mode finds such a v' where there is one. docs/decisions/0017 has how near the bound
comes and what healthy runs show.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.chains import climb
from harmonium.machine import BoltzmannMachine, Hamiltonian, States, fitted

_ROWS = 8  # whose median is compared: enough to tell runs apart (docs/decisions/0017)
_MANY_ROWS = 100  # at the end of a run, where one look is all
_SATURATED = 1e-3  # A unit with less variance given a row has all but stopped to depend on it.
# A machine is frozen if 95 % of its hidden units are saturated, and its reconstructions keep more than 0.9
# of the loss (-ln p) of independent units. Good ones: 89 % at most, and a fifth (docs/decisions/0017).
_NEARLY_ALL, _HARDLY = 0.95, 0.9
# Deviation of the hidden fields over a batch, typical of the units: 0.014 in a new machine of two
# standardised columns, which then learns nothing in 4,000 updates, 0.08 in one of 64; 1 after
# ``init_from_data_``.
_SILENT = 0.05


@torch.no_grad()
def energy_gap(machine: BoltzmannMachine, v: Tensor, hamiltonian: Hamiltonian | None = None) -> Tensor:
    """Measures how much less probable data are than the states a sweep towards a mode away.

    States of the layers outside ``graph.summed`` are compared, by their free energies. Of the data, (batch,
    visible_width), the first few rows are read. ``hamiltonian``: that of the machine, if it is known.

    Returns:
        The median over the rows of F - (the least F that was met), (), on the machine's device, in units of
        what uniform noise has below a certain state: ln n_states for each discrete unit, 1 for each real one.
        Above 1 with discrete visible units and one hidden layer, these rows are less likely than under
        uniform noise. Not a number where an energy overflowed.
    """
    hamiltonian = hamiltonian or machine.hamiltonian(checked=False)
    graph = hamiltonian.graph
    hidden = tuple(l for l in graph.kept if l not in graph.visible)
    states, fields = _upwards(hamiltonian, v[:_ROWS].to(hamiltonian.device))
    for _ in hidden:  # hidden layers of a deep machine settle to the data
        climb(hamiltonian, states, (*hidden, *graph.summed))
    data = hamiltonian.free_energy(states, graph.summed, None if hidden else fields)
    climb(hamiltonian, states, graph.kept)
    least = torch.minimum(data.min(), hamiltonian.free_energy(states, graph.summed).min())
    noise = sum(
        layer.n_units * (math.log(layer.n_states) if layer.n_states is not None else 1.0)
        for layer in (hamiltonian.layers[l] for l in graph.kept)
    )
    return (data - least).median().double() / float(noise)


@torch.no_grad()
def is_saturated(machine: BoltzmannMachine, v: Tensor) -> bool:
    """Returns whether the first hidden layer is frozen and carries hardly any information on the data.

    True if nearly all its units are saturated and reconstruct the rows hardly better than independent visible
    units do. A machine that froze on its data reconstructs them. False with real units in either layer, and
    where the layers are not a chain.
    """
    if not machine.graph.is_chain or not _checks.observed(v):
        return False
    hamiltonian = machine.hamiltonian()
    visible, hidden = hamiltonian.layers[:2]
    if not (visible.discrete and hidden.discrete):
        return False
    states, _ = _upwards(hamiltonian, v[:_MANY_ROWS].to(hamiltonian.device))
    variance = hidden.moments(hamiltonian.field(1, states), theta=hamiltonian.thetas[1]).variance
    if float((variance < _SATURATED).double().mean()) < _NEARLY_ALL:
        return False
    rows = states[0]
    rebuilt = visible.log_conditional(rows, hamiltonian.field(0, states), hamiltonian.thetas[0])
    alone = fitted(visible, rows).log_conditional(rows, torch.zeros_like(rows))
    return not float(rebuilt.double().mean()) > _HARDLY * float(alone.double().mean())


@torch.no_grad()
def warn_of_saddle(machine: BoltzmannMachine, v: Tensor) -> None:
    """Warns where discrete hidden units beside Gaussian visible ones do not respond to the data."""
    if not machine.graph.is_chain or not _checks.observed(v):
        return
    visible, hidden = machine.layers[:2]
    if not visible.gaussian or not hidden.discrete or len(v) < 2:
        return
    fields = machine.hamiltonian().J.factors[0].times(v.to(machine.device))
    deviation = float(fields.var(0).mean().sqrt())
    if deviation < _SILENT:
        _checks.warn(
            f"machine: the fields of its hidden units hardly vary over the data (deviation {deviation:.2g}), "
            "which beside Gaussian visible units is near a saddle: learning may be slow, and may never begin "
            "on uncorrelated columns. harmonium.machine.init_from_data_ starts off it",
            RuntimeWarning,
        )


def _upwards(hamiltonian: Hamiltonian, v: Tensor) -> tuple[States, dict[int, Tensor]]:
    """Returns states with every hidden layer at its mode given those before it, and their fields.

    Entries that the rows do not observe are at their modes too.
    """
    states, fields = hamiltonian.split(v), dict[int, Tensor]()
    settled = set(hamiltonian.graph.visible)
    for l in hamiltonian.graph.visible:
        alone = hamiltonian.layers[l].mode(torch.zeros_like(states[l][:1]), hamiltonian.thetas[l])
        states[l] = torch.where(states[l].isnan(), alone, states[l])
    for l in hamiltonian.graph.order:
        fields[l] = hamiltonian.field(l, states, settled)
        states[l] = hamiltonian.layers[l].mode(fields[l], hamiltonian.thetas[l])
        settled.add(l)
    return states, fields
