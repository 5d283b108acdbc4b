"""States of the lowest energy, exactly where the tree width is small, and else by simulated annealing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium.chains import Gibbs, KernelState, run_kernel
from harmonium.machine import BoltzmannMachine, Hamiltonian, States, forbid, penalise
from harmonium.sums import AUTO_LIMIT, EXPLICIT_LIMIT, exact_hamiltonian, find_mode

MINIMISE_METHODS = ("auto", "exact", "anneal")

_HOT = log(2)
"""β times the largest change of energy by one unit at the start, which is made once in three draws."""
_COLD = log(100)
"""β times the smallest change of energy by one unit at the end, which is made once in a hundred draws."""
_TEMPERATURES = 200  # at most: of more, a change of β takes as long as its sweeps
_QUENCH = 1e4  # factor of β in the last sweeps, which lead to states that no single unit improves
_QUENCHES = 100  # of these sweeps at most; a state that still changes then goes round among equals


class LowStates(NamedTuple):
    """Different states of low energy, the lowest first.

    Attributes:
        states: for each layer (found, width_l).
        energies: E of each, (found,) float64.
        counts: Number of runs that ended in each, (found,) int64.
        method: "exact" or "anneal".
    """

    states: States
    energies: Tensor
    counts: Tensor
    method: str


@torch.no_grad()
def minimise(
    machine: BoltzmannMachine,
    runs: int = 100,
    *,
    sweeps: int = 1000,
    betas: Sequence[float] | None = None,
    method: str = "auto",
    seed: int | torch.Generator = 0,
) -> LowStates:
    """Finds states of the lowest energy: the most probable ones of a machine, ground states of a spin glass.

    Args:
        machine: a machine of units with two values or categories. States may be forbidden (-inf).
        runs: Runs of annealing, at least 1, each from a state of its own.
        sweeps: Sweeps of every run, at least 1.
        betas: the first and the last inverse temperature of a geometric schedule, rising from above 0. All of
            the energy is divided by the temperature. None: they follow from the parameters.
        method: "exact": one state of the lowest energy, by tables over the neighbours of each unit (trees,
            strips, lattices up to 20 units wide, up to about 25 units that are all joined). "anneal":
            simulated annealing (Kirkpatrick, Gelatt & Vecchi 1983), which ends in states that no change of a
            single unit improves. "auto": "exact" where it takes seconds. Runs that end in a forbidden state
            are left out.
        seed: an int or a generator.

    Raises:
        ValueError: other units, numbers out of range, or "exact" for a machine of too large a tree width; or
            no state that is allowed was found.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> ring = hm.Sparse([(0, 1), (1, 2), (2, 3), (0, 3)])
        >>> machine = hm.BoltzmannMachine([hm.Spin(4)], {(0, 0): ring}, [0], seed=None)
        >>> machine.couplings[0].fill_(torch.ones(4))
        >>> found = hm.tasks.minimise(machine)
        >>> found.energies.tolist(), found.states[0].unique(dim=1).shape
        ([-4.0], torch.Size([1, 1]))
    """
    _checks.one_of(method, "method", MINIMISE_METHODS)
    _checks.positive_int(runs, "runs")
    _checks.positive_int(sweeps, "sweeps")
    ends = None if betas is None else _read_betas(betas)
    if not all(layer.two_values or layer.one_hot for layer in machine.layers):
        raise ValueError(
            "machine: expected units with two values or categories, received "
            f"{', '.join(map(str, machine.layers))}"
        )
    if method != "anneal":
        limit = EXPLICIT_LIMIT if method == "exact" else AUTO_LIMIT
        mode = find_mode(exact_hamiltonian(machine, forbidden=True), limit)
        if mode is not None:
            return _list_states(machine, [x.to(machine.dtype) for x in mode], "exact")
        if method == "exact":
            raise ValueError(
                'method: expected a machine of small tree width for "exact", such as a lattice of at most 20 '
                'rows, received a larger one; use "anneal"'
            )
    generator = _random.as_generator(seed, machine.device)
    states, hamiltonian = machine.random_states(runs, seed=generator), machine.hamiltonian(forbidden=True)
    # Runs go through forbidden states while they are hot: the penalty is twice what one unit can gain there.
    hamiltonian = penalise(hamiltonian, 1 + 2 * float(_list_changes(hamiltonian)[0].max()))[0]
    ends = _find_betas(hamiltonian) if ends is None else ends
    return _list_states(machine, _anneal(hamiltonian, states, sweeps, ends, generator), "anneal")


def _read_betas(betas: Sequence[float]) -> tuple[float, float]:
    """Returns the checked first and last inverse temperature."""
    values = [float(beta) for beta in betas]
    if len(values) != 2 or not 0 < values[0] <= values[1] < float("inf"):
        raise ValueError(
            "betas: expected the first and the last inverse temperature, 0 < first <= last, received "
            f"{values}"
        )
    return values[0], values[1]


def _find_betas(hamiltonian: Hamiltonian) -> tuple[float, float]:
    """Returns inverse temperatures at which hardly any, and nearly every, unit is at its mode.

    They follow from the changes of energy that one unit can make. Of the least ones the middle unit counts,
    as a single weak coupling would make the end far too cold for all others.
    """
    largest, weak = _list_changes(hamiltonian)
    weak = weak[weak.isfinite()]
    if not len(weak):
        return 1.0, 1.0  # all states have one energy
    hot = _HOT / float(largest.max())
    return hot, max(hot, _COLD / float(weak.median()))


def _list_changes(hamiltonian: Hamiltonian) -> tuple[Tensor, Tensor]:
    """Returns how much one unit can change the energy, (columns of all layers,) each; -inf is left out.

    At most it is all its neighbours together, at least the weakest of them alone, inf where it has none.
    """
    greatest_changes, least_changes = [], []
    for l, layer in enumerate(hamiltonian.layers):
        low, high = layer.two_values or (0.0, 1.0)
        bias = hamiltonian.thetas[l][0].nan_to_num(neginf=0.0).abs()
        total, weakest = bias.clone(), torch.where(bias > 0, bias, torch.inf)
        for edge, (first, second) in enumerate(hamiltonian.graph.edges):
            for side, other in {(first, second), (second, first)}:
                if side == l:
                    reach = max(map(abs, hamiltonian.layers[other].two_values or (1.0,)))
                    strength, smallest = _by_column(hamiltonian, edge, side == first, first == second)
                    total += reach * strength
                    weakest = torch.minimum(weakest, reach * smallest)
        greatest_changes.append((high - low) * total)
        least_changes.append((high - low) * weakest)
    return torch.cat(greatest_changes), torch.cat(least_changes)


def _by_column(hamiltonian: Hamiltonian, edge: int, below: bool, inner: bool) -> tuple[Tensor, Tensor]:
    """Returns Σ |J| of every column of one side of an edge, and the least |J| above 0, inf if none is."""
    pattern, J = hamiltonian.graph.patterns[edge], hamiltonian.J[edge].nan_to_num(neginf=0.0).abs()
    if pattern is None:
        J = J if below else J.t()
        return J.sum(1), torch.where(J > 0, J, torch.inf).amin(1)
    places = pattern.rows if below else pattern.columns
    width = pattern.shape[0 if below else 1]
    if inner:
        places, J = torch.cat([pattern.rows, pattern.columns]), torch.cat([J, J])
    smallest = J.new_full((width,), torch.inf)
    smallest = smallest.scatter_reduce(0, places, torch.where(J > 0, J, torch.inf), "amin")
    return J.new_zeros(width).index_add_(0, places, J), smallest


def _anneal(
    hamiltonian: Hamiltonian,
    states: States,
    sweeps: int,
    ends: tuple[float, float],
    generator: torch.Generator,
) -> States:
    """Returns states, for each layer (runs, width_l), after a geometric rise of β and a quench."""
    steps = min(sweeps, _TEMPERATURES)
    first, last = ends
    state = KernelState(states, 0)
    for step in range(steps):
        beta = first * (last / first) ** (step / max(1, steps - 1))
        number = sweeps * (step + 1) // steps - sweeps * step // steps
        state = _move(_cool(hamiltonian, beta), state, number, generator)
    cold = _cool(hamiltonian, _QUENCH * last)
    for _ in range(_QUENCHES):
        before = state.states
        state = _move(cold, state, 1, generator)
        if all(torch.equal(x, y) for x, y in zip(before, state.states, strict=True)):
            break
    return list(state.states)


def _cool(hamiltonian: Hamiltonian, beta: float) -> Hamiltonian:
    """Returns the distribution at an inverse temperature of all of its energy."""
    thetas = tuple(tuple(beta * parameter for parameter in theta) for theta in hamiltonian.thetas)
    return replace(hamiltonian, thetas=thetas, beta=beta)


def _move(
    hamiltonian: Hamiltonian, state: KernelState, sweeps: int, generator: torch.Generator
) -> KernelState:
    begun = Gibbs().init(hamiltonian, [x.clone() for x in state.states], generator, sweeps)
    return run_kernel(hamiltonian, Gibbs(), begun, sweeps, generator)


def _list_states(machine: BoltzmannMachine, states: Sequence[Tensor], method: str) -> LowStates:
    """Returns different states, the lowest first."""
    rows, counts = torch.unique(torch.cat(list(states), 1), dim=0, return_counts=True)
    parts = torch.split(rows, [x.shape[1] for x in states], 1)
    hamiltonian, penalty = penalise(machine.hamiltonian(forbidden=True).to(torch.float64))
    energies = -forbid(-hamiltonian.energy([x.double() for x in parts]), penalty)
    order = energies.argsort(stable=True)[: int(energies.isfinite().sum())]
    if not len(order):
        raise ValueError(
            "machine: expected a state that is allowed, received -inf "
            + ("for all" if method == "exact" else "at the end of all runs; more runs or sweeps may find one")
        )
    return LowStates([x[order] for x in parts], energies[order], counts[order], method)
