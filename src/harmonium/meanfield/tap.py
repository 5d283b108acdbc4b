"""TAP: mean field with the reaction of every unit on itself taken out."""

from __future__ import annotations

import torch

from harmonium._checks import Numbers
from harmonium.machine import BoltzmannMachine
from harmonium.machine.clamp import ClampLike
from harmonium.meanfield.fixed_point import DampingLike, prepare, solve
from harmonium.meanfield.plefka import Plefka
from harmonium.meanfield.solution import Solution


@torch.no_grad()
def tap(
    machine: BoltzmannMachine,
    start: Numbers,
    clamp: ClampLike = None,
    *,
    order: int = 2,
    tolerance: float = 1e-6,
    damping: DampingLike = "adaptive",
    max_sweeps: int = 1000,
) -> Solution:
    """Solves A = -Σ J² c, B = Σ J a + A a, a = f_a(B, A), c = f_c(B, A) for every free layer (FORMULAS §6).

    The solutions are the stationary points of the TAP free energy (Tramel et al. 2018, Alg. 1), and depend on
    the start once the couplings are strong. Layers are updated in turn, units that an inner edge couples
    together. Unlike naive mean field the free energy bounds nothing, and it is far closer to -ln Z while
    couplings are weak.

    Args:
        machine: the machine, of any depth.
        start: visible means to start from, (batch, visible_width), with variance zero, such as rows of data;
            hidden layers start from them. NaN is no guess: the mean of the unit by itself.
        clamp: what to hold: visible values (batch, visible_width) or a mapping from layers to values; NaN is
            free.
        order: 2, or 3 for machines of Bernoulli and Spin layers, which adds the terms in J³; 1 is ``naive``.
        tolerance: a row has converged when the root mean square change of its free means in a sweep, divided
            by 1 - damping, is at most this; > 0.
        damping: weight of the old fields in new ones, in [0, 1), or "adaptive" by row; see ``solve``.
        max_sweeps: at least 1.

    Returns:
        The solution; rows that did not converge say so in ``status``.

    Raises:
        ValueError: shapes or numbers out of range, or the third order for other layers.
    """
    hamiltonian, v = prepare(machine, start, clamp)
    scheme = Plefka(hamiltonian, order)
    return solve(scheme, v, tolerance=tolerance, damping=damping, max_sweeps=max_sweeps)
