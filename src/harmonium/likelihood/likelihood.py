"""Log-likelihood of data, given ln Z."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._checks import Numbers
from harmonium.likelihood.exact import log_weight_of
from harmonium.likelihood.log_partition import LogPartition
from harmonium.machine import BoltzmannMachine, Hamiltonian

_ROWS = 4096


@torch.no_grad()
def log_likelihood(machine: BoltzmannMachine, X: Numbers, log_partition: float | LogPartition) -> Tensor:
    """ln p(v) = -F(v) - ln Z for every row, for a machine whose hidden layers can all be summed out.

    Args:
        machine: the machine.
        X: visible states, (batch, visible_width). NaN is not observed: of such a row it is ln p of what is
            observed, the missing entries summed over, with the hidden units where that is less.
        log_partition: ln Z, exact or estimated; an error in it shifts every row alike. Of a ``LogPartition``
            the value is taken, which is on average too low and so flatters the machine; its ``upper`` given
            here bounds the log-likelihood from below, its ``lower`` from above.

    Returns:
        (batch,), float64, in nats (a density for Gaussian units).

    Raises:
        ValueError: hidden layers that are joined, X of the wrong shape or support, or a row with more
            than 2^26 states to enumerate.
    """
    require_independent_hidden(machine, "exact_log_likelihood where they can be enumerated, and bounds")
    X = machine.visible_rows(X, "X", missing=True)
    value = log_partition.value if isinstance(log_partition, LogPartition) else log_partition
    value = _checks.real(value, "log_partition")
    hamiltonian = machine.hamiltonian()
    if _checks.observed(X):
        return _of_whole_rows(hamiltonian, X) - value
    whole = ~X.isnan().any(1)
    result = torch.empty(len(X), dtype=torch.float64, device=X.device)
    if bool(whole.any()):
        result[whole] = _of_whole_rows(hamiltonian, X[whole])
    try:
        result[~whole] = log_weight_of(hamiltonian.to(torch.float64), X[~whole].double())
    except ValueError as error:
        raise ValueError(
            "X: expected rows whose missing cells (NaN), or else the hidden units, have at most 2^26 states "
            f"to sum over, as 26 Bernoulli units have; received {int((~whole).sum())} rows with missing "
            "cells, of which some have more: leave these out, or impute(X)"
        ) from error
    return result - value


def _of_whole_rows(hamiltonian: Hamiltonian, X: Tensor) -> Tensor:
    """-F of every row."""
    summed = hamiltonian.graph.summed
    parts = [-hamiltonian.free_energy(hamiltonian.split(v), summed) for v in torch.split(X, _ROWS)]
    return torch.cat(parts)


def require_independent_hidden(machine: BoltzmannMachine, remedy: str) -> None:
    """Refuses machines with hidden layers that are joined, such as deep ones, and says what they have."""
    if not machine.graph.independent:
        raise ValueError(
            f"machine: expected hidden layers that no edge joins, such as one hidden layer, received "
            f"{len(machine.hidden)} with edges among them; such machines have {remedy}"
        )
