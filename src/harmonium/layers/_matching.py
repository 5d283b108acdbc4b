"""The parameters of a truncated law from its moments, where no formula gives them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from harmonium.layers._truncated import truncated_nodes

_STEPS = 500  # far more than any moments take; each may double the parameters
_HALVINGS = 60
_PRECISE = 1e-9  # of the statistics' own deviations
_STEEPEST = 20.0  # of the share: at 1/distance = -γ the rounding of γ moves a few percent of the mass
_ROUNDING = 1e-14  # of the interval: nearer than this, moments in float64 say nothing


class MatchedLaw(NamedTuple):
    """Slope δ and curvature γ of the density exp(δx - γx²/2), each (units,)."""

    slope: Tensor
    curvature: Tensor


def matching_law(
    mean: Tensor, second: Tensor, low: Tensor, high: Tensor, precision: torch.dtype
) -> MatchedLaw:
    """δ and γ with E[x] = mean and E[x²] = second on [low, high], by Newton's method.

    Every law has exactly one such pair, of finite size unless x is confined to one point or to both ends. So
    that these have one too, the moments are mixed with those of a uniform law, by the share that x is rounded
    by in ``precision``, in units of the interval. Nor may γ be so negative that rounding it would change
    which end has the mass: from the ends x keeps a distance of a few such shares.

    Args:
        mean: E[x], (units,) float64.
        second: E[x²], (units,) float64. Moments that rounding has made impossible are moved to possible ones.
        low: of every interval, (units,) or (1,), float64.
        high: the same.
        precision: the type that δ and γ are going to be rounded to.

    Raises:
        ValueError: moments that are not finite, or no δ and γ were found; the message names the unit.
    """
    centre, half = (low + high) / 2, (high - low) / 2
    # x = centre + half·z: in z an interval is [-1, 1], so that the heights of its ends differ by 2δ alone.
    first = ((mean - centre) / half).clamp(-1, 1)
    square = (second - centre * (2 * mean - centre)) / half.square()
    square = torch.minimum(torch.maximum(square, first.square()), torch.ones_like(square))
    share = (torch.finfo(precision).eps * torch.maximum(low.abs(), high.abs()) / half).clamp(max=0.5)
    distance = (_STEEPEST * share).clamp(max=0.1)
    first = torch.clamp((1 - share) * first, 3 * distance - 1, 1 - 3 * distance)
    bulge = torch.maximum((1 - share) * (1 - square) / 2 + share / 3, distance)
    slope, curvature = _solve(first, bulge)
    curvature = curvature / half.square()
    return MatchedLaw(slope / half + curvature * centre, curvature)


def _solve(first: Tensor, bulge: Tensor) -> MatchedLaw:
    """δ and γ with E[z] = first and E[(1-z²)/2] = bulge on [-1, 1].

    The two are the slope of a convex function, the log-mass less δ·first + γ·bulge. A Newton step is halved
    until it does not pass far beyond the least value on its way.
    """
    finite = torch.isfinite(first) & torch.isfinite(bulge)
    if not bool(finite.all()):
        raise ValueError(f"expected: expected finite statistics, received others for unit {_first(~finite)}")
    slope, curvature = torch.zeros_like(first), torch.zeros_like(first)
    now = _Residual.of(slope, curvature, first, bulge)
    for _ in range(_STEPS):
        open_units = ~now.settled
        if not bool(open_units.any()):
            return MatchedLaw(slope, curvature)
        step_slope, step_curvature = now.newton()
        descent = (now.first * step_slope + now.bulge * step_curvature).abs()
        length = open_units.to(first.dtype)
        for _ in range(_HALVINGS):
            new = slope + length * step_slope, curvature + length * step_curvature
            trial = _Residual.of(*new, first, bulge)
            # The residual along the step, positive before the least value and negative beyond it.
            ahead = trial.first * step_slope + trial.bulge * step_curvature
            beyond = ~(ahead >= -descent / 2) & ~trial.settled
            if not bool(beyond.any()):
                break
            length = torch.where(beyond, length / 2, length)
        (slope, curvature), now = new, trial
    raise ValueError(f"expected: found no parameters with these statistics for unit {_first(~now.settled)}")


class _Residual(NamedTuple):
    """The distance of a distribution's moments from the wanted ones, with the variances for a Newton step.

    Attributes:
        first: wanted less present E[z].
        bulge: the same of (1-z²)/2.
        variance: of z.
        regression: of (1-z²)/2 on z.
        rest: variance of what z leaves of (1-z²)/2.
    """

    first: Tensor
    bulge: Tensor
    variance: Tensor
    regression: Tensor
    rest: Tensor

    @classmethod
    def of(cls, slope: Tensor, curvature: Tensor, first: Tensor, bulge: Tensor) -> _Residual:
        one = torch.ones_like(slope)
        z, arch, weight = truncated_nodes(slope, curvature, -one, one)
        mean, height = (weight * z).sum(0), (weight * arch).sum(0)
        z, arch = z - mean, arch - height
        variance = (weight * z.square()).sum(0)
        regression = (weight * z * arch).sum(0) / variance
        rest = (weight * (arch - regression * z).square()).sum(0)
        return cls(first - mean, bulge - height, variance, regression, rest)

    @property
    def settled(self) -> Tensor:
        """Booleans by unit: true where the moments are the wanted ones up to rounding."""
        spread = self.regression.square() * self.variance + self.rest
        near = [
            residual.abs() <= (_PRECISE * variance.sqrt()).clamp(min=_ROUNDING)
            for residual, variance in ((self.first, self.variance), (self.bulge, spread))
        ]
        return near[0] & near[1]

    def newton(self) -> tuple[Tensor, Tensor]:
        """The step that would settle them if the moments were linear in δ and γ."""
        alone = (self.bulge - self.regression * self.first) / self.rest
        return self.first / self.variance - self.regression * alone, alone


def _first(units: Tensor) -> int:
    return int(units.nonzero()[0])
