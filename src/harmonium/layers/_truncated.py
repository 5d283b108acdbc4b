"""The distribution p(x) ∝ exp(δx - γx²/2) on an interval, for any γ, and δ and γ from moments.

The closed forms in error functions lose all digits for γ → 0 and far from the middle of the interval, and for
γ < 0 they overflow. Instead the interval is cut where the density is highest (γ > 0) or lowest (γ ≤ 0) into
two pieces, on each of which it falls from one end, the anchor. Each piece stops where the density has fallen
to rounding and takes one fixed Gauss-Legendre rule: all terms are positive, nothing cancels, and the
exponents of all nodes are one small matrix product. To automatic differentiation the nodes are constants, so
that derivatives of every order are those of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _device

_FALL = {torch.float32: 18.0, torch.float64: 36.0}  # log of the density's fall where a piece stops
_NODES = {torch.float32: 14, torch.float64: 28}  # see docs/decisions/0003
_CHUNK = 1 << 14  # units at a time, so that their nodes stay in the cache
_CUBIC_STEPS = 30  # far more than an inversion takes; from then on it halves its bracket
_NEWTON_STEPS = 500  # far more than any moments take; each may double the parameters
_HALVINGS = 60  # of a bracket: more than the 53 bits of a float64 need
_PRECISE = 1e-9  # of the statistics' own deviations
_STEEPEST = 20.0  # of the share: at 1/distance = -γ the rounding of γ moves a few percent of the mass
_ROUNDING = 1e-14  # of the interval: nearer than this, moments in float64 say nothing


class TruncatedMoments(NamedTuple):
    """ln ∫ exp(δx - γx²/2) dx, and the mean and variance of x, each of the shape of δ."""

    log_mass: Tensor
    mean: Tensor
    variance: Tensor


class _Rule(NamedTuple):
    """Gauss-Legendre on [0, 1].

    Attributes:
        basis: (nodes, 2), the factors -t and -t²/2 of fall and bend.
        weights: (3, nodes), of the integrals of 1, t and t².
    """

    basis: Tensor
    weights: Tensor


class _Pieces(NamedTuple):
    """Both pieces of every interval, each (2, ...): x = anchor + reach·t for t in [0, 1].

    The density at t is exp(top + lift - fall·t - bend·t²/2), which never rises. The higher anchor has lift 0;
    ``top`` is of the shape of the slope.
    """

    anchor: Tensor
    reach: Tensor
    fall: Tensor
    bend: Tensor
    top: Tensor
    lift: Tensor


def truncated_moments(slope: Tensor, curvature: Tensor, low: Tensor, high: Tensor) -> TruncatedMoments:
    """Returns mass and moments of exp(slope·x - curvature·x²/2) on [low, high]; arguments of one shape."""
    if torch.is_grad_enabled() and (slope.requires_grad or curvature.requires_grad):
        return _find_moments(slope, curvature, low, high)
    parts = [_find_moments(*chunk) for chunk in _split_chunks(slope, curvature, low, high)]
    log_mass, mean, variance = (torch.cat(part).view(slope.shape) for part in zip(*parts, strict=True))
    return TruncatedMoments(log_mass, mean, variance)


@torch.no_grad()
def truncated_quantile(level: Tensor, slope: Tensor, curvature: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Returns the x below which a fraction ``level`` in [0, 1] of the mass lies; arguments of one shape."""
    parts = [_find_quantile(*chunk) for chunk in _split_chunks(level, slope, curvature, low, high)]
    return torch.cat(parts).view(slope.shape)


def truncated_nodes(
    slope: Tensor, curvature: Tensor, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns points of a quadrature, each (points, ...): x, (x-low)(high-x)/2, weights of sum 1.

    The second is precise near both ends, where it is nearly 0.
    """
    pieces = _cut(slope, curvature, low, high)
    rule = _make_rule(slope.dtype, slope.device)
    one_a_node = (-1, *[1] * pieces.fall.dim())
    t, weights = -rule.basis[:, 0].view(one_a_node), rule.weights[0].view(one_a_node)
    density = _find_density(pieces.fall, pieces.bend, rule).view(-1, *pieces.fall.shape)
    along = t * pieces.reach
    arch = (pieces.anchor - low + along) * (high - pieces.anchor - along) / 2
    mass = weights * density * pieces.reach.abs() * pieces.lift.exp()
    x, arch, mass = (part.flatten(0, 1) for part in (pieces.anchor + along, arch, mass))
    return x, arch, mass / mass.sum(0)


def truncated_mode(slope: Tensor, curvature: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Returns the point of highest density; of two equally high ends the upper one."""
    end = torch.where(slope >= curvature * (low + high) / 2, high, low)
    return torch.where(curvature > 0, _find_stationary(slope, curvature, low, high), end)


def _find_moments(slope: Tensor, curvature: Tensor, low: Tensor, high: Tensor) -> TruncatedMoments:
    pieces = _cut(slope, curvature, low, high)
    rule = _make_rule(slope.dtype, slope.device)
    sums = (rule.weights @ _find_density(pieces.fall, pieces.bend, rule)).view(3, *pieces.fall.shape)
    masses = pieces.reach.abs() * sums[0] * pieces.lift.exp()
    mass = masses.sum(0)
    share = masses / mass
    first, second = sums[1] / sums[0], sums[2] / sums[0]
    # From each anchor. A falling density has a variance of at least a quarter of its second moment.
    means, variances = pieces.reach * first, pieces.reach.square() * (second - first.square())
    gap = (pieces.anchor[0] - pieces.anchor[1]) + (means[0] - means[1])
    return TruncatedMoments(
        pieces.top + mass.log(),
        (share * (pieces.anchor + means)).sum(0),
        (share * variances).sum(0) + share[0] * share[1] * gap.square(),
    )


def _find_quantile(level: Tensor, slope: Tensor, curvature: Tensor, low: Tensor, high: Tensor) -> Tensor:
    pieces = _cut(slope, curvature, low, high)
    rule = _make_rule(slope.dtype, slope.device)
    sums = (rule.weights[:1] @ _find_density(pieces.fall, pieces.bend, rule)).view(pieces.fall.shape)
    masses = pieces.reach.abs() * sums * pieces.lift.exp()
    left = masses[0] / masses.sum(0)
    in_left = level < left
    fraction = _device.where(in_left, level / left, (level - left) / (1 - left)).clamp_(0, 1)
    parts = (pieces.anchor, pieces.reach, pieces.fall, pieces.bend, sums)
    anchor, reach, fall, bend, mass = (_device.where(in_left, part[0], part[1]) for part in parts)
    fraction = _device.where(reach < 0, 1 - fraction, fraction)  # as seen from the anchor
    x = anchor + reach * _invert(fraction, mass, fall, bend, rule)
    return torch.minimum(torch.maximum(x, low), high)


def _invert(fraction: Tensor, mass: Tensor, fall: Tensor, bend: Tensor, rule: _Rule) -> Tensor:
    """Returns the t in [0, 1] with ∫_0^t exp(-fall·s - bend·s²/2) ds = fraction · mass, mass = ∫_0^1.

    Each step solves the equation for the exponential that touches the density at t, which converges cubically
    and, for bend ≥ 0, from one side. A bracket catches every other case.
    """
    precision = torch.finfo(mass.dtype).eps
    close = 0.3 * precision ** (1 / 3)  # a step so small leaves an error below the precision
    target = fraction * mass
    # As if the mass beyond t were exp(-fall·t - bend·t²/2), which is exact for bend = 0.
    total = fall + bend / 2
    level = -torch.log1p(fraction * torch.expm1(-total))
    t = 2 * level / (fall + (fall.square() + 2 * bend * level).clamp_(min=0).sqrt_())
    t = _device.where((total > 1e-3) & (fraction > 0), t.nan_to_num_(nan=1.0), fraction).clamp_(0, 1)
    low, high = torch.zeros_like(t), torch.ones_like(t)
    result, rows = t, torch.arange(len(t), device=t.device)
    for step in count():
        excess = t * (rule.weights[0] @ _find_density(fall * t, bend * t.square(), rule)) - target
        low, high = _device.where(excess <= 0, t, low), _device.where(excess >= 0, t, high)
        rate = fall + bend * t
        ratio = excess * (t * (fall + bend * t / 2)).exp()
        change = rate * ratio
        exact = torch.log1p(change) / rate
        moved = t - _device.where(change.abs() < 1e-4, ratio - change * ratio / 2, exact)
        caught = (moved >= low) & (moved <= high)
        moved = _device.where(caught, moved, (low + high) / 2) if step < _CUBIC_STEPS else (low + high) / 2
        result = moved if step == 0 else result.index_copy(0, rows, moved)
        far = (moved - t).abs() > close * moved
        unsettled = ((excess.abs() > 4 * precision * target) & (far | ~caught)).nonzero().squeeze(-1)
        if len(unsettled) == 0:
            break
        rows = rows[unsettled]
        t, target, low, high = moved[unsettled], target[unsettled], low[unsettled], high[unsettled]
        fall, bend = fall[unsettled], bend[unsettled]
    return result


def _cut(slope: Tensor, curvature: Tensor, low: Tensor, high: Tensor) -> _Pieces:
    with torch.no_grad():
        stationary = _find_stationary(slope, curvature, low, high)
        peaked = curvature >= 0
        anchor = torch.stack((torch.where(peaked, stationary, low), torch.where(peaked, stationary, high)))
        end = torch.stack((torch.where(peaked, low, stationary), torch.where(peaked, high, stationary)))
        steepness = (slope - curvature * anchor).abs()
        if slope.dtype not in _FALL:
            raise TypeError(f"field: expected float32 or float64, received {slope.dtype}")
        most = _FALL[slope.dtype]
        # Where steepness·d + curvature·d²/2 = most; beyond the piece if that is never.
        root = (steepness.square() + 2 * most * curvature).clamp_(min=0).sqrt_()
        cut = 2 * most / (steepness + root)
        reach = torch.copysign(torch.minimum((end - anchor).abs(), cut), end - anchor)
    fall = (curvature * anchor - slope) * reach
    # The difference of the heights, and not the heights, which may be huge and nearly equal.
    ahead = (anchor[0] - anchor[1]) * (slope - curvature * (anchor[0] + anchor[1]) / 2)
    first = (ahead >= 0).detach()
    highest = torch.where(first, anchor[0], anchor[1])
    zero = torch.zeros_like(ahead)
    lift = torch.stack((torch.where(first, zero, ahead), torch.where(first, -ahead, zero)))
    top = (slope - curvature * highest / 2) * highest
    return _Pieces(anchor, reach, fall, curvature * reach.square(), top, lift)


def _find_stationary(slope: Tensor, curvature: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Returns δ/γ put into the interval; for γ = 0 the upper limit γ → 0+, and 0 for a flat density."""
    point = (slope / (curvature + 0.0)).nan_to_num_(nan=0.0)  # the sum turns a negative zero
    return torch.minimum(torch.maximum(point, low), high)


def _find_density(fall: Tensor, bend: Tensor, rule: _Rule) -> Tensor:
    """Returns exp(-fall·t - bend·t²/2) at the rule's nodes, (nodes, elements)."""
    coefficients = torch.stack((fall.flatten(), bend.flatten()))
    exponents = rule.basis @ coefficients
    return exponents.exp() if exponents.requires_grad else exponents.exp_()


@cache
def _make_rule(dtype: torch.dtype, device: torch.device) -> _Rule:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES[dtype])
    t, w = (nodes + 1) / 2, weights / 2
    basis = np.stack((-t, -t * t / 2), 1)
    moments = np.stack((w, w * t, w * t * t))
    return _Rule(*(torch.from_numpy(part).to(device, dtype) for part in (basis, moments)))


def _split_chunks(*arguments: Tensor) -> Iterator[list[Tensor]]:
    flat = [x.reshape(-1) for x in arguments]
    return map(list, zip(*(torch.split(x, _CHUNK) for x in flat), strict=True))


def match_moments(
    mean: Tensor, second: Tensor, low: Tensor, high: Tensor, precision: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Returns δ and γ, (units,), with E[x] = mean and E[x²] = second on [low, high], by Newton's method.

    Every distribution has exactly one such pair, finite unless x is confined to one point or to both ends. So
    that these have one too, the moments are mixed with those of a uniform distribution, by the share that x
    is rounded by in ``precision``, in units of the interval. Nor may γ be so negative that rounding it would
    change which end has the mass: from the ends x keeps a distance of a few such shares.

    Args:
        mean: E[x], (units,) float64.
        second: E[x²], (units,) float64. Moments that rounding has made impossible are moved to possible ones.
        low: Lower end of every interval, (units,) or (1,), float64.
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
    slope, curvature = _solve_moments(first, bulge)
    curvature = curvature / half.square()
    return slope / half + curvature * centre, curvature


def _solve_moments(first: Tensor, bulge: Tensor) -> tuple[Tensor, Tensor]:
    """Returns δ and γ with E[z] = first and E[(1-z²)/2] = bulge on [-1, 1].

    The two are the slope of a convex function, the log-mass less δ·first + γ·bulge. A Newton step is halved
    until it does not pass far beyond the least value on its way.
    """
    finite = torch.isfinite(first) & torch.isfinite(bulge)
    if not bool(finite.all()):
        raise ValueError(
            f"expected: expected finite statistics, received others for unit {int(finite.long().argmin())}"
        )
    slope, curvature = torch.zeros_like(first), torch.zeros_like(first)
    now = _Residual.of(slope, curvature, first, bulge)
    for _ in range(_NEWTON_STEPS):
        open_units = ~now.settled
        if not bool(open_units.any()):
            return slope, curvature
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
    unit = int(now.settled.long().argmin())
    raise ValueError(f"expected: found no parameters with these statistics for unit {unit}")


class _Residual(NamedTuple):
    """The distance of a distribution's moments from the wanted ones, with the variances for a Newton step.

    Attributes:
        first: wanted less present E[z].
        bulge: the same of (1-z²)/2.
        variance: Variance of z.
        regression: Slope of the regression of (1-z²)/2 on z.
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
        """Returns the step that would settle them if the moments were linear in δ and γ."""
        alone = (self.bulge - self.regression * self.first) / self.rest
        return self.first / self.variance - self.regression * alone, alone
