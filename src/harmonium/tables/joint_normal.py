"""Correlated real columns: covariances, the coordinates that whiten them, and the way back.

A machine without couplings among its Gaussian units takes long to learn columns that nearly depend on each
other. In coordinates u with x = R u, R a root of the covariance of x, linear correlations need not be
learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._checks import Numbers
from harmonium.couplings import Coupling, Dense
from harmonium.layers import Gaussian
from harmonium.machine import BoltzmannMachine
from harmonium.sums import HiddenStates, has_hidden_states


@torch.no_grad()
def fit_normal(
    X: Numbers,
    weights: Tensor | None = None,
    *,
    ridge: float = 1e-3,
    rounds: int = 50,
    tolerance: float = 1e-4,
) -> tuple[Tensor, Tensor]:
    """Fits a multivariate Gaussian to rows, by expectation-maximisation where cells are missing.

    Args:
        X: real rows, (rows, columns), NaN where missing.
        weights: Row weights, (rows,), at least 0; None means uniform.
        ridge: added to the covariance, times the variance of every column, at least 0.
        rounds: Most rounds of expectation-maximisation, at least 1.
        tolerance: least gain of the mean ln p of a row for another round.

    Returns:
        Mean, (columns,), and covariance, (columns, columns), in float64. ``torch.linalg.cholesky`` of it is a
        root for ``rules.exact`` and ``fold``.

    Raises:
        ValueError: X of another shape, or a column that does not vary or has no cell.
    """
    x = _checks.tensor(X, "X", torch.float64)
    if x.dim() != 2 or len(x) == 0:
        raise ValueError(f"X: expected (rows, columns) with at least one row, received {tuple(x.shape)}")
    _checks.real(ridge, "ridge", low=0.0)
    _checks.positive_int(rounds, "rounds")
    checked = _checks.weights(weights, "weights", len(x))
    row_weights = x.new_ones(len(x)) if checked is None else checked.to(x)
    row_weights, seen = row_weights / row_weights.sum(), ~x.isnan()
    mean = row_weights @ x.nan_to_num(0.0) / (row_weights @ seen.double())
    variance = row_weights @ (x - mean).square().nan_to_num(0.0) / (row_weights @ seen.double())
    if not bool((variance > 0).all()):
        column = int((~(variance > 0)).nonzero()[0])
        raise ValueError(f"X: expected columns that vary, received column {column} with one value or none")
    covariance, before = torch.diag(variance), -torch.inf
    for _ in range(rounds):
        table, root = normal(mean, covariance)
        score, first, second = 0.0, torch.zeros_like(mean), torch.zeros_like(covariance)
        for block_rows, posterior in table.blocks(x):
            share = row_weights[block_rows]
            score += float(share @ (posterior.log_weights - table.log_partition))
            crossed, squared = posterior.second_moments(share)
            first += crossed[:, 0]
            second += squared
        mean = root @ first
        covariance = root @ second @ root.t() - torch.outer(mean, mean) + ridge * torch.diag(variance)
        if bool(seen.all()) or score - before < tolerance:
            break
        before = score
    return mean, covariance


def normal(mean: Tensor, covariance: Tensor) -> tuple[HiddenStates, Tensor]:
    """Returns a multivariate Gaussian, of which rows may lack any cell, and the root of its covariance."""
    root: Tensor = torch.linalg.cholesky(covariance)
    machine = BoltzmannMachine([Gaussian(len(mean))], edges=[]).to(mean.device).double()
    one = torch.ones_like(mean)
    machine.layers[0].fit_(
        (torch.linalg.solve_triangular(root, mean.unsqueeze(1), upper=False)[:, 0], one), one
    )
    return HiddenStates(machine.hamiltonian(), {0: root}), root


@torch.no_grad()
def fold(machine: BoltzmannMachine, roots: Mapping[int, Tensor]) -> BoltzmannMachine:
    """Returns the machine of columns x = R u, with inner edges, for a machine of u; see ``rules.exact``.

    It gives every state x the energy that the machine gives u, and takes rows as they are: for likelihoods,
    imputation and draws no root is needed any more.

    Args:
        machine: Machine of u; it is not changed.
        roots: R of some visible Gaussian layers without edges to visible layers, (width_l, width_l).

    Returns:
        A new machine in float64. Couplings of the layers with roots are dense.

    Raises:
        ValueError: layers that roots do not fit.
    """
    graph = machine.graph
    if not has_hidden_states(graph, machine.layers, roots) or any(
        l in edge and set(edge) <= set(graph.visible) for l in roots for edge in graph.edges
    ):
        raise ValueError(
            "roots: expected some of visible Gaussian layers that no edge joins with visible layers, in a "
            f"machine that HiddenStates takes, received {sorted(roots)} with edges {list(graph.edges)}"
        )
    hamiltonian = deepcopy(machine).double().hamiltonian()
    back = {l: torch.linalg.inv(root.to(hamiltonian.thetas[l][0])) for l, root in roots.items()}
    copies = deepcopy(machine).double()
    edges: dict[tuple[int, int], Coupling] = {(l, l): Dense() for l in roots}
    for edge, coupling in zip(machine.edges, machine.couplings, strict=True):
        joined = Dense() if set(edge) & roots.keys() else type(coupling)(**coupling.config())
        edges[edge] = joined
    folded = BoltzmannMachine(copies.layers, edges, machine.visible, seed=None).double()
    folded.metadata = deepcopy(machine.metadata)
    precision = {}
    for l, matrix in back.items():
        linear, curvature = hamiltonian.thetas[l]
        precision[l] = matrix.t() @ (curvature.unsqueeze(1) * matrix)
        diagonal = precision[l].diagonal()
        folded.layers[l].fit_((matrix.t() @ linear / diagonal, diagonal), 1 / diagonal)
    J = dict(zip(machine.edges, hamiltonian.J, strict=True))
    for (l, m), coupling in zip(folded.edges, folded.couplings, strict=True):
        W = -precision[l] if l == m and l in back else J[l, m]
        W = back[l].t() @ W if l in back and l != m else W
        W = W @ back[m] if m in back and l != m else W
        below, above = folded.layers[l].scale, folded.layers[m].scale
        W = W if below is None else W / below.unsqueeze(1)
        W = W if above is None else W / above
        coupling.fill_(W.triu(1) if l == m else W)
    return folded
