"""The joint precision of Gaussian layers that edges join, without which a machine has no distribution."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harmonium.machine.hamiltonian import Hamiltonian

_WIDEST = 8192  # columns whose precision is factorised: half a gigabyte, some ten seconds


def joint_precision(hamiltonian: Hamiltonian, layers: Sequence[int]) -> Tensor:
    """Returns K = diag V - βJ of Gaussian layers side by side, (width, width), float64.

    Given all other units the layers are a multivariate Gaussian with this precision.

    Args:
        hamiltonian: the machine, with one β for all rows.
        layers: Gaussian layers in the order of the columns.
    """
    K = torch.diag(torch.cat([hamiltonian.thetas[l][1] for l in layers]).double())
    starts, start = dict[int, int](), 0
    for l in layers:
        starts[l], start = start, start + hamiltonian.layers[l].width
    for edge, (l, m) in enumerate(hamiltonian.graph.edges):
        if l not in starts or m not in starts:
            continue
        J = hamiltonian.beta_times(hamiltonian.J.matrix(edge)).double()
        rows = slice(starts[l], starts[l] + hamiltonian.layers[l].width)
        columns = slice(starts[m], starts[m] + hamiltonian.layers[m].width)
        K[rows, columns] -= J
        if l != m:
            K[columns, rows] -= J.t()
    return K


@torch.no_grad()
def find_improper(hamiltonian: Hamiltonian) -> list[int]:
    """Returns Gaussian layers that edges join and whose joint precision is not positive definite.

    Layers are judged where rows of the precision sum to more than 0 in absolute values, or by its Cholesky
    factors, up to 8,192 columns together. β is taken as 1 where it differs by chain.
    """
    layers, edges = hamiltonian.layers, hamiltonian.graph.edges
    among = {k for l, m in edges if layers[l].gaussian and layers[m].gaussian for k in (l, m)}
    for joined in hamiltonian.graph.groups(among):
        if sum(layers[l].width for l in joined) > _WIDEST:
            continue
        K = joint_precision(hamiltonian, joined)
        slack = 2 * K.diagonal() - K.abs().sum(1)
        if not bool((slack > 0).all()) and bool(torch.linalg.cholesky_ex(K).info):
            return [*joined]
    return []


def require_distribution(hamiltonian: Hamiltonian) -> None:
    """Refuses a machine without a distribution: joined Gaussian layers whose precision is not positive.

    Raises:
        ValueError: such a machine, naming the layers.
    """
    if improper := find_improper(hamiltonian):
        raise ValueError(
            f"machine: expected couplings among the Gaussian layers {improper} that leave their joint "
            "precision positive definite, received a machine without a distribution; make them smaller"
        )
