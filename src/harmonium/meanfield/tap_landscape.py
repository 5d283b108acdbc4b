"""The landscape of mean-field solutions: which there are, and which start flows to which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, _html, _random
from harmonium._checks import Numbers
from harmonium._states import join_rows
from harmonium.distributed import Distributed, as_group
from harmonium.machine import BoltzmannMachine
from harmonium.meanfield.fixed_point import DampingLike, prepare, solve
from harmonium.meanfield.solution import Solution
from harmonium.meanfield.solvers import make_scheme
from harmonium.meanfield.stability import with_stability

_SHOWN = 10  # solutions in a notebook
_DIRECTIONS = 8  # of the projections that are hashed: enough that strangers hardly ever share a cell
_FAR = 6.0  # a χ variate with as many degrees of freedom is larger once in 50,000


class Landscape(NamedTuple):
    """The distinct solutions, from the one that most starts flow to downwards.

    Attributes:
        solutions: one row for each distinct solution, of "tap" with its Plefka's number and stability.
        counts: starts that flow to it, (solutions,).
        free_energies: Free energies of the solutions, (solutions,), float64.
        basin: Number of the solution of every start, (starts,); -1 where it did not converge.
        status: Status of every start, (starts,), a ``Status`` as int64.
    """

    solutions: Solution
    counts: Tensor
    free_energies: Tensor
    basin: Tensor
    status: Tensor

    @property
    def admissible(self) -> Tensor:
        """Marks the minima of F within Plefka's condition, (solutions,) booleans; of other solvers all."""
        if self.solutions.plefka is None:
            return self.solutions.converged
        return self.solutions.admissible

    @property
    def doubts(self) -> tuple[str, ...]:
        """Returns what speaks against some or all of the solutions of "tap", one sentence each."""
        solutions, total = self.solutions, len(self.counts)
        if solutions.plefka is None or solutions.stability is None:
            return ()
        beyond, saddles = int((solutions.plefka >= 1).sum()), int((solutions.stability <= 0).sum())
        doubts = {
            f"{beyond} of {total} solutions lie beyond Plefka's condition, with numbers up to "
            f"{float(solutions.plefka.max()):.3g} where less than 1 is wanted: couplings are too strong for "
            "the expansion": beyond > 0,
            f"{saddles} of {total} solutions are no minima of the free energy; a heavier damping or other "
            "starts may find some": saddles > 0,
            "no solution is admissible, so that there is no estimate: take likelihood.ais or "
            "ladder.log_partitions": not bool(self.admissible.any()),
        }
        return tuple(doubt for doubt, holds in doubts.items() if holds)

    def _repr_html_(self) -> str:
        pairs = zip(self.counts.tolist(), self.free_energies.tolist(), strict=True)
        rows = [(f"{count} starts", f"free energy {energy:.3f}") for count, energy in pairs]
        notes = [f"and {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
        apart = int((self.basin < 0).sum())
        notes += [f"{apart} of {len(self.basin)} starts did not converge"] if apart else []
        notes += self.doubts
        return _html.table(f"{len(rows)} solutions", rows[:_SHOWN], notes)


def landscape(
    machine: BoltzmannMachine,
    X: Numbers,
    *,
    solver: str = "tap",
    order: int = 2,
    resolution: float = 0.01,
    tolerance: float = 1e-5,
    damping: DampingLike = "adaptive",
    max_sweeps: int = 1000,
    distributed: Distributed = None,
) -> Landscape:
    """Finds the TAP solutions from every row of X, each of them once (Tramel et al. 2018, Sec. VII.3).

    Args:
        machine: the machine, of any depth.
        X: visible means to start from, (starts, visible_width), such as data; NaN is no guess.
        solver: see ``tap``.
        order: see ``tap``; 1 is naive mean field.
        resolution: two solutions are the same when the root mean square difference of their means, over all
            units, is at most this; > 0.
        tolerance: see ``naive``; well below the resolution.
        damping: see ``tap``.
        max_sweeps: see ``naive``; starts that take more belong to no basin.
        distributed: processes that share the starts, as in ``chains.run``; all get the result.

    Raises:
        ValueError: shapes or numbers out of range, or no start that converges.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=0)
        >>> starts = machine.random_states(20, seed=1)[0]
        >>> hm.meanfield.landscape(machine, starts).counts  # weak couplings have one solution
        tensor([20])
    """
    _checks.real(resolution, "resolution", low=torch.finfo(torch.float64).tiny)
    hamiltonian, starts = prepare(machine, X, None)
    processes = as_group(distributed)
    own_starts = starts[processes.rows(len(starts), "X")]
    scheme = make_scheme(hamiltonian, solver, order)
    solved = solve(scheme, own_starts, tolerance=tolerance, damping=damping, max_sweeps=max_sweeps)
    whole: Solution = join_rows(processes.all_gather(solved))
    settled = torch.nonzero(whole.converged).squeeze(-1)
    if len(settled) == 0:
        raise ValueError(
            f"X: expected a start that converges within {max_sweeps} sweeps, received none; strong couplings "
            f"want a heavier hand, such as damping=0.9 and max_sweeps={5 * max_sweeps}, or are too strong "
            "for the expansion: look whether solutions are admissible"
        )
    group = distinct([a[settled] for a in whole.means], resolution)
    _, first, counts = find_first(group)
    order_of = counts.argsort(descending=True, stable=True)
    rank = torch.empty_like(order_of)
    rank[order_of] = torch.arange(len(order_of), device=rank.device)
    basin = torch.full_like(whole.status, -1)
    basin[settled] = rank[group]
    solutions = whole.take(settled[first[order_of]])
    if solver == "tap":
        solutions = with_stability(hamiltonian, solutions, order)
    return Landscape(solutions, counts[order_of], solutions.free_energy, basin, whole.status)


def distinct(points: Sequence[Tensor], resolution: float) -> Tensor:
    """Numbers the groups of rows that are the same within a resolution.

    Rows are hashed by the cells of a few random projections, within a cell each is compared with one
    representative, and representatives near a border with those across it by a tree over the projections:
    no comparison of all pairs. Groups are joined through chains of neighbours.

    Args:
        points: matrices that stand side by side, each (rows, columns).
        resolution: largest root mean square difference of two rows that are the same.

    Returns:
        (rows,), int64, from 0 in the order of first appearance.
    """
    rows, width = len(points[0]), sum(x.shape[1] for x in points)
    reach = resolution * width**0.5
    generator = _random.as_generator(0)
    directions = _random.normal((width, _DIRECTIONS), generator, torch.float64)
    directions /= directions.norm(dim=0)
    parts = torch.split(directions, [x.shape[1] for x in points])
    pieces = [(x @ part.to(x)).double() for x, part in zip(points, parts, strict=True)]
    projected = torch.stack(pieces).sum(0)

    def measure_distance(one: Tensor, other: Tensor) -> Tensor:
        """Returns the distances of rows from other rows, (pairs,)."""
        pieces = [(x[one] - x[other]).square().sum(-1, dtype=torch.float64) for x in points]
        return torch.stack(pieces).sum(0).sqrt()

    # A unit vector in a random direction sees about 1/√width of a distance: on it, rows that are the same are
    # hardly more than ``resolution`` apart.
    cells = (projected / (4 * resolution)).floor().long()
    leader = torch.full((rows,), -1, device=projected.device)
    left = torch.arange(rows, device=projected.device)
    while len(left):
        _, cell = torch.unique(cells[left], dim=0, return_inverse=True)
        leader_of_cell = left[find_first(cell)[1]][cell]
        near = measure_distance(left, leader_of_cell) <= reach
        leader[left[near]] = leader_of_cell[near]
        left = left[~near]
    leaders, leader_index = torch.unique(leader, return_inverse=True)
    # Slow to import, and only needed here.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import cKDTree

    pairs = cKDTree(projected[leaders].cpu().numpy()).query_pairs(_FAR * resolution, output_type="ndarray")
    one, other = torch.from_numpy(pairs).to(leaders.device).T
    joined = pairs[(measure_distance(leaders[one], leaders[other]) <= reach).cpu().numpy()]
    graph = coo_array((np.ones(len(joined)), joined.T), shape=(len(leaders), len(leaders)))
    # Components are numbered in the order of their leaders, and a leader is the first of its rows.
    component = connected_components(graph, directed=False)[1]
    return torch.from_numpy(component).to(leader_index.device, torch.int64)[leader_index]


def find_first(group: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the groups 0, 1, …, the place where each appears first, and its size."""
    groups, counts = torch.unique(group, return_counts=True)
    indices = torch.arange(len(group), device=group.device)
    first = torch.full_like(groups, len(group)).scatter_reduce(0, group, indices, "amin")
    return groups, first, counts
