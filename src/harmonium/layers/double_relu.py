"""Real units with a half-normal distribution on either side of 0, each with its own parameters."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from harmonium import _device
from harmonium.layers.layer import Layer, Moments, Theta
from harmonium.layers.relu import HalfLineMoments, half_line_moments, half_line_quantile


@final
class DoubleReLU(Layer):
    """Real units with exponent (θ₊+B)x - (γ₊+A)x²/2 for x ≥ 0 and (θ₋+B)x - (γ₋+A)x²/2 for x < 0 (dReLU).

    Tubiana, Cocco & Monasson (2019) write -θ± for θ±. Learnt are U = (θ₊+θ₋)/2, which shifts the field, and
    D = (θ₊-θ₋)/2: θ = (U, D, γ₊, γ₋), t(x) = (x, |x|, -max(x,0)²/2, -min(x,0)²/2). D = 0 and γ₊ = γ₋ make a
    Gaussian unit; D ≪ 0 a sparse one, D ≫ 0 one with two modes, γ₋ → ∞ a rectified one. ψ is the
    log-sum-exp of the two half lines' (see ``ReLU``), for γ± + A > 0.

    Args:
        n_units: number of units, at least 1.

    Attributes:
        linear: learnable U, (n_units,), zero at first.
        absolute: learnable D, (n_units,), zero at first.
        log_quadratic_positive: learnable ln γ₊, (n_units,), zero at first.
        log_quadratic_negative: learnable ln γ₋, (n_units,), zero at first.
    """

    kind: ClassVar[str] = "double_relu"
    coding = "standardised"
    location: ClassVar[str] = "linear"
    bounded = False
    smoothed = False
    square = (0.0, 0.0, 1.0, 1.0)

    def __init__(self, n_units: int) -> None:
        super().__init__(n_units)
        self.linear = nn.Parameter(torch.zeros(self.n_units))
        self.absolute = nn.Parameter(torch.zeros(self.n_units))
        self.log_quadratic_positive = nn.Parameter(torch.zeros(self.n_units))
        self.log_quadratic_negative = nn.Parameter(torch.zeros(self.n_units))

    def natural(self) -> Theta:
        quadratics = (self.log_quadratic_positive.exp(), self.log_quadratic_negative.exp())
        return (self.linear, self.absolute, *quadratics)

    def reference(self) -> Theta:
        zero, one = torch.zeros_like(self.linear), torch.ones_like(self.linear)
        return (zero, zero.clone(), one, one.clone())

    def log_partition(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Tensor:
        sides = self._find_local(B, A, theta)
        masses = [moments.top + moments.log_width for moments in (half_line_moments(*side) for side in sides)]
        bounded = (sides[0][1] > 0) & (sides[1][1] > 0)
        return torch.where(bounded, torch.logsumexp(torch.stack(masses), 0), torch.inf)

    def moments(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Moments:
        up, down, odds = self._find_moments(B, A, theta)
        share, rest = torch.sigmoid(odds), torch.sigmoid(-odds)
        spread = share * rest * (up.mean + down.mean).square()
        return Moments(
            share * up.mean - rest * down.mean, share * up.variance + rest * down.variance + spread
        )

    def expected_statistics(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Theta:
        up, down, odds = self._find_moments(B, A, theta)
        share, rest = torch.sigmoid(odds), torch.sigmoid(-odds)
        means = share * up.mean, rest * down.mean
        return (
            means[0] - means[1],
            means[0] + means[1],
            -0.5 * share * (up.mean.square() + up.variance),
            -0.5 * rest * (down.mean.square() + down.variance),
        )

    def statistics(self, x: Tensor) -> Theta:
        return (x, x.abs(), -0.5 * x.clamp(min=0).square(), -0.5 * x.clamp(max=0).square())

    def sample(self, field: Tensor, noise: Tensor, theta: Theta | None = None) -> Tensor:
        positive, negative = self._find_local(field, 0.0, theta)
        _, _, odds = self._find_moments(field, 0.0, theta)
        # Noise 0 stands for the middle of its step: at 0 itself lies minus infinity.
        level = noise.clamp(min=torch.finfo(noise.dtype).eps / 4)
        share, rest = torch.sigmoid(odds), torch.sigmoid(-odds)
        up = level >= rest
        beyond = _device.where(up, (1 - level) / share, level / rest).clamp_(max=1)
        slope, curvature = (_device.where(up, a, b) for a, b in zip(positive, negative, strict=True))
        x = half_line_quantile(beyond, slope, curvature)
        return _device.where(up, x, -x)

    def mode(self, field: Tensor, theta: Theta | None = None) -> Tensor:
        positive, negative = self._find_local(field, 0.0, theta)
        (up, high), (down, low) = (
            ((slope / curvature).clamp(min=0), slope.clamp(min=0).square() / curvature)
            for slope, curvature in (positive, negative)
        )
        return _device.where(high >= low, up, -down)

    def log_conditional(self, x: Tensor, field: Tensor, theta: Theta | None = None) -> Tensor:
        up, down, odds = self._find_moments(field, 0.0, theta)
        sides = self._find_local(field, 0.0, theta)
        slope, curvature, width, share = (
            _device.where(x >= 0, a, b)
            for a, b in zip((*sides[0], up.log_width, odds), (*sides[1], down.log_width, -odds), strict=True)
        )
        rise = slope.relu()
        fall = 0.5 * curvature * (x.abs() - rise / curvature).square() - (slope - rise) * x.abs()
        return logsigmoid(share) - fall - width

    def propose(self, x: Tensor, noise: Tensor, step: float = 1.0) -> Tensor:
        return x + step * 12**0.5 * (noise - 0.5)

    @torch.no_grad()
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        """Fits a Gaussian distribution to E[x] and the variance, each (width,); E[|x|] is not read."""
        log_quadratic = -variance.log()
        self.set_finite_(
            linear=expected[0] / variance,
            absolute=torch.zeros_like(variance),
            log_quadratic_positive=log_quadratic,
            log_quadratic_negative=log_quadratic,
        )

    def misfit(self, x: Tensor) -> tuple[Tensor, str]:
        return torch.zeros_like(x, dtype=torch.bool), "real values"

    def _find_local(
        self, B: Tensor, A: Tensor | float, theta: Theta | None
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Returns slope and curvature on either side, outwards from 0."""
        linear, absolute, positive, negative = theta or self.natural()
        slope = B + linear
        up, down = slope + absolute, absolute - slope
        return (up, positive + A), (down, negative + A)

    def _find_moments(
        self, B: Tensor, A: Tensor | float, theta: Theta | None
    ) -> tuple[HalfLineMoments, HalfLineMoments, Tensor]:
        """Returns the distributions on either side and the log-odds of the upper one."""
        positive, negative = self._find_local(B, A, theta)
        up, down = half_line_moments(*positive), half_line_moments(*negative)
        return up, down, (up.top - down.top) + (up.log_width - down.log_width)
