"""The solvers: naive mean field; TAP, adaptive TAP and relaxed belief propagation by name."""

from __future__ import annotations

from collections.abc import Callable

import torch

from harmonium import _checks
from harmonium._checks import Numbers
from harmonium.machine import BoltzmannMachine, ClampLike, Hamiltonian
from harmonium.meanfield.adaptive_tap import AdaTAP
from harmonium.meanfield.fixed_point import DampingLike, prepare, solve
from harmonium.meanfield.message_passing import RelaxedBP
from harmonium.meanfield.plefka import Plefka
from harmonium.meanfield.scheme import Scheme
from harmonium.meanfield.solution import Solution
from harmonium.meanfield.stability import with_stability

SOLVERS: dict[str, Callable[[Hamiltonian], Scheme]] = {
    "tap": Plefka,
    "adatap": AdaTAP,
    "relaxed_bp": RelaxedBP,
}
"""The schemes of the second moment by the names that tasks and commands have for them."""


def make_scheme(hamiltonian: Hamiltonian, solver: str, order: int) -> Scheme:
    """Returns the scheme of a solver by its name, "tap" of some order; ValueError: there is none."""
    _checks.one_of(solver, "solver", SOLVERS)
    if solver == "tap":
        return Plefka(hamiltonian, order)
    if order != 2:
        raise ValueError(f'order: expected 2 with solver="{solver}", received {order}; others are of "tap"')
    return SOLVERS[solver](hamiltonian)


@torch.no_grad()
def naive(
    machine: BoltzmannMachine,
    start: Numbers,
    clamp: ClampLike = None,
    *,
    tolerance: float = 1e-6,
    damping: DampingLike = 0.0,
    max_sweeps: int = 1000,
) -> Solution:
    """Solves a_l = E[x_l | B_l], B_l = the field of the neighbours' means, for every free layer.

    Layers are updated in turn, which never raises the free energy when undamped and no layer has an inner
    edge; the units that one couples move together, and where it is strong they need damping. -free_energy is
    a lower bound on ln Z at every sweep, converged or not; with visible values clamped it bounds ln p̃(v), so
    that minus ln Z it is the variational bound on ln p(v) (Salakhutdinov & Larochelle 2010).

    Args:
        machine: the machine.
        start: visible means to start from, (batch, visible_width); hidden layers start from them. NaN is no
            guess: the mean of the unit by itself.
        clamp: what to hold: visible values (batch, visible_width) or a mapping from layers to values; NaN is
            free.
        tolerance: a row has converged when the root mean square change of its free means in a sweep, divided
            by 1 - damping, is at most this; > 0.
        damping: Weight of the old field in a new one, in [0, 1), or "adaptive"; see ``solve``.
        max_sweeps: Sweeps after which a row that has not converged is given up, at least 1.

    Returns:
        The solution; rows that did not converge say so in ``status``.

    Raises:
        ValueError: shapes or numbers out of range.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=0)
        >>> solution = hm.meanfield.naive(machine, torch.zeros(1, 6))
        >>> -solution.free_energy.item() <= hm.likelihood.exact_log_partition(machine)
        True
    """
    hamiltonian, v = prepare(machine, start, clamp)
    return solve(Plefka(hamiltonian, order=1), v, tolerance=tolerance, damping=damping, max_sweeps=max_sweeps)


@torch.no_grad()
def tap(
    machine: BoltzmannMachine,
    start: Numbers,
    clamp: ClampLike = None,
    *,
    solver: str = "tap",
    order: int = 2,
    tolerance: float = 1e-6,
    damping: DampingLike = "adaptive",
    max_sweeps: int = 1000,
) -> Solution:
    """Solves mean-field equations of the second moment for every free layer (FORMULAS §6).

    "tap" solves A = -Σ J² c, B = Σ J a + A a, a = f_a(B, A), c = f_c(B, A). The solutions are the stationary
    points of the TAP free energy (Tramel et al. 2018, Alg. 1), and depend on the start once the couplings are
    strong. Layers are updated in turn, units that an inner edge couples together. Unlike naive mean field the
    free energy bounds nothing, and it is far closer to -ln Z while couplings are weak.

    "adatap" solves adaptive TAP by vector approximate message passing (Alg. 3): the units and a Gaussian with
    the machine's couplings agree on all means and variances (Opper & Winther 2001), and ``free_energy`` is
    that of expectation consistency. It needs no assumption on the couplings. A sweep inverts a matrix for
    every row, of the smaller of two colours.

    "relaxed_bp" solves belief propagation with messages of two moments (App. B): a unit tells each neighbour
    the mean and variance that it would have without that neighbour. ``free_energy`` is that of Bethe. It
    takes 4 · batch · width_l · width_m numbers for every edge (l, m): for small and middling machines.

    Args:
        machine: the machine, of any depth; beside "tap" of units with one column (no ``Categorical``).
        start: visible means to start from, (batch, visible_width), with variance zero, such as rows of data;
            hidden layers start from them. NaN is no guess: the mean of the unit by itself.
        clamp: see ``naive``.
        solver: "tap", "adatap" or "relaxed_bp"; the last two have neither Plefka's number nor stability.
        order: of "tap": 2, or 3 for machines of Bernoulli and Spin layers, which adds the terms in J³; 1 is
            ``naive``.
        tolerance: see ``naive``.
        damping: weight of the old fields or messages in new ones, in [0, 1), or "adaptive" by row; see
            ``solve``.
        max_sweeps: see ``naive``.

    Returns:
        The solution; rows that did not converge say so in ``status``. "Unbounded" is also a row whose
        Gaussian in "adatap" lost its normaliser on the way.

    Raises:
        ValueError: shapes or numbers out of range, the third order for other layers, or a graph or units that
            a solver does not take.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=0)
        >>> solution = hm.meanfield.tap(machine, torch.zeros(1, 6))
        >>> abs(solution.free_energy.item() + hm.likelihood.exact_log_partition(machine)) < 1e-3
        True
    """
    hamiltonian, v = prepare(machine, start, clamp)
    scheme = make_scheme(hamiltonian, solver, order)
    solution = solve(scheme, v, tolerance=tolerance, damping=damping, max_sweeps=max_sweeps)
    return with_stability(hamiltonian, solution, order) if solver == "tap" else solution
