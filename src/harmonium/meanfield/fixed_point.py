"""The loop that brings a batch of points to fixed points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from harmonium import _checks, _device
from harmonium._checks import Numbers
from harmonium._states import join_rows
from harmonium.backends.recording import within_step
from harmonium.machine import BoltzmannMachine, ClampLike, Hamiltonian
from harmonium.meanfield.scheme import Damping, Point, Scheme
from harmonium.meanfield.solution import Solution, Status

DampingLike = float | Literal["adaptive"]

_BLOCK = 1 << 18  # numbers of the widest layer that are worked on together on a CPU
_STRONGEST, _FIRMER, _EASIER = 0.5, 0.9, 0.98  # of adaptive damping; docs/decisions/0004 has what was tried
_CROWD = 8  # the batch is compacted when one in so many of its rows has come to an end


@torch.no_grad()
def solve(
    scheme: Scheme,
    start: Tensor | Point,
    *,
    tolerance: float = 1e-6,
    damping: DampingLike = 0.0,
    max_sweeps: int = 1000,
) -> Solution:
    """Sweeps until every row has converged; rows that have come to an end leave the batch.

    Args:
        scheme: what is solved, for a batch of rows.
        start: visible means (batch, visible_width), or a point of an earlier solve.
        tolerance: a row has converged when the root mean square change of its free means in a sweep, divided
            by 1 - damping, is at most this, and that of the variances too where they enter the equations;
            > 0.
        damping: weight of the old field in a new one, in [0, 1); or "adaptive": for each row none at first,
            a little more whenever a sweep moves further than the one before, less otherwise, never above ½.
        max_sweeps: at least 1.

    Returns:
        The solution. No row is ever NaN: one that leaves the region where its real units have a normaliser
        keeps its last point inside, and its status says so.
    """
    points, ends = [], []
    for part, point, status, sweeps in _solve_blocks(scheme, start, tolerance, damping, max_sweeps):
        points.append(point._replace(messages=[]))
        ends.append((part.free_energy(point) + part.hamiltonian.offset, status, sweeps))
    free_energy, status, sweeps = (torch.cat(values) for values in zip(*ends, strict=True))
    means, variances, fields, curvatures, _ = join_rows(points)
    return Solution(means, variances, free_energy, status, sweeps, fields, curvatures)


@torch.no_grad()
def iterate(
    scheme: Scheme, start: Tensor | Point, *, tolerance: float, damping: DampingLike, max_sweeps: int
) -> tuple[Point, Tensor, Tensor]:
    """Solves as ``solve``, without the free energy.

    Returns:
        The point, which a later call may start from, and status and sweeps, each (batch,).
    """
    solved = [rest for _, *rest in _solve_blocks(scheme, start, tolerance, damping, max_sweeps)]
    points, status, sweeps = zip(*solved, strict=True)
    return join_rows(points), torch.cat(status), torch.cat(sweeps)


def _solve_blocks(
    scheme: Scheme, start: Tensor | Point, tolerance: float, damping: DampingLike, max_sweeps: int
) -> Iterator[tuple[Scheme, Point, Tensor, Tensor]]:
    """Solves rows in blocks that stay in the cache, each to its end: scheme, point, status and sweeps."""
    check_settings(tolerance, damping, max_sweeps)
    first = start.means[0] if isinstance(start, Point) else start
    rows, size = len(first), len(first)
    if first.device.type == "cpu":
        widest = max(layer.width for layer in scheme.hamiltonian.layers)
        size = max(1, min(size, _BLOCK // widest))
    for first_row in range(0, rows, size):
        block = slice(first_row, first_row + size)
        part = scheme if size >= rows else scheme.take(block)
        point = start.take(block).copy() if isinstance(start, Point) else part.begin(start[block])
        yield part, *_iterate(part, point, tolerance, damping, max_sweeps)


def _iterate(
    scheme: Scheme, point: Point, tolerance: float, damping: DampingLike, max_sweeps: int
) -> tuple[Point, Tensor, Tensor]:
    """Solves some rows, whose point is written over; returns point, status and sweeps.

    Within a recorded step nobody looks who has come to an end: rows then rest where they are until all
    sweeps are made.
    """
    whole, rows = scheme, len(point.means[0])
    device, looks = point.means[0].device, not within_step()
    behind = _device.is_async(device) or not looks
    free = whole.free_layers()
    units = sum(whole.hamiltonian.layers[l].width for l in free)
    limit = max(units, 1) * tolerance**2
    status = torch.full((rows,), int(Status.SWEEP_LIMIT), device=device)
    sweeps = torch.full((rows,), max_sweeps, device=device)
    active = torch.arange(rows, device=device)
    ended = torch.zeros(rows, dtype=torch.bool, device=device)
    ends: list[tuple[Tensor, Tensor, Tensor]] = []  # index, status and sweeps of the rows that have left
    current = point
    rate: Damping = 0.0 if damping == "adaptive" else float(damping)
    last: Tensor | None = None
    for number in range(1, max_sweeps + 1):
        moved = scheme.sweep(current, rate)
        slack = 1 - (rate if isinstance(rate, float) else rate.squeeze(-1))
        change = _measure_change(current.means, moved.means, free) / slack**2
        lost = ~torch.isfinite(change) | _find_unbounded(scheme, moved, free)
        fresh = ((change <= limit) | lost) & ~ended
        if scheme.uses_variances and (behind or bool(fresh.any())):
            # Means may rest where variances have not settled, as in the first sweep from a start without any.
            fresh &= lost | (_measure_change(current.variances, moved.variances, free) / slack**2 <= limit)
        rests = lost | ended  # where it was
        if behind:
            moved = moved.where(~rests, current)
        elif bool(rests.any()):
            resting = rests.nonzero().squeeze(-1)
            moved.put(resting, current.take(resting))
        if behind or bool(fresh.any()):
            reason = torch.where(lost, int(Status.UNBOUNDED), int(Status.CONVERGED))
            status, sweeps = torch.where(fresh, reason, status), torch.where(fresh, number, sweeps)
            ended |= fresh
        if damping == "adaptive":
            rate = _adapt(rate, change, last)
            last = change
        current = moved
        if not looks:
            continue
        gone = int(ended.sum())  # a device that works behind the host is waited for here alone
        if gone == len(active):
            break
        if gone * _CROWD >= len(active) or (not behind and bool(lost.any())):
            rest, left = _device.split_indices(ended, gone)
            point.put(active[left], current.take(left))
            ends.append((active[left], status[left], sweeps[left]))
            active, ended, status, sweeps = active[rest], ended[rest], status[rest], sweeps[rest]
            scheme, current = scheme.take(rest), current.take(rest)
            rate = rate if isinstance(rate, float) else rate[rest]
            last = None if last is None else last[rest]
    if len(active) == rows:
        return current, status, sweeps
    point.put(active, current)
    indices, status, sweeps = (
        torch.cat(parts) for parts in zip(*ends, (active, status, sweeps), strict=True)
    )
    order = indices.argsort()
    return point, status[order], sweeps[order]


def check_settings(tolerance: float, damping: DampingLike, max_sweeps: int) -> None:
    """Refuses settings out of range, naming them."""
    _checks.real(tolerance, "tolerance", low=torch.finfo(torch.float64).tiny)
    if isinstance(damping, str):
        _checks.one_of(damping, "damping", ("adaptive",))
    else:
        _checks.real(damping, "damping", low=0.0, high=0.999999)
    _checks.positive_int(max_sweeps, "max_sweeps")


def prepare(machine: BoltzmannMachine, start: Numbers, clamp: ClampLike) -> tuple[Hamiltonian, Tensor]:
    """Returns a machine with what is held of it, and visible means, checked, for a solver.

    Raises:
        TypeError, ValueError: start of another shape or infinite, or a clamp that does not fit.
    """
    width = machine.visible_width
    means = _checks.tensor(start, "start", machine.dtype, machine.device)
    if means.dim() != 2 or means.shape[1] != width or len(means) == 0:
        raise ValueError(
            f"start: expected (batch, {width}) with at least one row, received {tuple(means.shape)}"
        )
    known = means.masked_fill(means.isnan(), 0.0)  # NaN is no guess
    _checks.finite(known, "start")
    _checks.squares(known, "start")
    return machine.hamiltonian().clamp(clamp, len(means)), means.clone()


def _measure_change(old: list[Tensor], new: list[Tensor], free: list[int]) -> Tensor:
    """Returns Σ over the free layers of the squared change, (batch,)."""
    total = torch.zeros(len(old[0]), dtype=old[0].dtype, device=old[0].device)
    for l in free:
        total += torch.linalg.vector_norm(new[l] - old[l], dim=-1).square_()
    return total


def _find_unbounded(scheme: Scheme, point: Point, free: list[int]) -> Tensor:
    """Marks the rows that left the region where their real units have a normaliser, (batch,)."""
    lost = torch.zeros(len(point.means[0]), dtype=torch.bool, device=point.means[0].device)
    for l in free:
        if not scheme.hamiltonian.layers[l].discrete:
            c = point.variances[l]
            lost |= (c.amin(-1) < 0) | ~torch.isfinite(c.sum(-1) + point.fields[l].sum(-1))
    return lost


def _adapt(rate: Damping, change: Tensor, last: Tensor | None) -> Damping:
    """Returns the damping of the next sweep, (batch, 1), by the last two changes."""
    if last is None:
        return torch.zeros_like(change).unsqueeze(-1)
    # A sweep that moves further than the one before overshoots, as TAP does at strong couplings. The weight
    # of the new field, 1 - rate, is then cut by a tenth; while moves shrink, damping fades by 2 % a sweep, so
    # that a row which needs none ends at the speed of the undamped map. ``change`` is already per full step.
    assert isinstance(rate, Tensor)
    worse = (change > last).unsqueeze(-1)
    return torch.where(worse, (1 - (1 - rate) * _FIRMER).clamp(max=_STRONGEST), rate * _EASIER)
