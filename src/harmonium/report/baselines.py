"""Likelihoods of rows under the simplest laws: independent columns, and a Gaussian."""

from __future__ import annotations

from copy import deepcopy
from math import log, pi
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium.layers import Layer
from harmonium.machine import BoltzmannMachine, init_visible_biases_
from harmonium.tables import fit_normal


class Baselines(NamedTuple):
    """Mean ln p of rows, in nats of the machine's states.

    Attributes:
        independent: Mean under independent columns.
        gaussian: Mean under a Gaussian of all real columns beside independent others; None where fewer than
            two are real.
    """

    independent: float
    gaussian: float | None


@torch.no_grad()
def score_baselines(machine: BoltzmannMachine, rows: Tensor, training: Tensor) -> Baselines:
    """Scores rows by the simplest laws of the same columns.

    Args:
        machine: Machine with the columns' visible layers; it is not changed.
        rows: complete visible states to score, (rows, visible_width).
        training: complete rows that the laws are fitted to, (rows, visible_width).
    """
    layers: list[Layer] = [deepcopy(machine.layers[l]) for l in machine.visible]
    alone = BoltzmannMachine(layers, [], range(len(layers)), seed=None).double()
    init_visible_biases_(alone, training.double())
    law = alone.hamiltonian()
    split = law.split(rows.double())
    by_layer = [
        layer.log_conditional(x, torch.zeros_like(x), theta).sum(1)
        for layer, theta, x in zip(law.layers, law.thetas, split, strict=True)
    ]
    independent = float(sum(scores.mean() for scores in by_layer))
    real = [i for i, layer in enumerate(layers) if layer.gaussian]
    if sum(layers[i].width for i in real) < 2:
        return Baselines(independent, None)
    fitted = law.split(training.double())
    try:
        mean, covariance = fit_normal(torch.cat([fitted[i] for i in real], 1))
    except ValueError:  # a column that does not vary
        return Baselines(independent, None)
    root = torch.linalg.cholesky(covariance)
    off = torch.cat([split[i] for i in real], 1) - mean
    z = torch.linalg.solve_triangular(root, off.t(), upper=False)
    joined = -0.5 * z.square().sum(0).mean() - root.diagonal().log().sum() - 0.5 * len(mean) * log(2 * pi)
    return Baselines(independent, independent + float(joined) - float(sum(by_layer[i].mean() for i in real)))
