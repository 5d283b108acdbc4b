"""A machine that cannot be taught from where it stands."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.machine import BoltzmannMachine

# Deviation of the hidden fields over a batch, typical of the units: 0.014 in a new machine of two
# standardised columns, which then learns nothing in 4,000 updates, 0.08 in one of 64; 1 after ``from_data_``.
_SILENT = 0.05


@torch.no_grad()
def warn_of_saddle(machine: BoltzmannMachine, v: Tensor) -> None:
    """Says that discrete hidden units beside Gaussian visible ones do not respond to the data.

    Args:
        machine: before its first update.
        v: (batch, visible_width), a batch of the data.
    """
    if not machine.graph.is_chain or not _checks.observed(v):
        return
    visible, hidden = machine.layers[:2]
    if not visible.gaussian or not hidden.discrete or len(v) < 2:
        return
    fields = v.to(machine.device) @ machine.hamiltonian().couplings[0]
    deviation = float(fields.var(0).mean().sqrt())
    if deviation < _SILENT:
        _checks.warn(
            f"machine: the fields of its hidden units hardly vary over the data (deviation {deviation:.2g}), "
            "which beside Gaussian visible units is near a saddle: learning may be slow, and may never begin "
            "on uncorrelated columns. harmonium.machine.from_data_ starts off it",
            RuntimeWarning,
        )
