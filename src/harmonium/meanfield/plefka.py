"""The expansion of the free energy in the couplings: naive mean field, TAP and the third order."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.backends import product
from harmonium.layers import Layer
from harmonium.machine import Hamiltonian
from harmonium.meanfield.scheme import Damping, Point, Scheme, check_scalar


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
        super().__init__(hamiltonian)
        self.order, self.uses_variances = order, order > 1
        if order > 3:
            raise ValueError(f"order: expected 1, 2 or 3, received {order}")
        layers = hamiltonian.layers
        # J² negative, so that a product with variances is A at once.
        edges = zip(hamiltonian.graph.edges, hamiltonian.J, strict=True) if order > 1 else ()
        squares = [_square_couplings(layers[l], layers[m], J).neg_() for (l, m), J in edges]
        self._patterns = [
            None if pattern is None else pattern.squared() for pattern in hamiltonian.graph.patterns
        ]
        self._powers = {2: squares} if order > 1 else {}
        self._states: list[tuple[float, float]] = []
        if order > 2:
            check_scalar(hamiltonian, "the third order")
            for layer in layers:
                if layer.two_values is None:
                    raise ValueError(f"order: expected at most 2 for {layer}, received {order}")
                self._states.append(layer.two_values)
            self._powers[3] = [-J * square for J, square in zip(hamiltonian.J, squares, strict=True)]

    def sweep(self, point: Point, damping: Damping) -> Point:
        a, c, B, A, _ = (list(part) for part in point)
        damped = not isinstance(damping, float) or damping > 0
        for l in self.free_layers():
            layer = self.hamiltonian.layers[l]
            field = self.hamiltonian.field(l, a)
            curvature: Tensor | float = 0.0
            if self.order > 1:
                block = self.sum_neighbours(l, 2, lambda m: self.find_cumulant(2, m, a, c))
                field = _add_times(field, layer, block, a[l])  # Onsager's reaction: A a, with A = -Σ J² c'
                curvature = _take_diagonals(layer, block)
            if self.order > 2:
                low, high = self._states[l]
                slope = (low + high - 2 * a[l]).square() - 2 * (a[l] - low) * (high - a[l])  # ∂κ/∂a
                thirds = self.sum_neighbours(l, 3, lambda m: self.find_cumulant(3, m, a, c))
                field = field + slope * thirds / 6
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
        hamiltonian, (a, c, *_) = self.hamiltonian, point
        total = self.first_order(point)
        for edge, (l, m) in enumerate(hamiltonian.graph.edges):
            for power, tensors in self._powers.items():
                x, y = (self.find_cumulant(power, k, a, c) for k in (l, m))
                pairs = (self._times(x, tensors[edge], edge) * y).sum(-1, dtype=torch.float64)
                factor = (-0.5 if power == 2 else 1 / 6) / (2 if l == m else 1)
                total = total + hamiltonian.beta_times(pairs, power) * factor
        return -total

    def covariances(self, edge: int, point: Point, weight: Tensor) -> Tensor | None:
        if self.order == 1:
            return None
        hamiltonian, (a, c, *_) = self.hamiltonian, point
        l, m = hamiltonian.graph.edges[edge]
        below, above = hamiltonian.layers[l], hamiltonian.layers[m]
        J = hamiltonian.J[edge]
        beta = hamiltonian.beta_times(weight.unsqueeze(-1))
        x, y = (self.find_cumulant(2, k, a, c) for k in (l, m))
        pattern = self._patterns[edge]
        pairs = product(x.t(), y * beta) if pattern is None else pattern.products(x, y * beta)
        if pairs.shape == J.shape:
            total = pairs.mul_(J)
        elif pattern is not None:
            p, q = below.columns_per_unit, above.columns_per_unit
            total = torch.einsum("estuv,etv->esu", pairs.view(-1, p, p, q, q), J.view(-1, p, q)).flatten()
        else:
            p, q = below.columns_per_unit, above.columns_per_unit
            pairs = pairs.view(below.n_units, p, p, above.n_units, q, q)
            by_unit = J.view(below.n_units, p, above.n_units, q)
            total = torch.einsum("istjuv,itjv->isju", pairs, by_unit).reshape(J.shape)
        if self.order > 2:
            x, y = (self.find_cumulant(3, k, a, c) for k in (l, m))
            y = y * hamiltonian.beta_times(beta)
            thirds = product(x.t(), y) if pattern is None else pattern.products(x, y)
            total.addcmul_(thirds, self._powers[2][edge], value=-0.5)
        return total

    def sum_neighbours(self, l: int, power: int, cumulants: Callable[[int], Tensor]) -> Tensor:
        """Sums numbers of the neighbouring layers times a power of their coupling, with its power of β.

        Args:
            l: index of the layer.
            power: of the couplings; 2 has the sign of A: -J².
            cumulants: Numbers of a layer given its index, such as its second cumulants in blocks,
                (batch, entries).

        Returns:
            (batch, entries).
        """
        total: Tensor | None = None
        for edge, other, above in self.hamiltonian.graph.joints[l]:
            tensor = self._powers[power][edge]
            part = self._times(cumulants(other), tensor, edge, above)
            total = part if total is None else total + part
        if total is None:
            total = torch.zeros_like(cumulants(l))
        return self.hamiltonian.beta_times(total, power)

    def _times(self, x: Tensor, tensor: Tensor, edge: int, transposed: bool = False) -> Tensor:
        """Multiplies x by a power of the coupling of an edge, or by its transpose."""
        pattern = self._patterns[edge]
        if pattern is not None:
            return pattern.times(x, tensor, transposed)
        return product(x, tensor.t() if transposed else tensor)

    def find_cumulant(self, power: int, l: int, a: list[Tensor], c: list[Tensor]) -> Tensor:
        """Returns the second cumulants of a layer, in blocks, or the third, κ, of two-state units.

        Args:
            power: 2 or 3.
            l: index of the layer.
            a: Means, for each layer (batch, width_l).
            c: Variances, for each layer (batch, width_l).

        Returns:
            (batch, n_units · q²) of units with q columns.
        """
        if power == 2:
            return _form_covariances(self.hamiltonian.layers[l], a[l], c[l])
        # Of a unit with the states p and q and the mean a: variance (a-p)(q-a), times p+q-2a.
        low, high = self._states[l]
        return (a[l] - low) * (high - a[l]) * (low + high - 2 * a[l])


# Second moments within units: a unit with q columns has a covariance block of q², flattened, and a layer
# blocks (batch, n_units · q²). With one column the block is the variance, and all below the plain product.


def _square_couplings(below: Layer, above: Layer, J: Tensor) -> Tensor:
    """Returns J ⊗ J between the blocks of two layers, (blocks below, blocks above)."""
    p, q = below.columns_per_unit, above.columns_per_unit
    if p == q == 1:
        return J.square()
    if J.dim() == 1:  # by pair
        J = J.view(-1, p, q)
        return torch.einsum("esj,euk->esujk", J, J).flatten()
    J = J.view(below.n_units, p, above.n_units, q)
    return torch.einsum("isjt,iujv->isujtv", J, J).reshape(below.n_units * p * p, above.n_units * q * q)


def _form_covariances(layer: Layer, a: Tensor, c: Tensor) -> Tensor:
    """Returns covariance blocks from means and variances; of one-hot units diag(a) - a aᵀ."""
    if layer.columns_per_unit == 1:
        return c
    mean = layer.by_unit(a)
    block = torch.diag_embed(mean) - mean.unsqueeze(-1) * mean.unsqueeze(-2)
    return block.flatten(-3)


def _add_times(field: Tensor, layer: Layer, A: Tensor, a: Tensor) -> Tensor:
    """Returns field + A a, (batch, width), written over the field."""
    q = layer.columns_per_unit
    if q == 1:
        return field.addcmul_(A, a)
    blocks = A.view(*A.shape[:-1], layer.n_units, q, q)
    return field.add_((blocks @ layer.by_unit(a).unsqueeze(-1)).squeeze(-1).flatten(-2))


def _take_diagonals(layer: Layer, A: Tensor) -> Tensor:
    """Returns the diagonal of every block, (batch, width)."""
    q = layer.columns_per_unit
    if q == 1:
        return A
    return A.view(*A.shape[:-1], layer.n_units, q, q).diagonal(dim1=-2, dim2=-1).flatten(-2)
