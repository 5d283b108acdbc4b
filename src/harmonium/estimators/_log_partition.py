"""ln Z as an estimator's parameters ask for it."""

from __future__ import annotations

from copy import deepcopy

from harmonium.likelihood import LogPartition, ais, exact_log_partition
from harmonium.machine import BoltzmannMachine

# Up to here enumeration takes seconds.
_EXACT_LOG2_STATES = 20


def find_log_partition(
    machine: BoltzmannMachine, method: str, *, chains: int, temperatures: int, seed: int
) -> LogPartition:
    """By enumeration ("exact"), by annealing ("ais"), or by the former where it is quick ("auto").

    Args:
        machine: of any depth.
        method: "auto", "exact" or "ais".
        chains: of annealing.
        temperatures: of annealing.
        seed: of annealing.

    Returns:
        ln Z; an exact value has standard error 0 and infinite effective sample size.

    Raises:
        ValueError: "exact" for a machine too large to enumerate.
    """
    if method == "auto":
        parities = [sum(layer.log2_states for layer in machine.layers[first::2]) for first in (0, 1)]
        method = "exact" if min(parities) <= _EXACT_LOG2_STATES else "ais"
    if method == "exact":
        return LogPartition.exact(exact_log_partition(deepcopy(machine).double()))
    return ais(machine, chains, temperatures, seed=seed)
