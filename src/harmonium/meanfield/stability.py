"""Plefka's condition and the stability of solutions of the expansion in the couplings."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor

from harmonium import _random
from harmonium.layers import Layer
from harmonium.machine import Hamiltonian
from harmonium.meanfield.plefka import Plefka
from harmonium.meanfield.scheme import Point
from harmonium.meanfield.solution import Solution

_STEPS = 60  # of Lanczos' method: the edge of a random matrix of 1,284 units is then known to 0.1 %
_STEP = 3e-3  # of differences in a unit's field, in its standard deviations: rounding and h² are then 1e-5
_TINY = 1e-5  # of the norm: what is left of a vector after its projections is then rounding
_BLOCK = 1 << 22  # numbers of a vector of all units that are worked on together

Vector = list[Tensor]
"""Numbers of all units, for each layer (rows, entries_l)."""


@torch.no_grad()
def with_stability(hamiltonian: Hamiltonian, solution: Solution, order: int) -> Solution:
    """Returns a solution with Plefka's number and the stability of its rows (Plefka 1982; FORMULAS §6).

    Both are largest eigenvalues of a product of couplings and of moments of single units. Lanczos' method
    finds them for all rows together, by 60 steps of as many products as a sweep has. Spins all alike have
    Plefka's number Σ_j J_ij² (1 - m_j²)².

    Args:
        hamiltonian: the machine that was solved, with what was clamped.
        solution: its fixed points, one a row.
        order: Order of the expansion, 1 to 3.
    """
    point = Point(solution.means, solution.variances, solution.fields, solution.curvatures, [])
    size = max(1, _BLOCK // sum(layer.width * layer.columns_per_unit for layer in hamiltonian.layers))
    parts = []
    for first in range(0, len(point.means[0]), size):
        rows = slice(first, first + size)
        parts.append(_find_stability(hamiltonian.select_rows(rows), point.take(rows), order))
    plefka, stability = (torch.cat(values) for values in zip(*parts, strict=True))
    return solution._replace(plefka=plefka, stability=stability)


def _find_stability(hamiltonian: Hamiltonian, point: Point, order: int) -> tuple[Tensor, Tensor]:
    """Returns Plefka's number and the stability of some rows, each (rows,) float64."""
    scheme = Plefka(hamiltonian, max(order, 2))
    layers = range(len(hamiltonian.layers))
    units = [_Units(scheme, l, point, order) for l in layers]
    powers = range(2, order + 1)

    def join_squares(x: Vector) -> Vector:
        return [-scheme.sum_neighbours(l, 2, x.__getitem__) for l in layers]

    def join(x: Vector) -> Vector:
        """Returns what units do to one another: second derivatives of the terms of pairs in -F."""
        parts = [unit.split(entries) for unit, entries in zip(units, x, strict=True)]
        fields = [[hamiltonian.field(l, [part[0] for part in parts])] for l in layers]
        for power in powers:
            cumulants = [part[power - 1] for part in parts]
            factor = -0.5 if power == 2 else 1 / 6
            for l in layers:
                fields[l].append(scheme.sum_neighbours(l, power, cumulants.__getitem__) * factor)
        return [torch.cat(field, -1) for field in fields]

    generator = _random.as_generator(0, hamiltonian.device)
    starts = [_random.normal((1, unit.entries), generator, hamiltonian.dtype) for unit in units]
    plefka = _find_largest(join_squares, [unit.square for unit in units], [unit.blocks for unit in units])
    stability = 1 - _find_largest(join, [unit.respond for unit in units], starts)
    smallest = torch.stack([unit.slack.amin(-1) for unit in units]).amin(0).double()
    return plefka, torch.where(smallest > 0, stability, torch.minimum(smallest, stability))


class _Units:
    """The units of a layer at a point, as they respond to changes of the field that goes with each cumulant.

    An entry of a vector is a change of a mean, of a variance (or covariance block), or of a third cumulant.

    Attributes:
        blocks: second cumulants, in blocks, (rows, n_units · q²).
        entries: of a vector, the first ``order`` cumulants side by side.
        slack: curvatures of F by the mean of a single unit, times its variance, (rows, width).
    """

    def __init__(self, scheme: Plefka, l: int, point: Point, order: int) -> None:
        self._layer: Layer = scheme.hamiltonian.layers[l]
        a, c = point.means[l], point.variances[l]
        second = [scheme.find_cumulant(2, m, point.means, point.variances) for m in range(len(point.means))]
        self.blocks = second[l]
        self._sizes = [a.shape[1], *([self.blocks.shape[1]] * (order > 1)), *([a.shape[1]] * (order > 2))]
        self.entries = sum(self._sizes)
        A = scheme.sum_neighbours(l, 2, second.__getitem__) if order > 1 else torch.zeros_like(self.blocks)
        self.slack = torch.ones_like(a)
        q = self._layer.columns_per_unit
        if q > 1:
            block = self._square_blocks(self.blocks)
            identity = torch.eye(q, dtype=a.dtype, device=a.device)
            self._response = torch.linalg.solve(identity - block @ self._square_blocks(A), block)
            self._mean = self._layer.by_unit(a).unsqueeze(-1)
            return
        if self._layer.two_values is not None:
            low, high = self._layer.two_values
            slope = low + high - 2 * a  # ∂c/∂a, and ∂κ/∂a below
            legs = [torch.ones_like(a), slope, slope.square() - 2 * c][:order]
            if order > 2:
                A = A - slope * scheme.sum_neighbours(l, 3, lambda m: scheme.find_cumulant(3, m, *point[:2]))
            self.slack = 1 - c * A
            weight = c / self.slack.clamp(min=torch.finfo(c.dtype).tiny)
            self._matrix = [[weight * x * y for y in legs] for x in legs]
            return
        third, fourth = self._find_cumulants(scheme.hamiltonian, l, point) if order > 1 else (c, c)
        covariance, legs = [[c, third], [third, fourth + 2 * c.square()]], [c, third]
        damping = -A / (1 - A * c)
        self._matrix = [
            [covariance[i][j] - damping * legs[i] * legs[j] for j in range(order)] for i in range(order)
        ]

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """Returns the entries of each cumulant."""
        return torch.split(x, self._sizes, -1)

    def square(self, x: Tensor) -> Tensor:
        """Returns C x C for every unit, C its covariance block."""
        if self._layer.columns_per_unit == 1:
            return self.blocks.square() * x
        block = self._square_blocks(self.blocks)
        return (block @ self._square_blocks(x) @ block).flatten(-3)

    def respond(self, x: Tensor) -> Tensor:
        """Returns the changes of the cumulants under the fields x, at fixed cumulants of other units."""
        parts = self.split(x)
        if self._layer.columns_per_unit == 1:
            terms = [[w * part for w, part in zip(line, parts, strict=True)] for line in self._matrix]
            return torch.cat([reduce(torch.add, row) for row in terms], -1)
        a, field = self._mean, self._layer.by_unit(parts[0]).unsqueeze(-1)
        if len(parts) > 1:
            Y = self._square_blocks(parts[1])
            field = field + Y.diagonal(dim1=-2, dim2=-1).unsqueeze(-1) - (Y + Y.mT) @ a
        change = self._response @ field
        joined = [change.flatten(-3)]
        if len(parts) > 1:
            cross = change @ a.mT
            joined.append((torch.diag_embed(change.squeeze(-1)) - cross - cross.mT).flatten(-3))
        return torch.cat(joined, -1)

    def _square_blocks(self, x: Tensor) -> Tensor:
        """Returns blocks as matrices, (rows, n_units, q, q)."""
        q = self._layer.columns_per_unit
        return x.view(*x.shape[:-1], self._layer.n_units, q, q)

    def _find_cumulants(self, hamiltonian: Hamiltonian, l: int, point: Point) -> tuple[Tensor, Tensor]:
        """Returns third and fourth cumulants, by differences of the variance in the field; 0 if clamped."""
        c, clamped = point.variances[l], hamiltonian.mask(l)
        theta = tuple(x.double() for x in hamiltonian.thetas[l])
        B, A = point.fields[l].double(), point.curvatures[l].double()
        step = _STEP / c.double().clamp(min=torch.finfo(c.dtype).tiny).sqrt()
        below, here, above = (self._layer.moments(B + k * step, A, theta).variance for k in (-1, 0, 1))
        third = ((above - below) / (2 * step)).to(c.dtype)
        fourth = ((above - 2 * here + below) / step.square()).to(c.dtype)
        if clamped is not None:
            third, fourth = third.masked_fill(clamped, 0), fourth.masked_fill(clamped, 0)
        return third, fourth


def _find_largest(
    join: Callable[[Vector], Vector], units: list[Callable[[Tensor], Tensor]], start: Vector
) -> Tensor:
    """Returns the largest eigenvalue of W^½ T W^½ for every row, by Lanczos' method in the metric W.

    Args:
        join: the symmetric T, whose diagonal is 0.
        units: W of each layer, symmetric and positive.
        start: what the Krylov space begins with.
    """

    def weigh(x: Vector) -> Vector:
        return [unit(part) for unit, part in zip(units, x, strict=True)]

    def dot(x: Vector, y: Vector) -> Tensor:
        products = [(p * q).sum(-1, keepdim=True, dtype=torch.float64) for p, q in zip(x, y, strict=True)]
        return reduce(torch.add, products)

    def scaled(x: Vector, by: Tensor) -> Vector:
        return [part * by.to(part.dtype) for part in x]

    x, before = start, [torch.zeros_like(part) for part in start]
    image = weigh(x)
    norm = dot(x, image).clamp(min=0).sqrt()
    inverse = torch.where(norm > 0, 1 / norm, 0.0)
    x, image, off = scaled(x, inverse), scaled(image, inverse), torch.zeros_like(norm)
    diagonal, off_diagonal = list[Tensor](), list[Tensor]()
    for _ in range(min(_STEPS, sum(part.shape[-1] for part in start))):
        y = join(image)
        along = dot(image, y)
        moved = zip(y, scaled(x, along), scaled(before, off), strict=True)
        y = [part - here - there for part, here, there in moved]
        diagonal.append(along)
        before, image = x, weigh(y)
        norm = dot(y, image).clamp(min=0).sqrt()
        size = torch.cat([along.abs(), off], -1).amax(-1, keepdim=True)
        off = torch.where(norm > _TINY * size, norm, 0.0)
        off_diagonal.append(off)
        inverse = torch.where(off > 0, 1 / off, 0.0)
        x, image = scaled(y, inverse), scaled(image, inverse)
        if not bool((off > 0).any()):
            break
    tridiagonal = torch.diag_embed(torch.cat(diagonal, -1))
    if len(diagonal) > 1:
        edge = torch.diag_embed(torch.cat(off_diagonal[:-1], -1), 1)
        tridiagonal = tridiagonal + edge + edge.mT
    # Not eigvalsh, which takes another routine for subclasses of tensors, with other last bits.
    largest: Tensor = torch.linalg.eigh(tridiagonal).eigenvalues[..., -1]
    return largest
