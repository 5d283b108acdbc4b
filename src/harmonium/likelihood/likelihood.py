"""Log-likelihood of data, given ln Z."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.likelihood.log_partition import LogPartition
from harmonium.machine import BoltzmannMachine

_ROWS = 4096


@torch.no_grad()
def log_likelihood(machine: BoltzmannMachine, X: Tensor, log_partition: float | LogPartition) -> Tensor:
    """ln p(v) = -F(v) - ln Z for every row, for a machine with one hidden layer.

    Args:
        machine: the machine.
        X: visible states, (batch, width_0).
        log_partition: ln Z, exact or estimated; an error in it shifts every row alike. Of a ``LogPartition``
            the value is taken, which is on average too low and so flatters the machine; its ``upper`` given
            here bounds the log-likelihood from below, its ``lower`` from above.

    Returns:
        (batch,), float64, in nats (a density for Gaussian units).

    Raises:
        ValueError: more than one hidden layer, or X of the wrong shape or support.
    """
    if len(machine.layers) != 2:
        raise ValueError(
            f"machine: expected one hidden layer, received {len(machine.layers) - 1}; deeper machines have "
            "exact_log_likelihood where they can be enumerated, and bounds"
        )
    X = machine.visible_rows(X, "X")
    value = log_partition.value if isinstance(log_partition, LogPartition) else log_partition
    value = _checks.real(value, "log_partition")
    hamiltonian = machine.hamiltonian()
    parts = [-hamiltonian.free_energy([rows, rows], (1,)) for rows in torch.split(X, _ROWS)]
    return torch.cat(parts) - value
