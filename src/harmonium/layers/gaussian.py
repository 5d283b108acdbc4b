"""Real Gaussian units, in three parametrisations."""

from __future__ import annotations

from abc import ABC
from math import log, pi
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from harmonium import _checks
from harmonium.layers.layer import Moments, QuadraticUnits, Theta


class GaussianUnits(QuadraticUnits, ABC):
    """Real units with θ = (U, V), t(x) = (x, -x²/2), ψ = (U+B)²/(2(V+A)) + ½ ln(2π/(V+A)), V + A > 0.

    A subclass defines the parameters that it learns and their map to θ and to the scale of the couplings.
    All of them describe the same distributions; they differ in the direction of a gradient step.
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

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> mean, variance = hm.Gaussian(1).moments(torch.tensor([[2.0]]))
        >>> mean.item(), variance.item()
        (2.0, 1.0)
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


@final
class NaturalGaussian(GaussianUnits):
    """Real units that learn their natural parameters θ = (U, V) themselves; couplings are J = W.

    Given the layers beside it x ~ N((U + W·neighbours)/V, 1/V). The gradient is the difference of statistics
    itself. Nothing keeps V above 0 but a small enough learning rate; where an update makes it negative, the
    next estimate is not finite and training stops.

    Args:
        n_units: number of units, at least 1.

    Attributes:
        linear: learnable U, (n_units,), zero at first.
        quadratic: learnable V, (n_units,), one at first.
    """

    kind: ClassVar[str] = "natural_gaussian"
    location: ClassVar[str] = "linear"

    def __init__(self, n_units: int) -> None:
        super().__init__(n_units)
        self.linear = nn.Parameter(torch.zeros(self.n_units))
        self.quadratic = nn.Parameter(torch.ones(self.n_units))

    def natural(self) -> Theta:
        return (self.linear, self.quadratic)

    @torch.no_grad()
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        self.set_finite_(linear=expected[0] / variance, quadratic=1 / variance)


@final
class StandardisedGaussian(GaussianUnits):
    """Real units x = σ z with z ~ N(shift + W·neighbours, 1) given the layers beside it.

    θ = (U, V) = (shift/σ, 1/σ²) and J = W/σ on this layer's side (the couplings of Krizhevsky & Hinton 2009):
    a change of σ scales the units and leaves the correlations of z as they are.

    Args:
        n_units: number of units, at least 1.

    Attributes:
        shift: learnable, (n_units,), zero at first.
        log_variance: learnable ln σ², (n_units,), zero at first.
    """

    kind: ClassVar[str] = "standardised_gaussian"
    location: ClassVar[str] = "shift"

    def __init__(self, n_units: int) -> None:
        super().__init__(n_units)
        self.shift = nn.Parameter(torch.zeros(self.n_units))
        self.log_variance = nn.Parameter(torch.zeros(self.n_units))

    @property
    def scale(self) -> Tensor:
        return torch.exp(-0.5 * self.log_variance)

    def natural(self) -> Theta:
        scale = self.scale
        return (self.shift * scale, scale.square())

    @torch.no_grad()
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        self.set_finite_(shift=expected[0] * variance.rsqrt(), log_variance=variance.log())
