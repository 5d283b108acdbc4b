"""Real units in natural parameters."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor, nn

from harmonium.layers.gaussian_units import GaussianUnits
from harmonium.layers.layer import Theta


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
        self._fitted(linear=expected[0] / variance, quadratic=1 / variance)
