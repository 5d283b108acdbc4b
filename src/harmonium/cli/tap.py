"""ln Z and log-likelihoods by TAP, beside those of annealing."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from harmonium.likelihood import TapPartition, tap_log_partition
from harmonium.machine import BoltzmannMachine

STARTS = 1000


def tap_partition(machine: BoltzmannMachine, starts: Tensor | None) -> tuple[TapPartition, dict[str, Any]]:
    """ln Z by TAP from rows of data, and the table of it.

    Raises:
        ValueError: no data, or none from which TAP converges.
    """
    if starts is None:
        raise ValueError("tap: expected DATA with whole rows, from which the solutions start, received none")
    partition = tap_log_partition(machine, starts)
    return partition, {"method": "tap", **partition._asdict(), "starts": len(starts)}


def notes_on(partition: TapPartition) -> list[str]:
    """Returns notes for the user on a TAP approximation."""
    notes = ["tap: an approximation of weak couplings, neither an estimate nor a bound"]
    if partition.converged < 1:
        notes.append(f"tap: {1 - partition.converged:.0%} of the starts did not converge and are left out")
    return notes
