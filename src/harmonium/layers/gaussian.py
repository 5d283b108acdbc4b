"""Real units with a learned mean and variance."""

from __future__ import annotations

from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from harmonium import _checks
from harmonium.layers.gaussian_units import GaussianUnits
from harmonium.layers.layer import Theta


@final
class Gaussian(GaussianUnits):
    """Real units in Liao's parametrisation: x ~ N(mean + W·neighbours, σ²) given the layers beside it.

    θ = (U, V) = (mean/σ², 1/σ²). Couplings on this layer's side are divided by σ²: J = W/σ² (Liao et al.
    2022, Eq. 1).

    Args:
        n_units: number of units, at least 1.
        variance_floor: below every σ², at least 0: σ² = variance_floor + exp(log_variance), smoothly, so that
            the gradient is that of the machine as it is.

    Attributes:
        mean: learnable, (n_units,), zero at first.
        log_variance: learnable, (n_units,), ln(σ² - variance_floor), zero at first.
    """

    kind: ClassVar[str] = "gaussian"
    location: ClassVar[str] = "mean"

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
