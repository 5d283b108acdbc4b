"""Real units on the half line."""

from __future__ import annotations

from math import pi, sqrt
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.special import erfc, erfcx, ndtr, ndtri

from harmonium import _device
from harmonium.layers.layer import Moments, QuadraticUnits, Theta

_FAR = 3.0  # deviations below 0 from where on a continued fraction serves: differences lose digits there
_TERMS = {torch.float32: 10, torch.float64: 40}  # of the fraction: to rounding from there on
_HIGH = 12.0  # deviations above 0 from where on nothing is cut off: 1e-33
_NEWTON = 4  # steps to a quantile: each squares the error
_STEEPEST = -10.0  # deviations below 0 at which a fit stops: the distribution is exponential but for 2 %


class HalfLineMoments(NamedTuple):
    """ln ∫_0^∞ exp(δx - γx²/2) dx less the largest exponent, that exponent, and mean and variance of x."""

    log_width: Tensor
    top: Tensor
    mean: Tensor
    variance: Tensor


def half_line_moments(slope: Tensor, curvature: Tensor) -> HalfLineMoments:
    """Returns the distribution p(x) ∝ exp(slope·x - curvature·x²/2) on x ≥ 0.

    The curvature may have fewer rows than the slope. In units of σ = γ^-½ it is a normal density around z =
    δσ, cut at 0. Its mean is z + h with the hazard h = φ(z)/Φ(z), its variance 1 - h (z + h). Far below 0
    both are differences of nearly equal numbers; there the continued fraction of Mills's ratio, h = t + 1/(t
    + 2/(t + 3/(t + …))) with t = -z, has them as they are. NaN where the curvature is not positive.
    """
    deviation = curvature.rsqrt()
    z = slope * deviation
    t = (-z).clamp(min=_FAR)
    one, terms = t.new_ones(()), _TERMS[t.dtype]
    onward = (t + (t.square() + 4 * (terms + 1)).sqrt()) / 2  # as if it went on like its last term
    for n in range(terms, 2, -1):
        onward = torch.addcdiv(t, one, onward, value=n)
    rest = 2 / onward
    far = 1 / (t + rest)
    # Beyond -_FAR, not at it: whether clamp has a derivative at its bounds depends on the version of torch.
    near = z.clamp(-2 * _FAR, _HIGH) * sqrt(0.5)
    twice = erfc(-near)  # 2 Φ(z)
    coarse = (256 * near).round() / 256  # its square is exact
    hazard = (-coarse.square()).exp() * ((coarse - near) * (coarse + near)).exp() * sqrt(2 / pi) / twice
    below = z < -_FAR
    mean = _device.where(below, far, z + hazard)
    variance = _device.where(below, far * (rest - far), 1 - hazard * (z + hazard))
    density = _device.where(z > 0, sqrt(2 / pi) / twice, _device.where(below, t + far, hazard))
    log_width = deviation.log() - density.log()
    top = 0.5 * z.relu().square()
    return HalfLineMoments(log_width, top, deviation * mean, deviation.square() * variance)


@torch.no_grad()
def half_line_quantile(above: Tensor, slope: Tensor, curvature: Tensor) -> Tensor:
    """Returns the x above which a fraction ``above`` in (0, 1] of the distribution lies.

    The curvature may have fewer rows than the slope.
    """
    deviation = curvature.rsqrt()
    z = slope * deviation
    mass = ndtr(z)
    from_below = ndtr(-z) + (1 - above) * mass
    lower = from_below < 0.5  # the nearer tail has the digits
    deviations = ndtri(_device.where(lower, from_below, above * mass))
    y = (z + _device.where(lower, deviations, -deviations)).clamp_(min=0)
    far = (z < -_FAR).flatten().nonzero().squeeze(-1)
    if len(far):
        beyond = _find_far_quantile(above.reshape(-1)[far], -z.reshape(-1)[far])
        y = y.view(-1).index_copy(0, far, beyond).view_as(y)
    return y * deviation


def _find_far_quantile(above: Tensor, t: Tensor) -> Tensor:
    """Returns the y with Φ(-t - y)/Φ(-t) = above, by Newton's method on its log."""
    fall: Tensor = -above.log()
    start = erfcx(t * sqrt(0.5))
    hazard = sqrt(2 / pi) / start
    # As if the hazard rose in a straight line.
    y: Tensor = 2 * fall / (hazard + (hazard.square() + 2 * hazard * (hazard - t).clamp(min=0) * fall).sqrt())
    for _ in range(_NEWTON):
        scaled = erfcx((t + y) * sqrt(0.5))
        excess = y * (t + 0.5 * y) - (scaled / start).log() - fall
        y = (y - excess * scaled * sqrt(pi / 2)).clamp_(min=0)
    return y


@final
class ReLU(QuadraticUnits):
    """Units in [0, ∞); θ = (U, γ), t(x) = (x, -x²/2), ψ = ln ∫_0^∞ exp((U+B)x - (γ+A)x²/2) dx, γ + A > 0.

    A normal density around (U + B)/γ, cut at 0; the most probable state is the rectified max(0, (U + B)/γ)
    (Tubiana et al. 2019, with one half of the line).

    Args:
        n_units: number of units, at least 1.

    Attributes:
        linear: learnable U, (n_units,), zero at first.
        log_quadratic: learnable ln γ, (n_units,), zero at first.
    """

    kind: ClassVar[str] = "relu"
    coding = "scaled"
    location: ClassVar[str] = "linear"
    bounded = False

    def __init__(self, n_units: int) -> None:
        super().__init__(n_units)
        self.linear = nn.Parameter(torch.zeros(self.n_units))
        self.log_quadratic = nn.Parameter(torch.zeros(self.n_units))

    def natural(self) -> Theta:
        return (self.linear, self.log_quadratic.exp())

    def reference(self) -> Theta:
        return (torch.zeros_like(self.linear), torch.ones_like(self.linear))

    def log_partition(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Tensor:
        slope, curvature = self._find_local(B, A, theta)
        moments = half_line_moments(slope, curvature)
        return torch.where(curvature > 0, moments.top + moments.log_width, torch.inf)

    def moments(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Moments:
        moments = half_line_moments(*self._find_local(B, A, theta))
        return Moments(moments.mean, moments.variance)

    def sample(self, field: Tensor, noise: Tensor, theta: Theta | None = None) -> Tensor:
        slope, curvature = self._find_local(field, 0.0, theta)
        return half_line_quantile((1 - noise).expand_as(slope), slope, curvature)

    def mode(self, field: Tensor, theta: Theta | None = None) -> Tensor:
        slope, curvature = self._find_local(field, 0.0, theta)
        return (slope / curvature).clamp(min=0)

    def log_conditional(self, x: Tensor, field: Tensor, theta: Theta | None = None) -> Tensor:
        slope, curvature = self._find_local(field, 0.0, theta)
        rise = slope.relu()
        # From the peak down: the heights themselves may be huge and nearly equal.
        fall = 0.5 * curvature * (x - rise / curvature).square() - (slope - rise) * x
        return torch.where(x < 0, -torch.inf, -fall - half_line_moments(slope, curvature).log_width)

    def propose(self, x: Tensor, noise: Tensor, step: float = 1.0) -> Tensor:
        return (x + step * 12**0.5 * (noise - 0.5)).abs()

    @torch.no_grad()
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        """Fits the mean and the second moment, each (width,).

        Where E[x²] is 2 E[x]² or more, which no parameters give, it fits the mean with an almost exponential
        distribution.
        """
        mean, square = expected[0], -2 * expected[1]
        low, high = torch.full_like(mean, _STEEPEST), torch.full_like(mean, 1e6)
        one = torch.ones_like(mean)
        for _ in range(100):  # E[x²]/E[x]² falls in z
            z = (low + high) / 2
            moments = half_line_moments(z, one)
            wide = moments.variance / moments.mean.square() > square / mean.square() - 1
            low, high = _device.where(wide, z, low), _device.where(wide, high, z)
        deviation = mean / half_line_moments(low, one).mean
        self.linear.copy_(low / deviation)
        self.log_quadratic.copy_(-2 * deviation.log())

    def misfit(self, x: Tensor) -> tuple[Tensor, str]:
        return x < 0, "values from 0"
