"""Real units in an interval that may also be exactly zero."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus

from harmonium.layers._truncated import (
    TruncatedMoments,
    match_moments,
    truncated_mode,
    truncated_moments,
    truncated_quantile,
)
from harmonium.layers.layer import Moments, Theta
from harmonium.layers.truncated_gaussian import Bound, IntervalUnits


@final
class TruncatedGaussBernoulli(IntervalUnits):
    """Sparse units: 0 with a probability of its own, else in [low, high] as a truncated Gaussian unit.

    θ = (U, V, r), t(x) = (x, -x²/2, 1[x≠0]), ψ = softplus(r + ψ_TG(B, A)), with ψ_TG that of
    ``TruncatedGaussian`` (Tramel et al. 2018, Eq. 94, ρ = σ(r)). Densities are with respect to a unit of mass
    at 0 beside the length of the interval, so that ln p(x | field) is a log-probability at 0 and a
    log-density elsewhere, and P[x≠0] = σ(r + ψ_TG).

    Args:
        n_units: number of units, at least 1.
        low: the lower end of the interval, a number or one for each unit. 0 may lie inside or outside.
        high: the upper end, above ``low``.

    Attributes:
        linear: learnable U, (n_units,), zero at first.
        quadratic: learnable V, (n_units,), zero at first: a uniform density beside the mass at 0.
        logit_rate: learnable r, (n_units,), -ln(high - low) at first: 0 in half of all cases.

    Raises:
        ValueError: bounds that are not finite, in the wrong order, or not as many as units.
    """

    kind: ClassVar[str] = "truncated_gauss_bernoulli"
    coding = "fractions"
    square = (0.0, 1.0, 0.0)

    def __init__(self, n_units: int, low: Bound, high: Bound) -> None:
        super().__init__(n_units, low, high)
        self.logit_rate = nn.Parameter(torch.zeros(self.n_units))
        if not self.linear.is_meta:  # where arithmetic makes torch import its compiler, for seconds
            with torch.no_grad():
                self.logit_rate.copy_(self.reference()[2])

    def natural(self) -> Theta:
        return (self.linear, self.quadratic, self.logit_rate)

    def reference(self) -> Theta:
        zero = torch.zeros_like(self.linear)
        low, high = self.interval.bounds(zero)
        return (zero, zero.clone(), zero - (high - low).log())

    def log_partition(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Tensor:
        return softplus(self._find_mixture(B, A, theta)[1], threshold=40)

    def moments(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Moments:
        moments, logit = self._find_mixture(B, A, theta)
        rate = torch.sigmoid(logit)
        spread = moments.variance + torch.sigmoid(-logit) * moments.mean.square()
        return Moments(rate * moments.mean, rate * spread)

    def expected_statistics(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Theta:
        moments, logit = self._find_mixture(B, A, theta)
        rate = torch.sigmoid(logit)
        return (rate * moments.mean, -0.5 * rate * (moments.variance + moments.mean.square()), rate)

    def statistics(self, x: Tensor) -> Theta:
        return (x, -0.5 * x.square(), (x != 0).to(x.dtype))

    def sample(self, field: Tensor, noise: Tensor, theta: Theta | None = None) -> Tensor:
        slope, curvature, low, high = self._find_slopes(field, 0.0, theta)
        _, logit = self._find_mixture(field, 0.0, theta)
        rate = torch.sigmoid(logit)
        # Noise below the rate is uniform again once divided by it. Zeros, often most units, need no more.
        present = (noise < rate).flatten().nonzero().squeeze(-1)
        level, slope, curvature, low, high = (
            x.expand_as(rate).reshape(-1)[present] for x in (noise / rate, slope, curvature, low, high)
        )
        drawn = _replace_zero(truncated_quantile(level, slope, curvature, low, high), high)
        return torch.zeros_like(rate).view(-1).index_copy(0, present, drawn).view_as(rate)

    def mode(self, field: Tensor, theta: Theta | None = None) -> Tensor:
        slope, curvature, low, high = self._find_slopes(field, 0.0, theta)
        x = _replace_zero(truncated_mode(slope, curvature, low, high), high)
        rate = (theta or self.natural())[2]
        return torch.where((slope - curvature * x / 2) * x + rate >= 0, x, 0.0)

    def log_conditional(self, x: Tensor, field: Tensor, theta: Theta | None = None) -> Tensor:
        slope, curvature, _, _ = self._find_slopes(field, 0.0, theta)
        moments, logit = self._find_mixture(field, 0.0, theta)
        density = logsigmoid(logit) + (slope - curvature * x / 2) * x - moments.log_mass
        density = torch.where(self.interval.outside(x), -torch.inf, density)
        return torch.where(x == 0, logsigmoid(-logit), density)

    def propose(self, x: Tensor, noise: Tensor, step: float = 1.0) -> Tensor:
        """Proposes states, (..., width), that stay, or cross between 0 and the interval.

        Crossings have a density of c = min(1, 1/(high - low))/2 both ways.
        """
        low, high = self.interval.bounds(x)
        width = high - low
        crossing = 0.5 * (1 / width).clamp(max=1)
        rest = (noise - crossing) / (1 - crossing)
        walk = _replace_zero(self.interval.reflect(x + step * 12**0.5 * (rest - 0.5)), high)
        entry = _replace_zero(self.interval.reflect(low + noise / crossing), high)
        from_zero = torch.where(noise < crossing * width, entry, 0.0)
        return torch.where(x == 0, from_zero, torch.where(noise < crossing, 0.0, walk))

    @torch.no_grad()
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        mean, minus_half_square, rate = expected
        low, high = (end.expand_as(mean) for end in self.interval.bounds(mean))
        # Moments of the values that are not 0; any do where there were none.
        first, second = (
            torch.where(rate > 0, t / rate, any_value)
            for t, any_value in ((mean, (low + high) / 2), (-2 * minus_half_square, 0.0))
        )
        slope, curvature = match_moments(first, second, low, high, self.linear.dtype)
        self.linear.copy_(slope)
        self.quadratic.copy_(curvature)
        # The log-mass of the density as it has been rounded.
        slope, curvature = self.linear.to(mean), self.quadratic.to(mean)
        share = torch.finfo(self.linear.dtype).eps  # as in the distribution: never quite 0 or 1
        rate = (1 - share) * rate.clamp(0, 1) + share / 2
        self.logit_rate.copy_(torch.logit(rate) - truncated_moments(slope, curvature, low, high).log_mass)

    def misfit(self, x: Tensor) -> tuple[Tensor, str]:
        return self.interval.outside(x) & (x != 0), f"0 or values in {self.interval}"

    def _find_mixture(
        self, B: Tensor, A: Tensor | float, theta: Theta | None
    ) -> tuple[TruncatedMoments, Tensor]:
        """Returns the distribution in the interval, and the log-odds of being there."""
        moments = truncated_moments(*self._find_slopes(B, A, theta))
        return moments, moments.log_mass + (theta or self.natural())[2]


def _replace_zero(x: Tensor, high: Tensor) -> Tensor:
    """Replaces 0, which would mean that the unit is absent, by the number nearest to it."""
    tiny = torch.full_like(x, torch.finfo(x.dtype).tiny)
    return torch.where(x == 0, torch.where(high > 0, tiny, -tiny), x)
