"""Bennett's acceptance ratio: ln Z of one machine from another's, by states of both."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_STEPS = 200
_TOLERANCE = 1e-15


class BennettRatio(NamedTuple):
    """ln Z_b - ln Z_a of two machines.

    Attributes:
        value: the difference.
        influence: of every state of a, then of every state of b, on the value, (n_a + n_b,): the value errs
            by their sum, to first order. Their squares add up to its variance where states are independent;
            where they are chains, sum those of each chain first.
        standard_error: of the value, if all states are independent.
        overlap: of the two laws, from 0 to 1 where they are equal: the mean of 4 σ(u) σ(-u) over the states.
            Below a few hundredths the value rests on hardly any state, and its error cannot be trusted.
    """

    value: float
    influence: Tensor
    standard_error: float
    overlap: float


def bennett_ratio(
    gap_a: Tensor, gap_b: Tensor, weights_a: Tensor | None = None, weights_b: Tensor | None = None
) -> BennettRatio:
    """Solves Σ_{x~a} σ(-(c + Δ + M)) = Σ_{x~b} σ(c + Δ + M) for c = ln Z_b - ln Z_a (Bennett 1976).

    Δ(x) = F_b(x) - F_a(x) and M = ln(n_a / n_b). No estimate from these states has less
    variance.

    Args:
        gap_a: Δ of states of a, (n_a,).
        gap_b: Δ of states of b, (n_b,).
        weights_a: of the states of a, (n_a,), at least 0; None: all count alike. They count relative to
            their mean.
        weights_b: of the states of b, (n_b,).

    Returns:
        The difference with its error and the overlap; see ``BennettRatio`` for the shape of influences.

    Raises:
        ValueError: values that are not finite.
    """
    x, y = gap_a.double(), gap_b.double()
    if not bool(torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise ValueError("machine: expected finite free energies, received others")
    v = torch.ones_like(x) if weights_a is None else weights_a.double() / weights_a.double().mean()
    w = torch.ones_like(y) if weights_b is None else weights_b.double() / weights_b.double().mean()
    shift = torch.log(x.new_tensor(len(x) / len(y)))

    def excess(c: Tensor) -> Tensor:
        """Returns the left side less the right one, which falls as c rises."""
        return (v * torch.sigmoid(-(c + x + shift))).sum() - (w * torch.sigmoid(c + y + shift)).sum()

    ends = torch.cat((-x, -y)) - shift
    low, high = ends.min() - 1, ends.max() + 1
    while excess(low) < 0:
        low = low - (high - low)
    while excess(high) > 0:
        high = high + (high - low)
    c = (low + high) / 2
    for _ in range(_STEPS):  # Newton's steps inside a bracket
        over = excess(c)
        low, high = torch.where(over > 0, c, low), torch.where(over > 0, high, c)
        slope = -(_bumps(v, c + x + shift).sum() + _bumps(w, c + y + shift).sum())
        following = c - over / slope
        inside = bool((following > low) & (following < high))  # false where the slope is 0
        following = following if inside else (low + high) / 2
        done = bool((following - c).abs() <= _TOLERANCE * (1 + c.abs()))
        c = following
        if done:
            break
    bumps = torch.cat((_bumps(v, c + x + shift), _bumps(w, c + y + shift)))
    left, right = torch.sigmoid(-(c + x + shift)), torch.sigmoid(c + y + shift)
    mean_a, mean_b = (v * left).sum() / v.sum(), (w * right).sum() / w.sum()
    influence = torch.cat((v * (left - mean_a), -w * (right - mean_b))) / bumps.sum()
    error = float(influence.square().sum().sqrt())
    sizes = len(x) * len(y) / (len(x) + len(y))
    return BennettRatio(float(c), influence, error, float(bumps.sum() / sizes))


def _bumps(weights: Tensor, u: Tensor) -> Tensor:
    """Returns weighted σ(u) σ(-u), of the shape of u."""
    return weights * torch.sigmoid(u) * torch.sigmoid(-u)
