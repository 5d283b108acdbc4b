"""Machines that have learned less than independent columns."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from math import hypot
from typing import Any

import torch
from torch import Tensor

from harmonium import _random
from harmonium.likelihood import (
    annealed_bound,
    find_log_partition,
    score_separate,
    separate,
    variational_bound,
)
from harmonium.machine import BoltzmannMachine

_LOOKED_AT = 256  # rows, at most: their mean ln p is then known to a nat or two
_LEAST = 50  # rows, fewer of which tell little
_SURE = 5.0  # standard errors by which a machine has to fall short
_ANNEALING: dict[str, Any] = {
    "chains": 50,
    "temperatures": 300,
}  # half a second of 784 columns beside 500 hidden units
_LOST = 0.01  # of ln p under independent columns, of which a machine that has learned little may fall short
_SHARE_OF_SUMS = 1 / 16  # of the largest automatic sum: a fifth of a second beside a training of one or more


@torch.no_grad()
def find_collapse(
    machine: BoltzmannMachine,
    rows: Tensor,
    weights: Tensor | None = None,
    seed: int | torch.Generator = 0,
) -> str | None:
    """Finds whether a machine gives rows a lower likelihood than independent columns do.

    ln Z is exact where that is quick. Else it is annealed, which on average puts it too low and so spares the
    machine. ln p of joined hidden layers is bounded from below, by annealing where mean field speaks against
    the machine. It has to fall short by five standard errors and 1 %.

    Args:
        machine: Trained machine.
        rows: visible states, (rows, visible_width), NaN where missing; complete ones are read, of which 256
            are scored.
        weights: Row weights, (rows,), at least 0; None means uniform.
        seed: Seed of the annealing, an int or a generator.

    Returns:
        How far it falls short, in one sentence; None: it does not, or there are fewer than 50 rows.
    """
    complete = ~rows.isnan().any(1)
    weights = None if weights is None else weights[complete.to(weights.device)].to(machine.device)
    v = rows[complete].to(machine.device, machine.dtype)
    if len(v) < _LEAST:
        return None
    generator = _random.as_generator(seed, machine.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of few effective runs: then ln Z is too low
        partition = find_log_partition(
            machine, v, weights=weights, fraction=_SHARE_OF_SUMS, reverse=False, seed=generator, **_ANNEALING
        )
    share = torch.ones(len(v), dtype=torch.float64) if weights is None else weights.double().cpu()
    looked_at = torch.linspace(0, len(v) - 1, min(len(v), _LOOKED_AT), dtype=torch.float64).long()
    x, share = v[looked_at], share[looked_at] / share[looked_at].sum()
    alone = torch.stack(score_separate(separate(machine, v.double(), weights), x)).sum(0).cpu()
    bounds: list[Callable[..., Tensor]] = [variational_bound]
    if not machine.graph.independent:
        bounds.append(partial(annealed_bound, chains=2, temperatures=30))
    for bound in bounds:
        row_bounds = bound(machine, x, partition).double().cpu()
        less, simplest = float(share @ (alone - row_bounds)), float(share @ alone)
        error = float((share.square() @ (alone - row_bounds - less).square()).sqrt())
        if less <= _SURE * hypot(error, partition.standard_error) + _LOST * abs(simplest):
            return None
    return (
        f"the machine is worse than independent columns, which have {simplest:.4g} nats a row where it has "
        f"{simplest - less:.4g}"
    )
