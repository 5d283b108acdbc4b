"""Real units in an interval, with a density of any curvature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from harmonium import _random
from harmonium.layers._interval import Bound, Interval
from harmonium.layers._matching import matching_law
from harmonium.layers._truncated import TruncatedLaw, truncated_law, truncated_mode, truncated_quantile
from harmonium.layers.layer import Moments, Theta
from harmonium.layers.quadratic_units import QuadraticUnits


@final
class TruncatedGaussian(QuadraticUnits):
    """Units in [low, high]; θ = (U, V), t(x) = (x, -x²/2), ψ = ln ∫ exp((U+B)x - (V+A)x²/2) dx.

    V + A may have either sign: positive bends the density to a peak, zero makes it exponential, negative
    piles it up at the ends (Tramel et al. 2018, Eqs. 75-79).

    Args:
        n_units: number of units, at least 1.
        low: the lower end, a number or one for each unit.
        high: the upper end, above ``low``.

    Attributes:
        linear: learnable U, (n_units,), zero at first.
        quadratic: learnable V, (n_units,), zero at first: a uniform density.

    Raises:
        ValueError: bounds that are not finite, in the wrong order, or not as many as units.
    """

    kind: ClassVar[str] = "truncated_gaussian"
    coding = "interval"
    location: ClassVar[str] = "linear"

    def __init__(self, n_units: int, low: Bound, high: Bound) -> None:
        super().__init__(n_units)
        self.interval = Interval(low, high, self.n_units)
        self.linear = nn.Parameter(torch.zeros(self.n_units))
        self.quadratic = nn.Parameter(torch.zeros(self.n_units))

    @classmethod
    def plain(cls, n_units: int, n_states: int = 2) -> TruncatedGaussian:
        return cls(n_units, 0.0, 1.0)

    def config(self) -> dict[str, Any]:
        return {"n_units": self.n_units, **self.interval.config()}

    def natural(self) -> Theta:
        return (self.linear, self.quadratic)

    def reference(self) -> Theta:
        return (torch.zeros_like(self.linear), torch.zeros_like(self.linear))

    def log_partition(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Tensor:
        return self._law(B, A, theta).log_mass

    def moments(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Moments:
        law = self._law(B, A, theta)
        return Moments(law.mean, law.variance)

    def noise(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        return _random.uniform(shape, generator, self.linear.dtype)

    def sample(self, field: Tensor, noise: Tensor, theta: Theta | None = None) -> Tensor:
        slope, *rest = self._local(field, 0.0, theta)
        return truncated_quantile(noise.expand_as(slope), slope, *rest)

    def mode(self, field: Tensor, theta: Theta | None = None) -> Tensor:
        return truncated_mode(*self._local(field, 0.0, theta))

    def log_conditional(self, x: Tensor, field: Tensor, theta: Theta | None = None) -> Tensor:
        slope, curvature, low, high = self._local(field, 0.0, theta)
        density = (slope - curvature * x / 2) * x - truncated_law(slope, curvature, low, high).log_mass
        return torch.where(self.interval.outside(x), -torch.inf, density)

    def propose(self, x: Tensor, noise: Tensor, step: float = 1.0) -> Tensor:
        return self.interval.reflect(x + step * 12**0.5 * (noise - 0.5))

    @torch.no_grad()
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        mean, minus_half_square = expected
        law = matching_law(mean, -2 * minus_half_square, *self.interval.bounds(mean), self.linear.dtype)
        self.linear.copy_(law.slope)
        self.quadratic.copy_(law.curvature)

    def misfit(self, x: Tensor) -> tuple[Tensor, str]:
        return self.interval.outside(x), f"values in {self.interval}"

    def _local(self, B: Tensor, A: Tensor | float, theta: Theta | None) -> tuple[Tensor, ...]:
        linear, quadratic = theta or self.natural()
        slope = B + linear
        low, high = self.interval.bounds(slope)
        return (slope, *(x.expand_as(slope) for x in (quadratic + A, low, high)))

    def _law(self, B: Tensor, A: Tensor | float, theta: Theta | None) -> TruncatedLaw:
        return truncated_law(*self._local(B, A, theta))
