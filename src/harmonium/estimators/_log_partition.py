"""ln Z as an estimator's parameters ask for it."""

from __future__ import annotations

from copy import deepcopy
from math import inf, log2

from harmonium.layers import Layer
from harmonium.likelihood import LogPartition, ais, exact_log_partition
from harmonium.machine import BoltzmannMachine

# Up to here enumeration takes seconds.
_EXACT_LOG2_STATES = 20


def find_log_partition(
    machine: BoltzmannMachine, method: str, *, chains: int, temperatures: int, seed: int
) -> LogPartition:
    """By enumeration ("exact"), by annealing ("ais"), or by the former where it is quick ("auto").

    Args:
        machine: one hidden layer.
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
        method = "exact" if min(map(_log2_states, machine.layers)) <= _EXACT_LOG2_STATES else "ais"
    if method == "exact":
        value = exact_log_partition(deepcopy(machine).double())
        return LogPartition(value, standard_error=0.0, ess=inf, lower=value, upper=value)
    return ais(machine, chains, temperatures, seed=seed)


def _log2_states(layer: Layer) -> float:
    return inf if layer.n_states is None else layer.n_units * log2(layer.n_states)
