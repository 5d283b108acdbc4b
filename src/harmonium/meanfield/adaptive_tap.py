"""Adaptive TAP: units beside a Gaussian of the same means and variances."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import final

import torch
from torch import Tensor

from harmonium.machine import Hamiltonian
from harmonium.meanfield.scheme import Damping, Point, Scheme, check_scalar

_ELEMENTS = 1 << 25  # numbers in the matrices of the rows that are worked on together


@final
class AdaTAP(Scheme):
    """Expectation consistency between independent units and a Gaussian with the couplings.

    With D = 1/A₂, g = D B₂, and T = J + J (A₂ - J)⁻¹ J, the step of Alg. 3 back to the units is

        A₁ = -T_ii / (1 + D T_ii)        B₁ = ((T g)_i - T_ii g_i) / (1 + D T_ii)

    which loses no digits as D goes to 0: a saturated unit has a small D, a clamped one D = 0 and g its value.
    """

    def __init__(self, hamiltonian: Hamiltonian) -> None:
        check_scalar(hamiltonian, "adaptive TAP")
        super().__init__(hamiltonian)
        layers, groups = hamiltonian.layers, hamiltonian.graph.sides("adaptive TAP")
        widths = [sum(layers[l].width for l in group) for group in groups]
        if widths[0] <= widths[1]:
            groups, widths = groups[::-1], widths[::-1]
        self._order = [*groups[0], *groups[1]]  # the outer colour first, then the inner one, which is smaller
        self._span: dict[int, slice] = {}  # the columns of a layer among the layers of its colour
        for group in groups:
            ends = [0, *accumulate(layers[l].width for l in group)]
            self._span |= {l: slice(*columns) for l, columns in zip(group, pairwise(ends), strict=True)}
        self._outer = frozenset(groups[0])
        self._J = torch.zeros(*widths, dtype=hamiltonian.dtype, device=hamiltonian.device)
        for l, m, J in hamiltonian.edges:
            self._take_block(self._J, l, m).copy_(J)

    def sweep(self, point: Point, damping: Damping) -> Point:
        a, c, B, A, _ = (list(part) for part in point)
        fields, curvatures = self._react(point)
        for l in self.free_layers():
            B[l] = fields[l] + damping * (B[l] - fields[l])
            A[l] = curvatures[l] + damping * (A[l] - curvatures[l])
            a[l], c[l] = self.moments(l, B[l], A[l])
        return Point(a, c, B, A, [])

    def free_energy(self, point: Point) -> Tensor:
        """Returns F, (batch,), with -F = Σ ln Z₁ + ln Z₂ - Σ ln Z₁₂.

        Where the Gaussian has no normaliser, F is that of naive mean field.
        """
        D, g, B, A = self._concatenate(point)
        total = self._sum_gaussian_terms(D, g)
        slack = 1 + A * D
        units = self._split(slack.log() + (A * g.square() - 2 * B * g - D * B.square()) / slack)
        for l in range(len(point.means)):
            a, c, field, curvature = (part[l] for part in point[:4])
            exponent = 0.5 * curvature * (a.square() + c) - field * a  # entropy has ψ together with this
            unit, clamped = 0.5 * units[l] - exponent, self.hamiltonian.mask(l)
            if clamped is not None:
                unit = unit.masked_fill(clamped, 0.0)
            total = total + self.entropy(l, point) + unit.sum(-1, dtype=torch.float64)
        return -torch.where(torch.isfinite(total), total, self.first_order(point))

    def covariances(self, edge: int, point: Point, weight: Tensor) -> Tensor:
        """Returns the weighted covariances under the Gaussian, (width_l, width_m)."""
        D, g, _, _ = self._concatenate(point)
        total = torch.zeros_like(self._J)
        for rows, gaussian in self._list_gaussians(D, g, torch.nonzero(weight).squeeze(-1)):
            total += (weight[rows].view(-1, 1, 1) * gaussian.covariance()).sum(0)
        return self._take_block(total, *self.hamiltonian.graph.edges[edge])

    def _take_block(self, joined: Tensor, l: int, m: int) -> Tensor:
        """Returns the part of a matrix from the outer to the inner colour that joins l and m, l first."""
        outer, inner = (l, m) if l in self._outer else (m, l)
        block = joined[self._span[outer], self._span[inner]]
        return block if outer == l else block.t()

    def _react(self, point: Point) -> tuple[list[Tensor], list[Tensor]]:
        """Returns B₁ and A₁ that the Gaussian asks for, NaN where it has no normaliser."""
        D, g, _, _ = self._concatenate(point)
        fields, curvatures = torch.empty_like(D), torch.empty_like(D)
        for rows, gaussian in self._list_gaussians(D, g):
            slack = 1 + D[rows] * gaussian.diagonal
            curvatures[rows] = -gaussian.diagonal / slack
            fields[rows] = (gaussian.reply - gaussian.diagonal * g[rows]) / slack
        return self._split(fields), self._split(curvatures)

    def _sum_gaussian_terms(self, D: Tensor, g: Tensor) -> Tensor:
        """Returns ½ g·T g - ½ ln det(1 - D^½ J D^½), (batch,), float64."""
        gaussians = (gaussian for _, gaussian in self._list_gaussians(D, g))
        return torch.cat([0.5 * (part.energy - part.log_determinant).double() for part in gaussians])

    def _concatenate(self, point: Point) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns D, g, B and A of all units, outer colour first: (batch, units)."""
        a, c, B, A = (torch.cat([part[l] for l in self._order], -1) for part in point[:4])
        slack = 1 - A * c
        return c / slack, (a - B * c) / slack, B, A

    def _split(self, x: Tensor) -> list[Tensor]:
        """Returns the layers of a row of all units."""
        widths = [self.hamiltonian.layers[l].width for l in self._order]
        parts = dict(zip(self._order, torch.split(x, widths, -1), strict=True))
        return [parts[l].contiguous() for l in range(len(parts))]

    def _list_gaussians(
        self, D: Tensor, g: Tensor, indices: Tensor | None = None
    ) -> Iterator[tuple[Tensor, _Gaussian]]:
        """Yields chunks of rows, of all or of these, whose matrices fit the memory, with their Gaussians."""
        outer, inner = self._J.shape
        size = max(1, _ELEMENTS // max(1, inner * (outer + 3 * inner)))
        indices = torch.arange(len(D), device=D.device) if indices is None else indices
        beta = torch.as_tensor(self.hamiltonian.beta, dtype=D.dtype, device=D.device)
        for rows in torch.split(indices, size):
            J = self._J * (beta[rows] if beta.dim() else beta).view(-1, 1, 1)
            yield rows, _Gaussian(J, D[rows], g[rows])


class _Gaussian:
    """A Gaussian with precision 1/D - J and field g/D, seen through T = J + J (1/D - J)⁻¹ J.

    Attributes:
        diagonal: T_ii, (rows, units), NaN where there is no normaliser.
        reply: T g, (rows, units).
        energy: g·T g, (rows,).
        log_determinant: ln det(1 - D^½ J D^½), (rows,).
    """

    def __init__(self, J: Tensor, D: Tensor, g: Tensor) -> None:
        width = J.shape[-2]  # units of the outer colour, which come first
        outer, inner = D[:, :width], D[:, width:]
        self._J, self._outer, self._root = J, outer, inner.sqrt()
        Q = (J.mT * outer.unsqueeze(1)) @ J
        root = self._root.unsqueeze(-1)
        identity = torch.eye(Q.shape[-1], dtype=Q.dtype, device=Q.device)
        self._cholesky, info = torch.linalg.cholesky_ex(identity - root * Q * root.mT)
        factor = self._cholesky
        across = torch.linalg.solve_triangular(factor, root * J.mT, upper=False).square().sum(1)
        within = torch.linalg.solve_triangular(factor, root * Q, upper=False).square().sum(1)
        self.diagonal = torch.cat([across, Q.diagonal(dim1=-2, dim2=-1) + within], -1)
        from_inner = (J @ g[:, width:, None]).squeeze(-1)
        from_outer = (J.mT @ g[:, :width, None]).squeeze(-1)
        pull = from_outer + (J.mT @ (outer * from_inner).unsqueeze(-1)).squeeze(-1)
        solved = torch.cholesky_solve(root * pull.unsqueeze(-1), factor)
        reply = from_inner + (J @ (root * solved)).squeeze(-1)
        back = from_outer + (J.mT @ (outer * reply).unsqueeze(-1)).squeeze(-1)
        self.reply = torch.cat([reply, back], -1)
        self.diagonal[info > 0] = torch.nan
        self.energy = (g * self.reply).sum(-1)
        self.log_determinant = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        self.log_determinant[info > 0] = torch.nan

    def covariance(self) -> Tensor:
        """Returns the covariance between the outer and the inner units, (rows, outer, inner)."""
        root = self._root.unsqueeze(-1)
        whitened = torch.linalg.solve_triangular(self._cholesky, root * self._J.mT, upper=False)
        inner = torch.linalg.solve_triangular(self._cholesky.mT, whitened, upper=True)
        covariance: Tensor = self._outer.unsqueeze(-1) * (root * inner).mT
        return covariance
