"""ln Z by TAP: the sum over the solutions of the mean-field equations."""

from __future__ import annotations

from copy import deepcopy
from math import inf, nan
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.chains import climb
from harmonium.likelihood.annealing import CLIMB_SWEEPS
from harmonium.machine import BoltzmannMachine, Hamiltonian, States, require_distribution
from harmonium.meanfield import DampingLike, Landscape, Plefka, Point, landscape, solve

_NOISE = 50  # starts beside those of data: solutions that no row flows to are parts of Z too
_RESOLUTION = 1e-3  # for machines so wide that one unit hardly moves the mean over all
# On 300 small machines (tests/campaigns/tap.py) no error above a nat is without a doubt at these:
_SHARE = 0.1  # of the starts that do not converge, or of the sum in what is doubtful
_MARGIN = 0.1  # to the end of the expansion, or of the stability of a solution
_NATS = 0.5  # by which another order moves the sum, or by which states alone weigh more
_BOUND = 0.9  # by which order 2 moves the bound of order 1, nearly always further than to ln Z


class TapPartition(NamedTuple):
    """The TAP approximation of ln Z, which is not a bound.

    Attributes:
        value: ln Σ exp(-F) over the distinct admissible solutions, minima of F within Plefka's condition
            that rows of X or noise flow to. NaN where there is none.
        mean: mean of -F over those of them that rows of X flow to, each with the same weight, as Tramel et
            al. have it (2018, Sec. V.2), and as ``rules.tap`` averages: below the value by more than a nat
            where few of several solutions carry Z. NaN where there is none.
        spread: standard deviation of -F over these, not an error of the value.
        solutions: number of distinct solutions.
        converged: the part of all starts that converged; the others are left out.
        admissible: number of the solutions that the value is a sum of.
        doubts: what speaks against the value, one sentence each; the RuntimeWarnings. Empty where nothing
            was found, which proves nothing.
    """

    value: float
    mean: float
    spread: float
    solutions: int
    converged: float
    admissible: int
    doubts: tuple[str, ...]


@torch.no_grad()
def tap_log_partition(
    machine: BoltzmannMachine,
    X: Numbers,
    *,
    order: int = 2,
    tolerance: float = 1e-8,
    damping: DampingLike = "adaptive",
    max_sweeps: int = 1000,
    seed: int | torch.Generator = 0,
) -> TapPartition:
    """Estimates ln Z as ln Σ exp(-F) over the TAP solutions that data and noise flow to.

    Each solution stands for a part of the states, so that their weights add up. Tramel et al. (2018, Eq. 37)
    take the mean of -F over solutions from data, which is here ``mean``. Both are close to ln Z while
    couplings are weak; ``experiments/README.md`` has the gap as they grow. Trained machines have strong
    couplings: set it beside ``ais``.

    Args:
        machine: the machine, of any depth.
        X: visible states to start from, (starts, visible_width). 50 states of noise are starts too.
        order: see ``meanfield.tap``.
        tolerance: see ``meanfield.naive``; so small that starts of one solution come to one point where
            sweeps crawl. Solutions are found in float64.
        damping: see ``meanfield.tap``.
        max_sweeps: see ``meanfield.naive``.
        seed: Source of noise: an int or a generator.

    Warns:
        RuntimeWarning: solutions that are left out, since the expansion does not hold there or they are no
            minima; solutions that are probably missing; an expansion that has not converged.

    Raises:
        ValueError: no start that converges.
    """
    hamiltonian, generator = machine.hamiltonian(), _random.as_generator(seed, machine.device)
    require_distribution(hamiltonian)
    noise = machine.random_states(_NOISE, seed=generator)
    starts = _checks.tensor(X, "X", machine.dtype, machine.device)
    rows = len(starts)
    if starts.dim() == 2 and rows and starts.shape[1] == machine.visible_width:  # others landscape refuses
        starts = torch.cat([starts, hamiltonian.visible_states(noise)])
    exacter = deepcopy(machine).double()
    tap_landscape = landscape(
        exacter,
        starts,
        order=order,
        resolution=_RESOLUTION,
        tolerance=tolerance,
        damping=damping,
        max_sweeps=max_sweeps,
    )
    weights = torch.where(tap_landscape.admissible, -tap_landscape.free_energies, -inf)
    seen = torch.unique(tap_landscape.basin[:rows])
    of_data = weights[seen[seen >= 0]]
    of_data = of_data[of_data > -inf]
    doubts = [*tap_landscape.doubts, *_list_doubts(tap_landscape)]
    if bool(tap_landscape.admissible.any()):
        doubts += [
            *_compare_orders(exacter.hamiltonian(), tap_landscape, order),
            *_compare_states(hamiltonian, noise, weights),
        ]
    for doubt in doubts:
        _checks.warn(f"log_partition: {doubt}", RuntimeWarning)
    return TapPartition(
        float(weights.logsumexp(0)) if bool(tap_landscape.admissible.any()) else nan,
        float(of_data.mean()),
        float(of_data.std(correction=0)) if len(of_data) else nan,
        len(tap_landscape.counts),
        float((tap_landscape.basin >= 0).double().mean()),
        int(tap_landscape.admissible.sum()),
        tuple(doubts),
    )


def _list_doubts(tap_landscape: Landscape) -> list[str]:
    """Lists what starts and solutions tell against the sum: too few, or at the end of the expansion."""
    starts, lost = len(tap_landscape.basin), int((tap_landscape.basin < 0).sum())
    doubts = {
        f"{lost} of {starts} starts did not converge, and solutions that they lead to are missing; try "
        "damping=0.9 and more sweeps": lost > _SHARE * starts
    }
    if bool(tap_landscape.admissible.any()):
        shares = torch.where(tap_landscape.admissible, -tap_landscape.free_energies, -inf).softmax(0)
        once = float(shares[tap_landscape.counts == 1].sum())
        doubts[
            f"solutions that one start alone has found carry {once:.0%} of the sum, so that others like them "
            "are probably missing; give more starts"
        ] = once > _SHARE
        if tap_landscape.solutions.plefka is not None and tap_landscape.solutions.stability is not None:
            margin = torch.minimum(1 - tap_landscape.solutions.plefka, tap_landscape.solutions.stability)
            doubts[
                "solutions that carry the sum are at the edge of stability or of Plefka's condition, where "
                "higher orders of the expansion count"
            ] = float(shares[margin < _MARGIN].sum()) > _SHARE
    return [doubt for doubt, holds in doubts.items() if holds]


def _compare_orders(hamiltonian: Hamiltonian, tap_landscape: Landscape, order: int) -> list[str]:
    """Returns a doubt where another order of the expansion moves the solutions that carry the sum.

    Orders 1 and 2 are compared with the next, 3 with order 2; the third is of units with two values.
    """
    other = {1: 2, 2: 3, 3: 2}[order]
    if other == 3 and not all(layer.two_values for layer in hamiltonian.layers):
        return []
    solutions = tap_landscape.solutions.take(tap_landscape.admissible)
    shares = (-solutions.free_energy).softmax(0)
    point = Point(solutions.means, solutions.variances, solutions.fields, solutions.curvatures, [])
    moved = solve(Plefka(hamiltonian, other), point, tolerance=1e-6, damping="adaptive").free_energy
    nats = float(shares @ (moved - solutions.free_energy).abs())
    most = _BOUND if order == 1 else _NATS
    return [f"order {other} of the expansion moves the value by {nats:.2g} nats"] if nats > most else []


def _compare_states(hamiltonian: Hamiltonian, states: States, weights: Tensor) -> list[str]:
    """Returns a doubt where local modes near noise have more weight than all solutions: a bound on ln Z."""
    unsummed = hamiltonian.graph.unsummed
    if not all(hamiltonian.layers[l].discrete for l in unsummed):
        return []
    modes = [x.clone() for x in states]
    climb(hamiltonian, modes, hamiltonian.graph.backwards, CLIMB_SWEEPS)
    _, first = np.unique(torch.cat([modes[l] for l in unsummed], -1).cpu().numpy(), axis=0, return_index=True)
    weight = -hamiltonian.free_energy([x[first] for x in modes], hamiltonian.graph.summed)
    bound = float(weight.logsumexp(0))
    if not bound > float(weights.logsumexp(0)) + _NATS:
        return []
    return [f"some states alone put ln Z at {bound:.3f} or above: solutions are missing; give other starts"]
