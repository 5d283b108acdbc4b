"""ln Z as an estimator's parameters ask for it."""

from __future__ import annotations

from copy import deepcopy

from torch import Tensor

from harmonium.likelihood import LogPartition, ais, exact_log_partition
from harmonium.likelihood.exact import log2_states
from harmonium.machine import BoltzmannMachine
from harmonium.tasks.impute import impute, unobserved

# Up to here enumeration takes seconds.
_EXACT_LOG2_STATES = 20


def find_log_partition(
    machine: BoltzmannMachine, method: str, *, chains: int, temperatures: int, seed: int, rows: Tensor | None
) -> LogPartition:
    """Finds ln Z by enumeration ("exact"), by annealing ("ais"), or by the former where it is quick ("auto").

    Args:
        machine: on any graph.
        method: "auto", "exact" or "ais".
        chains: of annealing.
        temperatures: of annealing.
        seed: of annealing.
        rows: visible states that the machine has learnt, (rows, visible_width), from which reverse annealing
            starts; NaN is a missing cell, which the machine draws. None: there are none.

    Returns:
        ln Z; an exact value has standard error 0 and infinite effective sample size.

    Raises:
        ValueError: "exact" for a machine too large to enumerate.
    """
    if method == "auto":
        states = log2_states(machine.graph, machine.layers, range(len(machine.layers)))
        method = "exact" if states <= _EXACT_LOG2_STATES else "ais"
    if method == "exact":
        return LogPartition.exact(exact_log_partition(deepcopy(machine).double()))
    if rows is not None and bool((holes := unobserved(machine, rows)).any()):
        rows = impute(machine, rows, holes, draws=1, seed=seed).draws[0]
    return ais(machine, chains, temperatures, data=rows, seed=seed)
