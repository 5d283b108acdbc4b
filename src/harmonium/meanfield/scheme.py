"""One approximation of a machine by independent units: what every mean-field solver iterates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import NamedTuple, Self

import torch
from torch import Tensor

from harmonium.layers import Theta
from harmonium.machine import Clamp, Hamiltonian

Damping = float | Tensor


class Point(NamedTuple):
    """Where an iteration stands; every entry is a list of tensors whose first dimension is the batch.

    Attributes:
        means: a_l, (batch, width_l).
        variances: c_l, (batch, width_l).
        fields: B_l, (batch, width_l).
        curvatures: diagonal of A_l, (batch, width_l); free units have the law p(x | B, A).
        messages: what a scheme keeps beside these.
    """

    means: list[Tensor]
    variances: list[Tensor]
    fields: list[Tensor]
    curvatures: list[Tensor]
    messages: list[Tensor]

    def take(self, rows: Tensor | slice) -> Point:
        """The same for some of the rows."""
        return Point(*([x[rows] for x in part] for part in self))

    def put(self, rows: Tensor, other: Point) -> None:
        """Writes the rows of another point over some of the rows, in place."""
        for part, others in zip(self, other, strict=True):
            for x, y in zip(part, others, strict=True):
                x[rows] = y

    def copy(self) -> Point:
        """A copy that shares no memory."""
        return Point(*([x.clone() for x in part] for part in self))


def join(points: Sequence[Point]) -> Point:
    """The rows of several points, one after the other."""
    if len(points) == 1:
        return points[0]
    parts = zip(*points, strict=True)
    return Point(*([torch.cat(pieces) for pieces in zip(*part, strict=True)] for part in parts))


class Scheme(ABC):
    """Self-consistent equations for the moments of every unit, and the free energy that goes with them.

    Args:
        hamiltonian: the machine; natural parameters and β may differ between rows, as (batch, width) and
            (batch, 1).
        clamp: what is held.
        uses_variances: whether the variances enter the equations for the means.
    """

    def __init__(self, hamiltonian: Hamiltonian, clamp: Clamp, uses_variances: bool = True) -> None:
        self.hamiltonian = hamiltonian
        self.clamp = clamp
        self.uses_variances = uses_variances

    def take(self, rows: Tensor | slice) -> Self:
        """The same for some of the rows of the batch."""
        part = copy(self)
        part.hamiltonian, part.clamp = self.hamiltonian.take(rows), self.clamp.take(rows)
        return part

    @abstractmethod
    def begin(self, start: Tensor) -> Point:
        """The point from visible means (batch, width_0) with variance zero."""

    @abstractmethod
    def sweep(self, point: Point, damping: Damping) -> Point:
        """Every free unit once; ``damping`` is the weight of the old fields, a number or (batch, 1)."""

    @abstractmethod
    def free_energy(self, point: Point) -> Tensor:
        """F at a point, (batch,), float64."""

    @abstractmethod
    def products(self, l: int, point: Point, weight: Tensor) -> Tensor:
        """Σ_rows weight · E[x_l ⊗ x_{l+1}], (width_l, width_{l+1}); weight (batch,)."""

    def statistics(self, l: int, point: Point) -> Theta:
        """E[t_l] of every row, in the order of ``Layer.natural``, each (batch, width_l)."""
        layer = self.hamiltonian.layers[l]
        held = self.clamp.mask(l)
        theta = self.hamiltonian.thetas[l]
        if self.clamp.fixes(l):
            return layer.statistics(point.means[l])
        free = layer.expected_statistics(point.fields[l], point.curvatures[l], theta)
        if held is None:
            return free
        fixed = layer.statistics(point.means[l])
        return tuple(torch.where(held, x, y) for x, y in zip(fixed, free, strict=True))

    def upwards(self, start: Tensor) -> Point:
        """Means at ``start``, hidden layers from the layer below alone, no curvature anywhere."""
        hamiltonian = self.hamiltonian
        means = [self.clamp.apply(0, start).clone()]  # rows are written over in place
        fields = [torch.zeros_like(start)]
        variances = [torch.zeros_like(start)]
        for l in range(1, len(hamiltonian.layers)):
            field = hamiltonian.lowest(l + 1).field(l, means)
            mean, variance = self.moments(l, field, 0.0)
            means.append(mean)
            variances.append(variance)
            fields.append(field)
        if not self.clamp.fixes(0):
            fields[0] = hamiltonian.field(0, means)
        return Point(means, variances, fields, [torch.zeros_like(a) for a in means], [])

    def moments(self, l: int, field: Tensor, curvature: Tensor | float) -> tuple[Tensor, Tensor]:
        """Mean and variance of a layer's units; held ones have their value and no variance."""
        layer, theta = self.hamiltonian.layers[l], self.hamiltonian.thetas[l]
        mean, variance = layer.moments(field, curvature, theta)
        held = self.clamp.mask(l)
        if held is not None:
            mean, variance = self.clamp.apply(l, mean), variance.masked_fill(held, 0.0)
        return mean, variance.contiguous()  # real units give an expanded one, which cannot be written to

    def free_layers(self) -> list[int]:
        """The layers that are not held whole, odd ones first: the order of a sweep."""
        order = (*self.hamiltonian.parity("odd"), *self.hamiltonian.parity("even"))
        return [l for l in order if not self.clamp.fixes(l)]

    def entropy(self, l: int, point: Point) -> Tensor:
        """Σ over a layer's units of ψ(B, A) - B a + ½ A (a² + c), (batch,), float64.

        Of held units ln of their weight.
        """
        layer, theta = self.hamiltonian.layers[l], self.hamiltonian.thetas[l]
        a, c, B, A = (part[l] for part in point[:4])
        held = self.clamp.mask(l)
        if held is not None:
            weight = layer.unit_log_weights(a, theta)
        if self.clamp.fixes(l):
            return weight.sum(-1, dtype=torch.float64)
        exponent = 0.5 * A * (a.square() + c) - B * a
        value = layer.log_partition(B, A, theta) + layer.by_unit(exponent).sum(-1)
        if held is not None:
            value = torch.where(layer.by_unit(held)[..., 0], weight, value)
        return value.sum(-1, dtype=torch.float64)

    def first_order(self, point: Point) -> Tensor:
        """-F of naive mean field at a point's means, with the entropy at (B, A): (batch,), float64.

        Finite wherever the units have a normaliser: what a scheme falls back to where its own has none.
        """
        hamiltonian = self.hamiltonian
        total = hamiltonian.beta_times(hamiltonian.coupling_energy(point.means))
        for l in range(len(point.means)):
            total = total + self.entropy(l, point)
        return total


def check_scalar(hamiltonian: Hamiltonian, what: str) -> None:
    """Refuses layers whose units have several columns."""
    for layer in hamiltonian.layers:
        if layer.width != layer.n_units:
            raise ValueError(f"machine: expected units of one column for {what}, received {layer}")
