"""A machine that cannot be taught from where it stands."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from harmonium.layers.gaussian_units import GaussianUnits
from harmonium.machine import BoltzmannMachine

# Deviation of the hidden fields over a batch: 0.014 in a new machine of two standardised columns, which learns
# nothing in 4,000 updates; 0.5 to 1 after ``from_data_``.
_SILENT = 0.1


@torch.no_grad()
def warn_of_saddle(machine: BoltzmannMachine, v: Tensor) -> None:
    """Says that discrete hidden units beside Gaussian visible ones do not respond to the data.

    Args:
        machine: before its first update.
        v: (batch, width_0), a batch of the data.
    """
    visible, hidden = machine.layers[:2]
    if not isinstance(visible, GaussianUnits) or not hidden.discrete or len(v) < 2:
        return
    deviation = float((v @ machine.hamiltonian().couplings[0]).std(0).max())
    if deviation < _SILENT:
        warnings.warn(
            f"machine: the fields of its hidden units vary by no more than {deviation:.2g} over the data, which "
            "is close to a saddle beside Gaussian visible units: learning may be slow, and on columns without "
            "correlations never begins. harmonium.machine.from_data_ starts off it",
            RuntimeWarning,
            stacklevel=3,
        )
