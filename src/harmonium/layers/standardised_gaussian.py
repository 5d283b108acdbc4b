"""Real units that are a scale times standardised units."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor, nn

from harmonium.layers.gaussian_units import GaussianUnits
from harmonium.layers.layer import Theta


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
        self._fitted(shift=expected[0] * variance.rsqrt(), log_variance=variance.log())
