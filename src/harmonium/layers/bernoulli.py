"""Units in {0, 1}."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import softplus

from harmonium.layers.layer import DiscreteUnits, Moments, Theta


@final
class Bernoulli(DiscreteUnits):
    """Units with states 0 and 1; θ = bias, t(x) = x, ψ = softplus(bias + B - A/2).

    Args:
        n_units: number of units, at least 1.

    Attributes:
        bias: learnable, (n_units,), zero at first.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> layer = hm.Bernoulli(2)
        >>> layer.moments(torch.tensor([[0.0, 100.0]])).mean.tolist()
        [[0.5, 1.0]]
    """

    kind: ClassVar[str] = "bernoulli"
    two_values = (0.0, 1.0)
    short = True
    square = (-0.5,)

    def log_partition(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Tensor:
        return softplus(self._find_logit(B, A, theta), threshold=40)

    def moments(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Moments:
        logit = self._find_logit(B, A, theta)
        mean = torch.sigmoid(logit)
        return Moments(mean, mean * torch.sigmoid_(logit.neg_()))

    def expected_statistics(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Theta:
        return (self._find_logit(B, A, theta).sigmoid_(),)

    def sample(self, field: Tensor, noise: Tensor, theta: Theta | None = None) -> Tensor:
        probability = self._find_logit(field, 0.0, theta).sigmoid_()
        return torch.lt(noise, probability, out=torch.empty_like(probability))

    def mode(self, field: Tensor, theta: Theta | None = None) -> Tensor:
        logit = self._find_logit(field, 0.0, theta)
        return torch.ge(logit, 0, out=torch.empty_like(logit))

    def log_conditional(self, x: Tensor, field: Tensor, theta: Theta | None = None) -> Tensor:
        return -softplus((1 - 2 * x) * self._find_logit(field, 0.0, theta), threshold=40)

    def propose(self, x: Tensor, noise: Tensor, step: float = 1.0) -> Tensor:
        return torch.lt(noise, 0.5, out=torch.empty_like(x))

    @torch.no_grad()
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        self.set_finite_(bias=torch.logit(expected[0]))

    def misfit(self, x: Tensor) -> tuple[Tensor, str]:
        return x.square() != x, "values in {0, 1}"

    def _find_logit(self, B: Tensor, A: Tensor | float, theta: Theta | None) -> Tensor:
        logit = B + (self.bias if theta is None else theta[0])
        return logit if isinstance(A, float) and A == 0.0 else torch.sub(logit, A, alpha=0.5)
