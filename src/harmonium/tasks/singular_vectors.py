"""The directions that a machine has learned: the singular vectors of its couplings."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine, Hamiltonian, state_means
from harmonium.sums import couplings_of_columns


class Directions(NamedTuple):
    """The couplings between visible and hidden units as Σ_a values_a visible_a hidden_aᵀ.

    Attributes:
        values: singular values, falling, (k,) float64.
        visible: directions of the visible units, orthonormal columns, (visible_width, k). The largest entry
            of each is positive.
        hidden: Directions of the hidden layers side by side, (hidden_width, k); of a machine without hidden
            layers those of the visible units again, up to signs.
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
        machine: on any graph, or one of the distributions along its training (``ladder.hamiltonians_along``).
            Couplings of Gaussian layers are those of natural parameters.

    Raises:
        ValueError: no edge between a visible and a hidden layer, or none at all.
    """
    hamiltonian = machine.hamiltonian() if isinstance(machine, BoltzmannMachine) else machine
    visible, hidden = hamiltonian.graph.visible, hamiltonian.graph.hidden
    if not any((l in visible) != (m in visible) or not hidden for l, m in hamiltonian.graph.edges):
        raise ValueError("machine: expected an edge between a visible and a hidden layer, received none")
    among, up = couplings_of_columns(hamiltonian.to(torch.float64))
    J = _to_zero_sum(hamiltonian, visible, up if hidden else among)
    J = _to_zero_sum(hamiltonian, hidden or visible, J.T).T
    U, values, Vh = torch.linalg.svd(J, full_matrices=False)
    signs = U.gather(0, U.abs().argmax(0, keepdim=True)).sign()
    return Directions(values, U * signs, Vh.T * signs)


def _to_zero_sum(hamiltonian: Hamiltonian, layers: tuple[int, ...], J: Tensor) -> Tensor:
    """Returns couplings less their means over the states of categorical units, the rows of J."""
    kinds = [hamiltonian.layers[l] for l in layers]
    parts = torch.split(J, [layer.width for layer in kinds])
    return torch.cat([x - state_means(layer, x.contiguous()) for layer, x in zip(kinds, parts, strict=True)])
