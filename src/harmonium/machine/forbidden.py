"""Forbidden states: -inf among the fields and couplings of units whose values are 0 and above.

Searches and exact sums put a finite penalty in its place, as 0 times -inf is no number. An allowed state has
none of it, and a forbidden one so much that no sum of finite terms makes up for it: answers are those of -inf
to the last digit.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, log

import torch
from torch import Tensor

from harmonium.machine.coupling_matrices import CouplingMatrices
from harmonium.machine.hamiltonian import Hamiltonian

_BEYOND = 1000.0  # nats that a penalty is above all finite terms: exp of less is 0 in float64


def penalise(hamiltonian: Hamiltonian, penalty: float | None = None) -> tuple[Hamiltonian, float]:
    """Returns the Hamiltonian with a penalty in place of -inf, and the penalty; 0 where nothing is forbidden.

    Args:
        hamiltonian: a machine of discrete units where something is forbidden.
        penalty: nats, more than any finite parameter; None: more than all finite terms of ln Z together, so
            that ``forbid`` tells what is forbidden.
    """
    parameters = [*(theta[0] for theta in hamiltonian.thetas), *hamiltonian.J]
    if not any(bool(x.isneginf().any()) for x in parameters):
        return hamiltonian, 0.0
    if not all(layer.discrete for layer in hamiltonian.layers):
        raise ValueError(
            "machine: expected discrete units alone beside forbidden states (-inf), received "
            f"{', '.join(map(str, hamiltonian.layers))}"
        )
    if penalty is None:
        total = abs(hamiltonian.constant) + sum(
            layer.n_units * log(layer.n_states or 1) for layer in hamiltonian.layers
        )
        reach = [float(layer.values().abs().max()) for layer in hamiltonian.layers]
        scales = [*reach, *(reach[l] * reach[m] for l, m in hamiltonian.graph.edges)]
        for x, scale in zip(parameters, scales, strict=True):
            total += scale * float(x.detach().double().abs().nan_to_num(posinf=0.0).sum())
        penalty = 4 * total + _BEYOND
    thetas = tuple((first.clamp(min=-penalty), *rest) for first, *rest in hamiltonian.thetas)
    J = CouplingMatrices(x.clamp(min=-penalty) for x in hamiltonian.J)
    return replace(hamiltonian, thetas=thetas, J=J), penalty


def forbid(log_weights: Tensor, penalty: float) -> Tensor:
    """Returns log-weights of a Hamiltonian by ``penalise``, of any shape, -inf where all is forbidden."""
    return torch.where(log_weights < -penalty / 2, -inf, log_weights) if penalty else log_weights
