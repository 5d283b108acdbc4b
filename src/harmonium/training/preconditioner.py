"""A preconditioner of L-BFGS for one layer of discrete units with couplings among them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

import torch
from torch import Tensor

from harmonium.couplings import Dense
from harmonium.machine import BoltzmannMachine
from harmonium.training.batch_source import Batch
from harmonium.training.penalties import L2, FieldL2, Penalty

_COLUMNS = 128  # of couplings at a time, whose temporary matrices stay small beside J


@final
class Preconditioner:
    """Multiplies by an approximate inverse Hessian of the penalised pseudo-likelihood.

    With centred states, x - E[x], a change of couplings leaves the mean fields as they are. The curvature
    along a coupling of columns i and j is then about 2 v_i v_j and its penalty, and v_i along a field, with
    variances v of the data. Rare letters have small variances, which is why steps along plain gradients are
    slow. Of categorical units, directions that change no probability have the curvature of the penalty
    alone. No step goes there, once fields and couplings are in the gauge of least penalty.

    Args:
        means, variances: Means and variances of the columns, (width,).
        columns: Columns of a unit; 1 of units with two states.
        fields, couplings: Strengths of the L2 penalties.
        rows: Rows of the data.
    """

    def __init__(
        self,
        means: Tensor,
        variances: Tensor,
        *,
        columns: int = 1,
        fields: float = 0.0,
        couplings: float = 0.0,
        rows: int,
    ) -> None:
        self._means, self._variances, self._columns = means, variances, columns
        self._strengths = fields, couplings
        # The curvature that a letter without a row has: less than one row could be seen to have.
        self._least_curvature = 1.0 / rows

    @torch.no_grad()
    def settle_(self, fields: Tensor, J: Tensor) -> None:
        """Brings parameters to the gauge of least penalty, in place: every probability stays.

        With r_ij(a) the mean of J_ij(a, b) over b, and couplings that otherwise sum to zero, the penalty is
        least where h_i(a) times its strength is r_ij(a) times that of couplings and the number of states.
        Without a penalty of fields that is the zero-sum gauge.

        Args:
            fields: Fields, of the shape of the layer's.
            J: Couplings, (width, width), those of a pair of units once, above the diagonal.
        """
        q = self._columns
        if q == 1:
            return
        n = len(J) // q
        h, blocks = fields.view(n, q), J.view(n, q, n, q)
        below, above = blocks.mean(3), blocks.mean(1)  # (n, q, n) and (n, n, q), zero but for i < j
        grand = below.mean(1)
        mean_field = h - h.mean(1, keepdim=True)
        mean_field += (below - grand[:, None]).sum(2) + (above - grand[:, :, None]).sum(0)
        on_fields, on_couplings = self._strengths
        total = q * on_couplings + (n - 1) * on_fields
        pair_fields = mean_field * (on_fields / total if total else 0.0)
        h.copy_(mean_field - (n - 1) * pair_fields)
        pairs = torch.ones(n, n, dtype=J.dtype, device=J.device).triu_(1)
        below -= grand[:, None] + pair_fields[:, :, None] * pairs[:, None]
        above -= pair_fields[None] * pairs[:, :, None]
        blocks -= below[..., None]
        blocks -= above[:, None]

    @torch.no_grad()
    def apply_(self, fields: Tensor, J: Tensor) -> None:
        """Multiplies a gradient, or a difference of two, by the preconditioner, in place.

        Args:
            fields: Its entries for fields, as in ``settle_``.
            J: Those for couplings.
        """
        q, means, v = self._columns, self._means, self._variances
        slope = fields.flatten()
        on_fields, on_couplings = (strength + self._least_curvature for strength in self._strengths)
        scaled = slope / (v + on_fields)
        units = torch.arange(len(J), device=J.device) // q
        step = q * max(1, _COLUMNS // q)
        for start in range(0, len(J), step):
            some, later = slice(start, start + step), slice(start, None)
            block = J[some, later]
            block -= torch.outer(slope[some], means[later]).addr_(means[some], slope[later])
            block /= torch.outer(2 * v[some], v[later]).add_(on_couplings)
            block *= units[some, None] < units[later]
            scaled[some] -= block @ means[later]
            scaled[later] -= means[some] @ block
        fields.copy_(scaled.view_as(fields))
        self.settle_(fields, J)


def make_preconditioner(
    machine: BoltzmannMachine, learned: Iterable[str], penalties: Iterable[Penalty], batch: Batch
) -> Preconditioner | None:
    """Returns the preconditioner of a fit; None of a machine other than one layer of discrete units.

    Args:
        machine: Machine, whose layer has units of two states or categorical ones, each joined to all others.
        learned: Names of the parameters that are learned.
        penalties: Penalties of the run; with others than L2 there is none.
        batch: All rows, complete, with their weights.
    """
    layer = machine.layers[0]
    strengths = {L2: 0.0, FieldL2: 0.0}
    for penalty in penalties:
        if type(penalty) not in strengths:
            return None
        strengths[type(penalty)] += penalty.strength
    low, high = (0.0, 1.0) if layer.one_hot else layer.two_values or (0.0, 0.0)
    of_pairs = machine.edges == ((0, 0),) and isinstance(machine.couplings[0], Dense)
    if low == high or not of_pairs or [*learned] != [f"layers.0.{layer.location}", "couplings.0.weight"]:
        return None
    v = batch.v.to(machine.device, machine.dtype)
    weights = None if batch.weights is None else batch.weights.to(machine.device, machine.dtype)
    means = v.mean(0) if weights is None else weights @ v / weights.sum()
    if not bool(means.isfinite().all()):
        return None
    return Preconditioner(
        means,
        ((means - low) * (high - means)).clamp_(min=0),
        columns=layer.columns_per_unit,
        fields=strengths[FieldL2],
        couplings=strengths[L2],
        rows=len(v),
    )
