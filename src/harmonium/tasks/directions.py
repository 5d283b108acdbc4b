"""The directions that a machine has learned: the singular vectors of its couplings."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine, Hamiltonian


class Directions(NamedTuple):
    """The couplings between visible and hidden units as Σ_a values_a visible_a hidden_aᵀ.

    Attributes:
        values: singular values, falling, (k,) float64.
        visible: directions of the visible units, orthonormal columns, (visible_width, k). The largest entry
            of each is positive.
        hidden: of the hidden layers side by side, (hidden_width, k).
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
    transition at which samples begin to differ (Decelle, Fissore & Furtlehner 2017).

    Args:
        machine: on any graph, or one of the laws along its training (``chains.laws_along``). Couplings of
            Gaussian layers are those of natural parameters.

    Raises:
        ValueError: no edge between a visible and a hidden layer.
    """
    law = machine.hamiltonian() if isinstance(machine, BoltzmannMachine) else machine
    graph, widths = law.graph, [layer.width for layer in law.layers]
    seen, hidden = list(graph.visible), [l for l in range(graph.size) if l not in graph.visible]
    blocks = {(l, m): J for l, m, J in law.edges}
    rows = [
        torch.cat([_block(blocks, l, m, widths) for m in hidden], 1)
        for l in seen
        if hidden and any((l, m) in blocks or (m, l) in blocks for l in seen for m in hidden)
    ]
    if not rows:
        raise ValueError("machine: expected an edge between a visible and a hidden layer, received none")
    U, values, Vh = torch.linalg.svd(torch.cat(rows), full_matrices=False)
    signs = U.gather(0, U.abs().argmax(0, keepdim=True)).sign()
    return Directions(values, U * signs, Vh.T * signs)


def _block(blocks: dict[tuple[int, int], Tensor], l: int, m: int, widths: list[int]) -> Tensor:
    """Returns the couplings of two layers, (width_l, width_m), 0 where no edge joins them."""
    if (l, m) in blocks:
        return blocks[l, m].double()
    return blocks[m, l].double().T if (m, l) in blocks else torch.zeros(widths[l], widths[m]).double()
