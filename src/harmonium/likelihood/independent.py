"""The simplest model of rows: columns that nothing joins."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine, init_visible_biases_


@torch.no_grad()
def separate(machine: BoltzmannMachine, rows: Tensor, weights: Tensor | None = None) -> BoltzmannMachine:
    """Returns a machine of columns that nothing joins, with the biases of rows and in their dtype.

    Args:
        machine: Machine with the columns' visible layers; it is not changed.
        rows: visible states, (rows, visible_width), NaN where missing.
        weights: Row weights, (rows,); None means uniform.
    """
    alone = deepcopy(machine).to(dtype=rows.dtype)
    init_visible_biases_(alone, rows, weights)
    for coupling in alone.couplings:
        coupling.fill_(torch.zeros_like(coupling.weight))
    return alone


@torch.no_grad()
def score_separate(alone: BoltzmannMachine, rows: Tensor) -> list[Tensor]:
    """Scores rows by columns that nothing joins.

    Args:
        alone: Machine of ``separate``.
        rows: visible states, (rows, visible_width), NaN where missing.

    Returns:
        For each visible layer ln p of what a row shows of it, (rows,), float64.
    """
    hamiltonian, scores = alone.hamiltonian(), list[Tensor]()
    for l, x in alone.split(rows.to(alone.dtype)).items():
        layer = alone.layers[l]
        shown, x = layer.observed(x, "rows")
        log_p = layer.log_conditional(x, torch.zeros_like(x), hamiltonian.thetas[l])
        scores.append(torch.where(shown[:, :: layer.columns_per_unit], log_p, 0.0).double().sum(1))
    return scores
