"""Relaxed belief propagation: messages of two moments on every edge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, final

import torch
from torch import Tensor

from harmonium.layers import Moments, Theta
from harmonium.machine import Hamiltonian
from harmonium.meanfield.scheme import Damping, Point, Scheme, check_scalar


class _Side(NamedTuple):
    """A neighbouring layer: its index, J (width_l, width_k), and where messages from and to it are kept."""

    neighbour: int
    J: Tensor
    incoming: int
    outgoing: int


@final
class RelaxedBP(Scheme):
    """Moments of every unit i without its neighbour j.

    They are taken at B_{i→j} = Σ_{k≠j} J a_{k→i} and A_{i→j} = -Σ_{k≠j} J² c_{k→i}. A point's ``messages``
    hold for every edge (l, m) means and variances upwards, (batch, width_m, width_l), then downwards,
    (batch, width_l, width_m): the sender is last.
    """

    def __init__(self, hamiltonian: Hamiltonian) -> None:
        check_scalar(hamiltonian, "relaxed belief propagation")
        if hamiltonian.graph.inner:
            raise ValueError(
                "machine: expected no edges within a layer for relaxed belief propagation, received "
                f"{hamiltonian.graph.edges}"
            )
        super().__init__(hamiltonian)

    def begin(self, start: Tensor) -> Point:
        point = super().begin(start)
        for l, m, J in self.hamiltonian.edges:
            for sender, receivers in ((l, J.shape[1]), (m, J.shape[0])):
                for part in (point.means[sender], point.variances[sender]):
                    point.messages.append(part.unsqueeze(1).expand(-1, receivers, -1).clone())
        return point

    def sweep(self, point: Point, damping: Damping) -> Point:
        a, c, B, A, messages = (list(part) for part in point)
        keep = damping.unsqueeze(-1) if isinstance(damping, Tensor) else damping
        for l in self.free_layers():
            B[l], A[l] = self._collect(l, a[l], messages)
            a[l], c[l] = self.moments(l, B[l], A[l])
            for side, field, curvature in self._list_cavities(l, B[l], A[l], messages):
                for index, new in enumerate(self._find_messages(l, a[l], field, curvature), side.outgoing):
                    messages[index] = new + keep * (messages[index] - new)
        return Point(a, c, B, A, messages)

    def free_energy(self, point: Point) -> Tensor:
        """Returns the Bethe free energy, (batch,): units less edges, half from each end.

        Eq. 65 has the sign of ln Z instead. The part of a clamped unit is exact: its own weight, and J x x'
        with another clamped unit.
        """
        layers = range(len(self.hamiltonian.layers))
        clamped = [self.hamiltonian.mask(l) for l in layers]
        pairs = [
            torch.zeros_like(x) if m is None else x * m for x, m in zip(point.means, clamped, strict=True)
        ]
        total = self.hamiltonian.beta_times(self.hamiltonian.coupling_energy(pairs))
        for l in layers:
            B, A = self._collect(l, point.means[l], point.messages)
            whole = self._log_partition(l, point.means[l], B, A)
            total = total + whole.sum(-1, dtype=torch.float64)
            for side, field, curvature in self._list_cavities(l, B, A, point.messages):
                edge = whole.unsqueeze(1) - self._log_partition(l, point.means[l], field, curvature)
                neighbour_clamped = clamped[side.neighbour]
                if neighbour_clamped is not None:
                    edge = edge.masked_fill(neighbour_clamped.unsqueeze(-1), 0.0)
                total = total - 0.5 * edge.sum((-1, -2), dtype=torch.float64)
        return -torch.where(torch.isfinite(total), total, self.first_order(point))

    def covariances(self, edge: int, point: Point, weight: Tensor) -> Tensor:
        """Returns the weighted covariances to second order in J, as in TAP, (width_l, width_m)."""
        hamiltonian, c = self.hamiltonian, point.variances
        l, m = hamiltonian.graph.edges[edge]
        weighted = hamiltonian.beta_times(c[m] * weight.unsqueeze(-1))
        return hamiltonian.J.matrix(edge) * (c[l].t() @ weighted)

    def _list_sides(self, l: int) -> Iterator[_Side]:
        """Yields the neighbouring layers of a layer."""
        for edge, other, above in self.hamiltonian.graph.joints[l]:
            J = self.hamiltonian.J.matrix(edge)
            upwards, downwards = 4 * edge, 4 * edge + 2
            if above:
                yield _Side(other, self._couple(J), downwards, upwards)
            else:
                yield _Side(other, self._couple(J.t()), upwards, downwards)

    def _couple(self, J: Tensor) -> Tensor:
        """Returns β J, for each row where β differs."""
        beta = self.hamiltonian.beta
        return J * (beta.view(-1, 1, 1) if isinstance(beta, Tensor) else beta)

    def _collect(self, l: int, means: Tensor, messages: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Returns B and A from all neighbours, each in the shape of the layer's means."""
        B, A = torch.zeros_like(means), torch.zeros_like(means)
        for side in self._list_sides(l):
            B += (side.J * messages[side.incoming]).sum(-1)
            A -= (side.J.square() * messages[side.incoming + 1]).sum(-1)
        return B, A

    def _list_cavities(
        self, l: int, B: Tensor, A: Tensor, messages: list[Tensor]
    ) -> Iterator[tuple[_Side, Tensor, Tensor]]:
        """Yields every neighbouring layer, with (batch, width_k, width_l) B and A without its units."""
        for side in self._list_sides(l):
            field = B.unsqueeze(1) - (side.J * messages[side.incoming]).mT
            curvature = A.unsqueeze(1) + (side.J.square() * messages[side.incoming + 1]).mT
            yield side, field, curvature

    def _find_messages(self, l: int, a: Tensor, B: Tensor, A: Tensor) -> Moments:
        """Returns the moments sent to a neighbour, (batch, width_k, width_l): values of clamped units."""
        moments = self.hamiltonian.layers[l].moments(B, A, self._theta(l, B))
        clamped = self.hamiltonian.mask(l)
        if clamped is None:
            return moments
        clamped = clamped.unsqueeze(1)
        return Moments(
            torch.where(clamped, a.unsqueeze(1), moments.mean), moments.variance.masked_fill(clamped, 0.0)
        )

    def _log_partition(self, l: int, x: Tensor, B: Tensor, A: Tensor) -> Tensor:
        """Returns ψ(B, A) of every unit, ln of the weight of clamped ones: (batch, [width_k,] width_l)."""
        layer, theta = self.hamiltonian.layers[l], self._theta(l, B)
        clamped = self.hamiltonian.mask(l)
        value = layer.log_partition(B, A, theta)
        if clamped is None:
            return value
        if B.dim() == 3:
            clamped, x = clamped.unsqueeze(1), x.unsqueeze(1)
        return torch.where(clamped, layer.unit_log_weights(x, theta), value)

    def _theta(self, l: int, B: Tensor) -> Theta:
        """Returns natural parameters beside B, which may have a dimension for the receivers of messages."""
        theta = self.hamiltonian.thetas[l]
        return tuple(p.unsqueeze(1) if p.dim() == 2 and B.dim() == 3 else p for p in theta)
