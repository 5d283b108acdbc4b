"""What meeting times say about mixing."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium.couplings.meetings import Meetings


def mixing_bound(meetings: Meetings, steps: Tensor | range) -> Tensor:
    """Upper bounds on the total variation between the law of X_t and the machine's law (Biswas et al. 2019).

    d_TV(t) ≤ E[max(0, ⌈(τ - lag - t)/lag⌉)], estimated by the mean over pairs. The chains' start is the start
    of the pairs; a larger lag gives a tighter bound at a higher cost.

    Args:
        meetings: from ``couplings.meet``.
        steps: the numbers t of sweeps, each at least 0.

    Returns:
        One bound for each t, float64, at most 1.

    Raises:
        ValueError: a pair was capped, so that nothing is bounded.
    """
    if bool(meetings.capped.any()):
        raise ValueError(
            f"meetings: expected pairs that all met, received {int(meetings.capped.sum())} capped ones; "
            "run them without max_steps"
        )
    t = torch.as_tensor(list(steps), dtype=torch.float64, device=meetings.times.device)
    excess = (meetings.times.double() - meetings.lag - t.unsqueeze(-1)) / meetings.lag
    return excess.ceil().clamp(min=0).mean(-1).clamp(max=1)
