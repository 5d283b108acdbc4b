"""One approximation of a machine by independent units: what every mean-field solver iterates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import NamedTuple, Self

import torch
from torch import Tensor

from harmonium import _device
from harmonium._states import map_leaves, record
from harmonium.layers import Theta
from harmonium.machine import Hamiltonian

Damping = float | Tensor


@record
class Point(NamedTuple):
    """The state of an iteration; every entry is a list of tensors whose first dimension is the batch.

    Attributes:
        means: a_l, (batch, width_l).
        variances: c_l, (batch, width_l).
        fields: B_l, (batch, width_l).
        curvatures: diagonal of A_l, (batch, width_l); free units have the distribution p(x | B, A).
        messages: what a scheme keeps beside these.
    """

    means: list[Tensor]
    variances: list[Tensor]
    fields: list[Tensor]
    curvatures: list[Tensor]
    messages: list[Tensor]

    def take(self, rows: Tensor | slice) -> Point:
        """Returns the point at some of the rows."""
        point: Point = map_leaves(lambda x: x[rows], self)
        return point

    def put(self, rows: Tensor, other: Point) -> None:
        """Writes the rows of another point over some of the rows, in place."""
        for part, others in zip(self, other, strict=True):
            for x, y in zip(part, others, strict=True):
                x[rows] = y

    def where(self, rows: Tensor, other: Point) -> Point:
        """Returns these rows where ``rows`` is True, (batch,), and those of another point elsewhere."""

        def choose(x: Tensor, y: Tensor) -> Tensor:
            return x if x is y else torch.where(rows.view(-1, *[1] * (x.dim() - 1)), x, y)

        point: Point = map_leaves(choose, self, other)
        return point

    def copy(self) -> Point:
        """Returns a copy that shares no memory."""
        point: Point = map_leaves(Tensor.clone, self)
        return point


class Scheme(ABC):
    """Self-consistent equations for the moments of every unit, and the free energy that goes with them.

    Args:
        hamiltonian: the machine; natural parameters and β may differ between rows, as (batch, width) and
            (batch, 1).

    Attributes:
        uses_variances: whether the variances enter the equations for the means.
    """

    uses_variances = True

    def __init__(self, hamiltonian: Hamiltonian) -> None:
        self.hamiltonian = hamiltonian

    def take(self, rows: Tensor | slice) -> Self:
        """Returns the scheme for some of the rows of the batch."""
        part = copy(self)
        part.hamiltonian = self.hamiltonian.select_rows(rows)
        return part

    @abstractmethod
    def sweep(self, point: Point, damping: Damping) -> Point:
        """Moves every free unit once; ``damping`` is the weight of the old fields, a number or (batch, 1)."""

    @abstractmethod
    def free_energy(self, point: Point) -> Tensor:
        """Returns F at a point, (batch,), float64."""

    @abstractmethod
    def covariances(self, edge: int, point: Point, weight: Tensor) -> Tensor | None:
        """Returns Σ_rows weight · (E[x_l ⊗ x_m] - a_l ⊗ a_m) over an edge (l, m), (width_l, width_m).

        Args:
            edge: Number of an edge of the graph.
            point: Point with the means a.
            weight: Row weights, (batch,), in the machine's dtype; half where the edge lies within a layer.

        Returns:
            None: there are none, as in naive mean field.
        """

    def statistics(self, l: int, point: Point) -> Theta:
        """Returns E[t_l] of every row, in the order of ``Layer.natural``, each (batch, width_l)."""
        layer = self.hamiltonian.layers[l]
        clamped, theta = self.hamiltonian.mask(l), self.hamiltonian.thetas[l]
        if self.hamiltonian.is_clamped(l):
            return layer.statistics(point.means[l])
        expected = layer.expected_statistics(point.fields[l], point.curvatures[l], theta)
        if clamped is None:
            return expected
        values = layer.statistics(point.means[l])
        return tuple(_device.where(clamped, x, y) for x, y in zip(values, expected, strict=True))

    def begin(self, start: Tensor) -> Point:
        """Returns the first point: visible means at ``start``, (batch, visible_width), without curvature.

        Hidden layers take their means from the layers before them in ``Graph.order``.
        """
        hamiltonian, graph = self.hamiltonian, self.hamiltonian.graph
        means = hamiltonian.split(start)
        fields, variances = list(means), list(means)
        known = set(graph.visible)
        for l in graph.visible:
            if hamiltonian.is_clamped(l):
                means[l] = hamiltonian.apply_clamp(l, means[l])
            else:
                without_field = hamiltonian.mean(l, torch.zeros_like(means[l][:1]))
                a = torch.where(means[l].isnan(), without_field, means[l])
                means[l] = hamiltonian.apply_clamp(l, a).clone()  # rows are written over in place
            fields[l], variances[l] = torch.zeros_like(means[l]), torch.zeros_like(means[l])
        for l in graph.order:
            fields[l] = hamiltonian.field(l, means, known)
            means[l], variances[l] = self.moments(l, fields[l], 0.0)
            known.add(l)
        for l in graph.visible:
            if not self.hamiltonian.is_clamped(l):
                fields[l] = hamiltonian.field(l, means)
        return Point(means, variances, fields, [torch.zeros_like(a) for a in means], [])

    def moments(self, l: int, field: Tensor, curvature: Tensor | float) -> tuple[Tensor, Tensor]:
        """Returns mean and variance of a layer's units, each (batch, width_l); clamped: variance 0."""
        layer, theta = self.hamiltonian.layers[l], self.hamiltonian.thetas[l]
        mean, variance = layer.moments(field, curvature, theta)
        clamped = self.hamiltonian.mask(l)
        if clamped is not None:
            mean = self.hamiltonian.apply_clamp(l, mean)
            variance = _device.where(clamped, variance.new_zeros(()), variance)
        return mean, variance.contiguous()  # real units give an expanded one, which cannot be written to

    def free_layers(self) -> list[int]:
        """Returns the layers not clamped whole, those of ``graph.summed`` first: the order of a sweep."""
        order = dict.fromkeys(block.layer for block in self.hamiltonian.graph.backwards)
        return [l for l in order if not self.hamiltonian.is_clamped(l)]

    def entropy(self, l: int, point: Point) -> Tensor:
        """Returns Σ over a layer's units of ψ(B, A) - B a + ½ A (a² + c), (batch,), float64.

        Of clamped units ln of their weight.
        """
        layer, theta = self.hamiltonian.layers[l], self.hamiltonian.thetas[l]
        a, c, B, A = (part[l] for part in point[:4])
        clamped = self.hamiltonian.mask(l)
        if clamped is not None:
            weight = layer.unit_log_weights(a, theta)
        if self.hamiltonian.is_clamped(l):
            return weight.sum(-1, dtype=torch.float64)
        exponent = 0.5 * A * (a.square() + c) - B * a
        value = layer.log_partition(B, A, theta) + layer.by_unit(exponent).sum(-1)
        if clamped is not None:
            value = _device.where(layer.by_unit(clamped)[..., 0], weight, value)
        return value.sum(-1, dtype=torch.float64)

    def first_order(self, point: Point) -> Tensor:
        """Returns -F of naive mean field at a point's means, with the entropy at (B, A): (batch,), float64.

        Finite wherever the units have a normaliser: what a scheme falls back to where its own has none.
        """
        hamiltonian = self.hamiltonian
        total = hamiltonian.beta_times(hamiltonian.coupling_energy(point.means))
        for l in range(len(point.means)):
            total = total + self.entropy(l, point)
        return total


def check_scalar(hamiltonian: Hamiltonian, purpose: str) -> None:
    """Refuses layers whose units have several columns."""
    for layer in hamiltonian.layers:
        if layer.width != layer.n_units:
            raise ValueError(f"machine: expected units of one column for {purpose}, received {layer}")
