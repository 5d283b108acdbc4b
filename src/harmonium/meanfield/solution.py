"""The result of a mean-field solver."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from torch import Tensor

from harmonium._states import map_leaves, record


class Status(IntEnum):
    """The status of a row at the end of an iteration; ``message`` is its description."""

    CONVERGED = 0
    SWEEP_LIMIT = 1
    UNBOUNDED = 2

    @property
    def message(self) -> str:
        """Describes the status in words."""
        return (
            "met the tolerance",
            "still moved after the sweeps allowed",
            "left the region where real units have a normaliser; the row keeps its last point inside",
        )[self]


@record
class Solution(NamedTuple):
    """Fixed points, one a row; every number is finite, whatever the status.

    Attributes:
        means: Means, for each layer (batch, width_l).
        variances: Variances, for each layer (batch, width_l), zero for held units.
        free_energy: (batch,), float64, approximates -ln Z, or -ln Σ exp(-E) over what a clamp leaves free.
        status: (batch,), a ``Status`` as int64.
        sweeps: (batch,), sweeps that the row took.
        fields: B, for each layer (batch, width_l); with the curvatures it gives the distribution of every
            free unit.
        curvatures: diagonal of A, for each layer (batch, width_l).
        plefka: Plefka's number, (batch,), float64: the largest eigenvalue of c_i J_ij² c_j. From 1 on the
            expansion in the couplings does not converge. None where another solver than ``tap`` solved.
        stability: Smallest eigenvalue of the Hessian of F relative to its blocks of single units, (batch,),
            float64: 1 without couplings, at most 0 where the point is no minimum. None as above.
    """

    means: list[Tensor]
    variances: list[Tensor]
    free_energy: Tensor
    status: Tensor
    sweeps: Tensor
    fields: list[Tensor]
    curvatures: list[Tensor]
    plefka: Tensor | None = None
    stability: Tensor | None = None

    @property
    def admissible(self) -> Tensor:
        """Marks the rows that converged to a minimum within Plefka's condition, (batch,) booleans.

        Raises:
            ValueError: a solution of another solver than ``tap`` or ``landscape``.
        """
        if self.plefka is None or self.stability is None:
            raise ValueError(
                "solution: expected one of meanfield.tap or landscape, received one of another solver, which "
                "has no Plefka's number"
            )
        return self.converged & (self.plefka < 1) & (self.stability > 0)

    @property
    def converged(self) -> Tensor:
        """Marks the rows that met the tolerance within the sweeps allowed, (batch,) booleans."""
        return self.status == Status.CONVERGED

    def take(self, rows: Tensor) -> Solution:
        """Returns the solution at some of the rows."""
        solution: Solution = map_leaves(lambda x: None if x is None else x[rows], self)
        return solution
