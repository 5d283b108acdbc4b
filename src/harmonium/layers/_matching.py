"""Natural parameters from expected statistics, where no formula gives them."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from harmonium.layers.layer import Layer, Theta

_STEPS = 500
_PRECISE = 1e-6
_ROUNDING = 1e-13  # of ψ: what a step near the solution may seem to lose


def matching_theta(layer: Layer, expected: Theta) -> Theta:
    """θ with E[t] = expected for units without neighbours, by Newton's method in float64.

    ψ(θ) - θ·expected is convex, its gradient is E[t] - expected, and every step lowers it.

    Args:
        layer: gives ψ and the start, its pure noise; its own parameters are not read.
        expected: E[t], each (width,) float64, of a law that is not confined to single points.

    Raises:
        ValueError: no θ was found; the message names the unit.
    """
    target = torch.stack(expected)
    theta = torch.stack([part.detach().to(target) for part in layer.reference()])
    field = torch.zeros_like(target[0])

    def height(theta: Tensor) -> Tensor:
        return layer.log_partition(field, theta=tuple(theta)) - (theta * target).sum(0)

    best = height(theta)
    previous = inf
    for _ in range(_STEPS):
        gradient, hessian = _derivatives(layer, field, theta, target)
        scale = hessian.diagonal(dim1=-2, dim2=-1).sqrt()
        # In units of the statistics' own deviations.
        wrong = (gradient.T / scale).abs().amax(-1)
        largest = float(wrong.max())
        if largest <= _PRECISE and largest > previous / 2:  # down to rounding
            return tuple(theta)
        previous = largest
        correlation = hessian / scale.unsqueeze(-1) / scale.unsqueeze(-2)
        direction = torch.linalg.lstsq(correlation, (gradient.T / scale).unsqueeze(-1)).solution
        step = (direction.squeeze(-1) / scale).T
        length = torch.ones_like(best)
        for _ in range(60):
            trial = theta - length * step
            value = height(trial)
            worse = ~(value <= best + _ROUNDING * (1 + best.abs()))
            if not bool(worse.any()):
                break
            length = torch.where(worse, length / 2, length)
        moved = ~worse
        theta = torch.where(moved, trial, theta)
        best = torch.where(moved, value, best)
    unit = int(wrong.argmax())
    raise ValueError(f"expected: found no parameters with these statistics for unit {unit}")


def _derivatives(layer: Layer, field: Tensor, theta: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """E[t] - expected, (statistics, units), and its derivative, (units, statistics, statistics)."""
    with torch.enable_grad():
        parts = tuple(part.clone().requires_grad_() for part in theta)
        statistics = layer.expected_statistics(field, theta=parts)
        rows = [torch.autograd.grad(t.sum(), parts, retain_graph=True) for t in statistics]
    hessian = torch.stack([torch.stack(row, -1) for row in rows], -2)
    return torch.stack(statistics).detach() - target, hessian
