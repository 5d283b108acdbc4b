"""The likelihood of TAP: its free energy in the place of -ln Z."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._checks import Numbers
from harmonium.machine import BoltzmannMachine
from harmonium.meanfield import landscape, tap

_ROWS = 4096


class TapPartition(NamedTuple):
    """The TAP approximation of ln Z, which is not a bound.

    Attributes:
        value: mean of -F over the distinct solutions, each with the same weight (Tramel et al. 2018, Sec.
            V.2).
        spread: standard deviation of -F over the solutions, not an error of the value.
        solutions: number of distinct solutions.
        converged: the part of the starts that converged; the others are left out.
    """

    value: float
    spread: float
    solutions: int
    converged: float


@torch.no_grad()
def tap_log_partition(
    machine: BoltzmannMachine,
    X: Numbers,
    *,
    order: int = 2,
    resolution: float = 0.01,
    tolerance: float = 1e-5,
    max_sweeps: int = 1000,
) -> TapPartition:
    """ln Z as the mean of -F over the TAP solutions that rows of data flow to (Tramel et al. 2018, Eq. 37).

    Close to ln Z while couplings are weak; ``docs/design_notes.md`` has its gap as they grow. Trained
    machines have strong couplings: set it beside ``ais``.

    Args:
        machine: the machine, of any depth.
        X: visible states to start from, (starts, visible_width).
        order: see ``meanfield.tap``.
        resolution: see ``meanfield.landscape``.
        tolerance: see ``meanfield.tap``.
        max_sweeps: see ``meanfield.tap``.

    Raises:
        ValueError: no start that converges.
    """
    found = landscape(
        machine, X, order=order, resolution=resolution, tolerance=tolerance, max_sweeps=max_sweeps
    )
    values = -found.free_energies
    return TapPartition(
        float(values.mean()),
        float(values.std(correction=0)),
        len(values),
        float((found.basin >= 0).double().mean()),
    )


@torch.no_grad()
def tap_log_likelihood(
    machine: BoltzmannMachine,
    X: Numbers,
    log_partition: float | TapPartition,
    *,
    order: int = 2,
    tolerance: float = 1e-5,
    max_sweeps: int = 1000,
) -> Tensor:
    """-F of TAP with the row clamped, minus ln Z: an approximation of ln p(v) at any depth.

    Where no two hidden layers are joined the clamped part is exact. Elsewhere (Tramel et al. 2018, Eq. 121),
    rows that have not converged after ``max_sweeps`` count with their last sweep.

    Args:
        machine: the machine.
        X: visible states, (batch, visible_width).
        log_partition: from ``tap_log_partition``; a number stands for ln Z from elsewhere.
        order: see ``meanfield.tap``.
        tolerance: see ``meanfield.tap``.
        max_sweeps: see ``meanfield.tap``.

    Returns:
        (batch,), float64, in nats.
    """
    X = machine.visible_rows(X, "X")
    value = log_partition.value if isinstance(log_partition, TapPartition) else log_partition
    value = _checks.real(value, "log_partition")
    parts = [
        -tap(machine, v, v, order=order, tolerance=tolerance, max_sweeps=max_sweeps).free_energy
        for v in torch.split(X, _ROWS)
    ]
    return torch.cat(parts) - value
