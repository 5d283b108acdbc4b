"""The expansion of the free energy in the couplings: naive mean field, TAP and the third order."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.machine import Hamiltonian
from harmonium.meanfield import blocks
from harmonium.meanfield.scheme import Damping, Point, Scheme, check_scalar
from harmonium.products import product


@final
class Plefka(Scheme):
    """The free energy at given means and variances, to some order in the couplings (FORMULAS §6).

        -F = Σ_units [ψ(B, A) - B a + ½ A (a² + c)] + Σ_pairs [J a a' + ½ J² c c' + ⅙ J³ κ κ']

    Order 1 stops at J (naive mean field, a bound), order 2 at J² (TAP; Tramel et al. 2018, Eqs. 27-33), order
    3 at J³, with third cumulants κ that the mean of a two-state unit tells (Georges & Yedidia 1991). Its
    stationary points are A = -Σ J² c', B = Σ J a' + A a. Units with several columns have covariance blocks
    in the place of c.

    Args:
        hamiltonian: see ``Scheme``.
        order: 1, 2, or 3; 3 is for Bernoulli and Spin layers.

    Raises:
        ValueError: another order, or a layer that the third order does not know.
    """

    def __init__(self, hamiltonian: Hamiltonian, order: int = 2) -> None:
        order = _checks.positive_int(order, "order")
        super().__init__(hamiltonian, uses_variances=order > 1)
        self.order = order
        if order > 3:
            raise ValueError(f"order: expected 1, 2 or 3, received {order}")
        layers = hamiltonian.layers
        # Negative, so that a product with variances is A at once.
        self._squares: list[Tensor] = []
        if order > 1:
            self._squares = [blocks.squares(layers[l], layers[m], J).neg_() for l, m, J in hamiltonian.edges]
        self._cubes: list[Tensor] = []
        self._states: list[tuple[float, float]] = []
        if order > 2:
            check_scalar(hamiltonian, "the third order")
            for layer in layers:
                if layer.two_values is None:
                    raise ValueError(f"order: expected at most 2 for {layer}, received {order}")
                self._states.append(layer.two_values)
            pairs = zip(hamiltonian.couplings, self._squares, strict=True)
            self._cubes = [-J * square for J, square in pairs]

    def sweep(self, point: Point, damping: Damping) -> Point:
        a, c, B, A, _ = (list(part) for part in point)
        damped = not isinstance(damping, float) or damping > 0
        for l in self.free_layers():
            layer = self.hamiltonian.layers[l]
            field = self.hamiltonian.field(l, a)
            curvature: Tensor | float = 0.0
            if self.order > 1:
                block = self._neighbours(l, self._squares, [self._covariance(k, a, c) for k in range(len(a))])
                field = blocks.add_times(field, layer, block, a[l])
                curvature = blocks.diagonal(layer, block)
            if self.order > 2:
                cumulants = [self._cumulant(k, a) for k in range(len(a))]
                slope = self._slope(l, a)
                field = field + slope * self._neighbours(l, self._cubes, cumulants) / 6
            if damped:
                field = torch.lerp(field, B[l], damping)
                if isinstance(curvature, Tensor):
                    curvature = torch.lerp(curvature, A[l], damping)
            a[l], c[l] = self.moments(l, field, curvature)
            B[l] = field
            if isinstance(curvature, Tensor):
                A[l] = curvature
        return Point(a, c, B, A, [])

    def free_energy(self, point: Point) -> Tensor:
        hamiltonian = self.hamiltonian
        total = self.first_order(point)
        for edge, (l, m) in enumerate(hamiltonian.graph.edges):
            for power, factor, tensors in ((2, -0.5, self._squares), (3, 1 / 6, self._cubes)):
                if self.order >= power:
                    x, y = (self._term(power, k, point) for k in (l, m))
                    pairs = (product(x, tensors[edge]) * y).sum(-1, dtype=torch.float64)
                    factor = factor / 2 if l == m else factor
                    total = total + hamiltonian.beta_times(pairs, power) * factor
        return -total

    def covariances(self, edge: int, point: Point, weight: Tensor) -> Tensor | None:
        if self.order == 1:
            return None
        hamiltonian = self.hamiltonian
        l, m = hamiltonian.graph.edges[edge]
        below, above = hamiltonian.layers[l], hamiltonian.layers[m]
        J = hamiltonian.couplings[edge]
        beta = hamiltonian.beta_times(weight.unsqueeze(-1))
        x, y = (self._term(2, k, point) for k in (l, m))
        pairs = product(x.t(), y * beta)
        if pairs.shape == J.shape:
            total = pairs.mul_(J)
        else:
            p, q = blocks.columns(below), blocks.columns(above)
            pairs = pairs.view(below.n_units, p, p, above.n_units, q, q)
            by_unit = J.view(below.n_units, p, above.n_units, q)
            total = torch.einsum("istjuv,itjv->isju", pairs, by_unit).reshape(J.shape)
        if self.order > 2:
            x, y = (self._term(3, k, point) for k in (l, m))
            total.addcmul_(product(x.t(), y * hamiltonian.beta_times(beta)), self._squares[edge], value=-0.5)
        return total

    def _neighbours(self, l: int, tensors: list[Tensor], x: list[Tensor]) -> Tensor:
        """Σ over the neighbouring layers of x times their coupling's square or cube, with its power of β."""
        total: Tensor | None = None
        for edge, other, above in self.hamiltonian.graph.joints[l]:
            part = product(x[other], tensors[edge].t() if above else tensors[edge])
            total = part if total is None else total + part
        if total is None:
            total = torch.zeros_like(x[l])
        return self.hamiltonian.beta_times(total, 2 if tensors is self._squares else 3)

    def _term(self, power: int, l: int, point: Point) -> Tensor:
        if power == 2:
            return self._covariance(l, point.means, point.variances)
        return self._cumulant(l, point.means)

    def _covariance(self, l: int, a: list[Tensor], c: list[Tensor]) -> Tensor:
        return blocks.covariance(self.hamiltonian.layers[l], a[l], c[l])

    def _cumulant(self, l: int, a: list[Tensor]) -> Tensor:
        # Of a unit with the states p and q and the mean a: variance (a-p)(q-a), times p+q-2a.
        low, high = self._states[l]
        return (a[l] - low) * (high - a[l]) * (low + high - 2 * a[l])

    def _slope(self, l: int, a: list[Tensor]) -> Tensor:
        """∂κ/∂a."""
        low, high = self._states[l]
        return (low + high - 2 * a[l]).square() - 2 * (a[l] - low) * (high - a[l])
