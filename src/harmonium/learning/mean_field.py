"""Expectations from solutions of mean-field equations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, final

import torch
from torch import Tensor

from harmonium import _checks, _device
from harmonium.backends.recording import within_step
from harmonium.learning.expectation import Expectation, ExpectationRequest, Outcome, begin
from harmonium.machine import Hamiltonian
from harmonium.meanfield import DampingLike, Plefka, Point, Scheme, Status, check_settings, iterate

SolutionStart = Literal["data", "persistent", "noise"]
SchemeFactory = Callable[[Hamiltonian], Scheme]

# Sweeps up to which a GPU makes all of them unseen. A recorded sweep takes about a tenth of one that the host
# launches (decision 13, of updates), and solutions take five or more.
_UNSEEN = 50


@final
class MeanField(Expectation):
    """E[S] ≈ -∂F/∂(θ, J) at solutions of a mean-field scheme, averaged over the solutions.

    With naive mean field and the visible layer clamped this is the clamped phase of Salakhutdinov & Hinton
    (2009); with TAP the free phase of Tramel et al. (2018, Alg. 2). The gradient is that of the average of
    the scheme's free energy over its solutions. Rows that lost their normaliser are left out.

    Args:
        scheme: makes a ``meanfield.Scheme`` from a machine with what is held; naive mean field by default.
        clamped: whether the visible layer is clamped to the data, one solution a row.
        start: Start of free solutions: "data" (rows of the batch, without variance), "persistent" (the last
            call's solutions), or "noise" (pure noise).
        solutions: how many free solutions; None is as many as the batch has rows. Starts that the batch has
            no rows for are noise.
        tolerance: see ``meanfield.solve``; None: every row takes all of ``max_sweeps``.
        max_sweeps: see ``meanfield.solve``.
        damping: see ``meanfield.solve``.
    """

    def __init__(
        self,
        scheme: SchemeFactory | None = None,
        *,
        clamped: bool = True,
        start: SolutionStart = "data",
        solutions: int | None = None,
        tolerance: float | None = 1e-4,
        max_sweeps: int = 50,
        damping: DampingLike = 0.0,
    ) -> None:
        tolerance = torch.finfo(torch.float64).tiny if tolerance is None else tolerance
        check_settings(tolerance, damping, max_sweeps)
        self.scheme: SchemeFactory = partial(Plefka, order=1) if scheme is None else scheme
        self.clamped = clamped
        self.start = _checks.one_of(start, "start", ("data", "persistent", "noise"))
        self.solutions = None if solutions is None else _checks.positive_int(solutions, "solutions")
        self.tolerance, self.max_sweeps, self.damping = tolerance, max_sweeps, damping

    @property
    def is_steady(self) -> bool:
        return getattr(self.scheme, "func", self.scheme) is Plefka and self.max_sweeps <= _UNSEEN

    def add(self, request: ExpectationRequest) -> Outcome:
        if self.clamped and (exact := request.add_exact()):
            return exact
        hamiltonian, v = request.hamiltonian, request.v
        start = v if self.clamped else self._start(request)
        rows = len(start.means[0]) if isinstance(start, Point) else len(start)
        scheme = self.scheme(hamiltonian.clamp(v if self.clamped else None, rows, request.complete))
        point, status, sweeps = iterate(
            scheme, start, tolerance=self.tolerance, damping=self.damping, max_sweeps=self.max_sweeps
        )
        bounded = (status != Status.UNBOUNDED).double()
        counted = (sweeps, status == Status.CONVERGED, status == Status.UNBOUNDED)
        means: list[float | Tensor] = [x.double().mean() for x in counted]
        swept, converged, unbounded = means if within_step() else _device.to_floats(means)
        if isinstance(unbounded, float) and unbounded == 1:
            raise ValueError(
                "machine: expected mean-field solutions, received none: in every row real units lost their "
                "normaliser"
            )
        if (
            request.row_weights is not None
            and len(bounded) == len(v)
            and (self.clamped or self.start == "data")
        ):
            bounded = bounded * request.row_weights
        row_weights = (bounded * (request.weight / bounded.sum())).to(hamiltonian.dtype)
        for l in range(len(hamiltonian.layers)):
            request.into.add_terms(l, scheme.statistics(l, point), row_weights)
        for edge, (l, m) in enumerate(hamiltonian.graph.edges):
            weight = row_weights / 2 if l == m else row_weights
            request.into.add_products(
                edge, point.means[l], point.means[m], weight, scheme.covariances(edge, point, weight)
            )
        name = "clamped_mean_field" if self.clamped else "mean_field"
        diagnostics = {
            f"{name}_sweeps": swept,
            f"{name}_converged": converged,
            f"{name}_unbounded": unbounded,
        }
        keeps = not self.clamped and self.start == "persistent"
        return Outcome(point if keeps else None, diagnostics)

    def check_state(self, hamiltonian: Hamiltonian, state: Any) -> None:
        if state is None or self.clamped or self.start != "persistent":
            return
        _require_point(state)
        one = torch.zeros(1, hamiltonian.visible_width, dtype=hamiltonian.dtype, device=hamiltonian.device)
        expected = self.scheme(hamiltonian).begin(one)._asdict()
        rows = len(state.means[0])
        for part, tensors in expected.items():
            shapes = [((rows, *x.shape[1:]), x.dtype) for x in tensors]
            received = [(tuple(x.shape), x.dtype) for x in getattr(state, part)]
            if rows == 0 or received != shapes:
                raise ValueError(f"state.{part}: expected {shapes}, received {received}")

    def _start(self, request: ExpectationRequest) -> Tensor | Point:
        hamiltonian, v, state, generator = request.hamiltonian, request.v, request.state, request.generator
        rows = request.own_chains(self.solutions, "solutions")
        if self.start == "noise":
            return hamiltonian.visible_states(begin(hamiltonian, v, rows, "noise", generator).states)
        if state is not None:
            return _require_point(state)
        data = v[:rows]
        if len(data) < rows:  # the same start twice would be the same solution twice
            noise = hamiltonian.visible_states(
                begin(hamiltonian, v, rows - len(data), "noise", generator).states
            )
            data = torch.cat([data, noise])
        return data


def _require_point(state: Any) -> Point:
    if not isinstance(state, Point):
        raise ValueError("state: expected what a mean-field rule returned, or None, not another's")
    return state
