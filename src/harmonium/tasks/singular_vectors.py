"""The directions that a machine has learned: the singular vectors of its couplings."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from harmonium.layers import Layer
from harmonium.machine import BoltzmannMachine, Hamiltonian


class Directions(NamedTuple):
    """The couplings between visible and hidden units as Σ_a values_a visible_a hidden_aᵀ.

    Attributes:
        values: singular values, falling, (k,) float64.
        visible: directions of the visible units, orthonormal columns, (visible_width, k). The largest entry
            of each is positive.
        hidden: of the hidden layers side by side, (hidden_width, k); of a machine without hidden layers those
            of the visible units again, up to signs.
    """

    values: Tensor
    visible: Tensor
    hidden: Tensor

    def project(self, v: Tensor) -> Tensor:
        """Returns the places of visible states, (rows, visible_width), along the directions, (rows, k)."""
        return v.to(self.visible) @ self.visible


@torch.no_grad()
def directions(machine: BoltzmannMachine | Hamiltonian) -> Directions:
    """Decomposes the couplings of visible with hidden layers; k is the smaller of their widths.

    In training they grow one after the other, the main directions of the data first, and each is a
    transition at which samples begin to differ (Decelle, Fissore & Furtlehner 2017). Couplings of categorical
    units, such as the sites of sequences, are taken in the zero-sum gauge, so that directions do not depend
    on the gauge. Without hidden layers the couplings among the visible units are decomposed.

    Args:
        machine: on any graph, or one of the laws along its training (``ladder.laws_along``). Couplings of
            Gaussian layers are those of natural parameters.

    Raises:
        ValueError: no edge between a visible and a hidden layer, or none at all.
    """
    law = machine.hamiltonian() if isinstance(machine, BoltzmannMachine) else machine
    layers, rows, columns = law.layers, law.graph.visible, law.graph.hidden or law.graph.visible
    empty = law.thetas[0][0].new_zeros(()).double()
    blocks = {(l, m): empty.expand(layers[l].width, layers[m].width) for l in rows for m in columns}
    if not any((l, m) in blocks or (m, l) in blocks for l, m in law.graph.edges):
        raise ValueError("machine: expected an edge between a visible and a hidden layer, received none")
    for l, m, J in law.edges:
        centred = _centred(layers[m], _centred(layers[l], J.double()).T)
        blocks |= {place: x for place, x in (((l, m), centred.T), ((m, l), centred)) if place in blocks}
    whole = torch.cat([torch.cat([blocks[l, m] for m in columns], 1) for l in rows])
    U, values, Vh = torch.linalg.svd(whole, full_matrices=False)
    signs = U.gather(0, U.abs().argmax(0, keepdim=True)).sign()
    return Directions(values, U * signs, Vh.T * signs)


def _centred(layer: Layer, J: Tensor) -> Tensor:
    """Returns couplings, (width, others), less their means over the states of categorical units."""
    if not layer.one_hot:
        return J
    each = J.reshape(layer.n_units, -1, J.shape[1])
    return (each - each.mean(1, keepdim=True)).view_as(J)
