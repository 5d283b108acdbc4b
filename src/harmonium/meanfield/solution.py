"""What a mean-field solver returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Solution(NamedTuple):
    """Fixed points, one a row.

    Attributes:
        means: for each layer (batch, width_l).
        variances: for each layer (batch, width_l).
        free_energy: (batch,), float64, approximates -ln Z, or -ln p̃(v) for clamped visible units.
        converged: (batch,), whether the row met the tolerance within the sweeps allowed.
        sweeps: (batch,), sweeps that the row took.
    """

    means: list[Tensor]
    variances: list[Tensor]
    free_energy: Tensor
    converged: Tensor
    sweeps: Tensor
