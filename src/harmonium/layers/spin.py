"""Units in {-1, +1}."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import softplus

from harmonium.layers.layer import DiscreteUnits, Moments, Theta


@final
class Spin(DiscreteUnits):
    """Units with states -1 and +1; θ = bias, t(x) = x, ψ = ln 2cosh(bias + B) - A/2.

    P(x = +1 | B) = σ(2(bias + B)).

    Args:
        n_units: number of units, at least 1.

    Attributes:
        bias: learnable, (n_units,), zero at first.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> hm.Spin(2).mode(torch.tensor([[-1.0, 3.0]])).tolist()
        [[-1.0, 1.0]]
    """

    kind: ClassVar[str] = "spin"
    two_values = (-1.0, 1.0)
    short = True
    square = (0.0,)

    def log_partition(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Tensor:
        local = self._find_local(B, theta)
        return softplus(2 * local, threshold=40) - local - A / 2

    def moments(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Moments:
        local = self._find_local(B, theta)
        return Moments(torch.tanh(local), 4 * torch.sigmoid(2 * local) * torch.sigmoid(-2 * local))

    def expected_statistics(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Theta:
        return (torch.tanh(self._find_local(B, theta)),)

    def sample(self, field: Tensor, noise: Tensor, theta: Theta | None = None) -> Tensor:
        probability = torch.sigmoid(2 * self._find_local(field, theta))
        up = torch.lt(noise, probability, out=torch.empty_like(probability))
        return up.mul_(2).sub_(1)

    def mode(self, field: Tensor, theta: Theta | None = None) -> Tensor:
        local = self._find_local(field, theta)
        return torch.ge(local, 0, out=torch.empty_like(local)).mul_(2).sub_(1)

    def log_conditional(self, x: Tensor, field: Tensor, theta: Theta | None = None) -> Tensor:
        return -softplus(-2 * x * self._find_local(field, theta), threshold=40)

    def propose(self, x: Tensor, noise: Tensor, step: float = 1.0) -> Tensor:
        return torch.lt(noise, 0.5, out=torch.empty_like(x)).mul_(2).sub_(1)

    @torch.no_grad()
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        self.set_finite_(bias=torch.atanh(expected[0]))

    def misfit(self, x: Tensor) -> tuple[Tensor, str]:
        return x.abs() != 1, "values in {-1, +1}"
