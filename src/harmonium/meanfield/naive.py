"""Naive mean field: the best factorised law, a lower bound on ln Z."""

from __future__ import annotations

import torch

from harmonium._checks import Numbers
from harmonium.machine import BoltzmannMachine
from harmonium.machine.clamp import ClampLike
from harmonium.meanfield.fixed_point import DampingLike, prepare, solve
from harmonium.meanfield.plefka import Plefka
from harmonium.meanfield.solution import Solution


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
        damping: weight of the old field in a new one, in [0, 1), or "adaptive"; see ``solve``.
        max_sweeps: at least 1.

    Returns:
        The solution; rows that did not converge say so in ``status``.

    Raises:
        ValueError: shapes or numbers out of range.
    """
    hamiltonian, v = prepare(machine, start, clamp)
    scheme = Plefka(hamiltonian, order=1)
    return solve(scheme, v, tolerance=tolerance, damping=damping, max_sweeps=max_sweeps)
