"""The offsets of centring for rules that are right on average: means given the data, without noise."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium.learning.expectation import Task

_SWEEPS = 2  # docs/design_notes.md, "Centring", has what more of them bring


def offsets(task: Task) -> list[Tensor]:
    """μ_l: the mean over the batch of every layer given the data.

    They depend on the machine and the batch alone and not on the noise of the estimate, so that centring,
    which is linear in the estimate at fixed offsets, leaves an unbiased one unbiased. Where nothing is left
    to sample they are exact, and the clamped phase holds them already. Elsewhere they take two sweeps of
    naive mean field, from hidden units uniform over their states: the nearer to the means the better the
    coordinates, but every choice of offsets is right.

    They do know the rows. Where batches of B rows are drawn anew for every update the covariance of units
    given the data counts (1 - 2/B) on average, so that few rows shrink couplings. Rules that are not right on
    average anyway have the midpoint of the estimated means (``Rule.direction``), where what rows and chains
    do to the offsets cancels when there are as many.

    Args:
        task: what the clamped phase was asked for and has added.

    Returns:
        For every layer, (width_l,), times the weight of the task.
    """
    if task.exact:
        return task.into.means()
    rows, law = len(task.v), task.hamiltonian.given(task.v, len(task.v), task.complete)
    means = law.split(task.v)
    for l, layer in enumerate(law.layers):
        # The middle of the states, so that it is the same units whichever of two states is called 1.
        no_field = torch.zeros(1, layer.width, dtype=law.dtype, device=law.device)
        middle = layer.moments(no_field, theta=layer.reference()).mean
        means[l] = law.hold(l, middle.expand(rows, -1))
    for _ in range(_SWEEPS):
        for l in (*law.graph.visible, *law.graph.order):
            if not law.fixes(l):
                means[l] = law.hold(l, law.mean(l, law.field(l, means)))
    weights = task.row_weights
    return [task.weight * (x.mean(0) if weights is None else weights @ x / rows) for x in means]
