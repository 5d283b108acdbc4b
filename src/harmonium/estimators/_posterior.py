"""The posterior of the hidden units given a row, by naive mean field."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine
from harmonium.meanfield import naive

_TOLERANCE = 1e-5  # of the posterior


@torch.no_grad()
def hidden_means(machine: BoltzmannMachine, v: Tensor) -> Tensor:
    """The means of all hidden layers side by side, (rows, their widths), given rows (rows, visible_width).

    NaN is not observed. Exact where nothing is missing and hidden layers are not joined.
    """
    means = naive(machine, v, v, tolerance=_TOLERANCE).means
    return torch.cat([means[l] for l in machine.hidden], -1)
