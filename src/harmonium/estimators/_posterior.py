"""What a row says of the hidden units, and of its own missing cells, by naive mean field."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine
from harmonium.meanfield import Solution, naive

_TOLERANCE = 1e-5  # of the posterior: what it still moves changes the bound in the second order


@torch.no_grad()
def posterior(machine: BoltzmannMachine, v: Tensor) -> Solution:
    """Means of all layers given rows (rows, visible_width), NaN where not observed.

    Exact where nothing is missing and hidden layers are not joined. Minus its free energy is a lower bound on
    ln p̃ of what is observed.
    """
    return naive(machine, v, v, tolerance=_TOLERANCE)


def hidden_means(machine: BoltzmannMachine, v: Tensor) -> Tensor:
    """The means of all hidden layers side by side, (rows, their widths); see ``posterior``."""
    means = posterior(machine, v).means
    return torch.cat([means[l] for l in machine.hidden], -1)
