"""The base of all parametrisations of real Gaussian units."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from math import log, pi
from typing import ClassVar

import torch
from torch import Tensor

from harmonium import _random
from harmonium.layers.layer import Moments, Theta
from harmonium.layers.quadratic_units import QuadraticUnits


class GaussianUnits(QuadraticUnits, ABC):
    """Real units with θ = (U, V), t(x) = (x, -x²/2), ψ = (U+B)²/(2(V+A)) + ½ ln(2π/(V+A)), V + A > 0.

    A subclass says which parameters it learns and how they map to θ and to the scale of the couplings. All
    of them describe the same laws; they differ in the direction of a gradient step.
    """

    bounded = False
    smoothed = False
    gaussian = True
    coding = "standardised"
    noise_centre: ClassVar[float] = 0.0
    variance_floor: float = 0.0

    def reference(self) -> Theta:
        like = next(self.parameters())
        return (torch.zeros_like(like), torch.ones_like(like))

    def log_partition(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Tensor:
        slope, precision = self._local(B, A, theta)
        value = slope.square() / (2 * precision) + 0.5 * (log(2 * pi) - precision.log())
        return torch.where(precision > 0, value, torch.inf)

    def moments(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Moments:
        slope, precision = self._local(B, A, theta)
        return Moments(slope / precision, (1 / precision).expand_as(slope))

    def noise(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        return _random.normal(shape, generator, next(self.parameters()).dtype)

    def sample(self, field: Tensor, noise: Tensor, theta: Theta | None = None) -> Tensor:
        slope, precision = self._local(field, 0.0, theta)
        return slope / precision + noise * precision.rsqrt()

    def mode(self, field: Tensor, theta: Theta | None = None) -> Tensor:
        return self.moments(field, theta=theta).mean

    def log_conditional(self, x: Tensor, field: Tensor, theta: Theta | None = None) -> Tensor:
        slope, precision = self._local(field, 0.0, theta)
        deviation = x - slope / precision
        return 0.5 * (precision.log() - log(2 * pi) - precision * deviation.square())

    def propose(self, x: Tensor, noise: Tensor, step: float = 1.0) -> Tensor:
        return x + step * noise

    def misfit(self, x: Tensor) -> tuple[Tensor, str]:
        return torch.zeros_like(x, dtype=torch.bool), "real values"

    def _local(self, B: Tensor, A: Tensor | float, theta: Theta | None) -> tuple[Tensor, Tensor]:
        slope, precision = theta or self.natural()
        return slope + B, precision + A
