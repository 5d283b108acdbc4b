"""Real units with a learned mean and variance."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, pi
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from harmonium import _random
from harmonium.layers.layer import Layer, Moments, Theta


@final
class Gaussian(Layer):
    """Real units in Liao's parametrisation: x ~ N(mean + W·neighbours, σ²) given the layers beside it.

    θ = (U, V) = (mean/σ², 1/σ²), t(x) = (x, -x²/2), ψ = (U+B)²/(2(V+A)) + ½ ln(2π/(V+A)), infinite for V + A
    ≤ 0. Couplings on this layer's side are divided by σ²: J = W/σ² (Liao et al. 2022, Eq. 1).

    Args:
        n_units: number of units, at least 1.

    Attributes:
        mean: learnable, (n_units,), zero at first.
        log_variance: learnable, (n_units,), ln σ², zero at first.
    """

    kind: ClassVar[str] = "gaussian"
    location: ClassVar[str] = "mean"
    bounded: ClassVar[bool] = False

    def __init__(self, n_units: int) -> None:
        super().__init__(n_units)
        self.mean = nn.Parameter(torch.zeros(self.n_units))
        self.log_variance = nn.Parameter(torch.zeros(self.n_units))

    @property
    def n_states(self) -> None:
        return None

    @property
    def scale(self) -> Tensor:
        return torch.exp(-self.log_variance)

    def natural(self) -> Theta:
        precision = self.scale
        return (self.mean * precision, precision)

    def reference(self) -> Theta:
        return (torch.zeros_like(self.mean), torch.ones_like(self.mean))

    def log_partition(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Tensor:
        slope, precision = self._local(B, A, theta)
        value = slope.square() / (2 * precision) + 0.5 * (log(2 * pi) - precision.log())
        return torch.where(precision > 0, value, torch.inf)

    def moments(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Moments:
        slope, precision = self._local(B, A, theta)
        return Moments(slope / precision, (1 / precision).expand_as(slope))

    def expected_statistics(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Theta:
        mean, variance = self.moments(B, A, theta)
        return (mean, -0.5 * (mean.square() + variance))

    def statistics(self, x: Tensor) -> Theta:
        return (x, -0.5 * x.square())

    def noise(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        return _random.normal(shape, generator, self.mean.dtype)

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

    @torch.no_grad()
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        self.mean.copy_(expected[0])
        self.log_variance.copy_(variance.log())

    def misfit(self, x: Tensor) -> tuple[Tensor, str]:
        return torch.zeros_like(x, dtype=torch.bool), "real values"

    def _local(self, B: Tensor, A: Tensor | float, theta: Theta | None) -> tuple[Tensor, Tensor]:
        slope, precision = theta or self.natural()
        return slope + B, precision + A
