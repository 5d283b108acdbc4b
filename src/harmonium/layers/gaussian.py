"""Real units with a normal distribution."""

from __future__ import annotations

from math import log, pi
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from harmonium import _checks
from harmonium.layers.layer import Moments, QuadraticUnits, Theta


@final
class Gaussian(QuadraticUnits):
    """Real units in Liao's parametrisation: x ~ N(mean + W·neighbours, σ²) given the layers beside it.

    θ = (U, V) = (mean/σ², 1/σ²), t(x) = (x, -x²/2), ψ = (U+B)²/(2(V+A)) + ½ ln(2π/(V+A)), V + A > 0.
    Couplings on this layer's side are divided by σ²: J = W/σ² (Liao et al. 2022, Eq. 1).

    Args:
        n_units: number of units, at least 1.
        variance_floor: below every σ², at least 0: σ² = variance_floor + exp(log_variance), smoothly, so that
            the gradient is that of the machine as it is.

    Attributes:
        mean: learnable, (n_units,), zero at first.
        log_variance: learnable, (n_units,), ln(σ² - variance_floor), zero at first.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> mean, variance = hm.Gaussian(1).moments(torch.tensor([[2.0]]))
        >>> mean.item(), variance.item()
        (2.0, 1.0)
    """

    kind: ClassVar[str] = "gaussian"
    location: ClassVar[str] = "mean"
    bounded = False
    smoothed = False
    gaussian = True
    coding = "standardised"
    normal_noise = True

    def __init__(self, n_units: int, variance_floor: float = 0.0) -> None:
        super().__init__(n_units)
        self.variance_floor = _checks.real(variance_floor, "variance_floor", low=0.0)
        self.mean = nn.Parameter(torch.zeros(self.n_units))
        self.log_variance = nn.Parameter(torch.zeros(self.n_units))

    @property
    def scale(self) -> Tensor:
        if self.variance_floor:
            return 1 / (self.variance_floor + self.log_variance.exp())
        return torch.exp(-self.log_variance)

    def natural(self) -> Theta:
        precision = self.scale
        return (self.mean * precision, precision)

    def reference(self) -> Theta:
        return (torch.zeros_like(self.mean), torch.ones_like(self.mean))

    def log_partition(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Tensor:
        slope, precision = self._find_local(B, A, theta)
        value = slope.square() / (2 * precision) + 0.5 * (log(2 * pi) - precision.log())
        return torch.where(precision > 0, value, torch.inf)

    def moments(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Moments:
        slope, precision = self._find_local(B, A, theta)
        return Moments(slope / precision, precision.reciprocal().expand_as(slope))

    def sample(self, field: Tensor, noise: Tensor, theta: Theta | None = None) -> Tensor:
        slope, precision = self._find_local(field, 0.0, theta)
        return slope / precision + noise * precision.rsqrt()

    def mode(self, field: Tensor, theta: Theta | None = None) -> Tensor:
        return self.moments(field, theta=theta).mean

    def log_conditional(self, x: Tensor, field: Tensor, theta: Theta | None = None) -> Tensor:
        slope, precision = self._find_local(field, 0.0, theta)
        deviation = x - slope / precision
        return 0.5 * (precision.log() - log(2 * pi) - precision * deviation.square())

    def propose(self, x: Tensor, noise: Tensor, step: float = 1.0) -> Tensor:
        return x + step * noise

    def misfit(self, x: Tensor) -> tuple[Tensor, str]:
        return torch.zeros_like(x, dtype=torch.bool), "real values"

    @torch.no_grad()
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        above = variance - self.variance_floor
        if not bool((above > 0).all()):
            smallest = float(variance.min())
            raise ValueError(
                f"variance_floor: expected less than the data's smallest variance, {smallest:g}, "
                f"received {self.variance_floor:g}"
            )
        self.mean.copy_(expected[0])
        self.log_variance.copy_(above.log())

    def config(self) -> dict[str, Any]:
        floor = {"variance_floor": self.variance_floor} if self.variance_floor else {}
        return {"n_units": self.n_units, **floor}
