"""Units that count."""

from __future__ import annotations

from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from harmonium import _checks
from harmonium.layers.layer import DiscreteUnits, Moments, Theta

_MOST = 1 << 24  # states: counts up to here are exact in float32


@final
class Binomial(DiscreteUnits):
    """Counts 0..N with the base measure C(N, x); θ = bias, t(x) = x, ψ = N softplus(bias + B) for A = 0.

    Given its field a unit counts the successes of N trials, each with probability σ(bias + B): the sum of N
    Bernoulli units that share their parameters. ψ of another curvature is a sum over all counts.

    Args:
        n_units: number of units, at least 1.
        trials: N of every unit, from 1 to 2^24, up to which float32 has every count.

    Attributes:
        bias: learnable, (n_units,), zero at first.
    """

    kind: ClassVar[str] = "binomial"
    coding = "counts"

    def __init__(self, n_units: int, trials: int) -> None:
        super().__init__(n_units)
        self.trials = _checks.positive_int(trials, "trials")
        if self.trials > _MOST:
            raise ValueError(
                f"trials: expected at most {_MOST}, up to which float32 has every count, received {trials}; "
                "a Gaussian unit takes larger ones"
            )

    @classmethod
    def plain(cls, n_units: int, n_states: int = 2) -> Binomial:
        return cls(n_units, n_states - 1)

    @property
    def n_states(self) -> int:
        return self.trials + 1

    def values(self) -> Tensor:
        return torch.arange(self.n_states, dtype=self.bias.dtype, device=self.bias.device).unsqueeze(-1)

    def config(self) -> dict[str, Any]:
        return {"n_units": self.n_units, "trials": self.trials}

    def log_measure(self, x: Tensor) -> Tensor:
        return self._count_choices().to(x)[x.long()]

    def log_partition(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Tensor:
        logit = self._find_local(B, theta)
        if isinstance(A, float) and A == 0.0:
            return self.trials * softplus(logit, threshold=40)
        return torch.logsumexp(self._weigh_counts(logit, A), -1)

    def moments(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Moments:
        logit = self._find_local(B, theta)
        if isinstance(A, float) and A == 0.0:
            mean = self.trials * torch.sigmoid(logit)
            return Moments(mean, mean * torch.sigmoid(-logit))
        probability = torch.softmax(self._weigh_counts(logit, A), -1)
        counts = self.values()[:, 0].to(logit)
        mean = (probability * counts).sum(-1)
        return Moments(mean, (probability * (counts - mean.unsqueeze(-1)).square()).sum(-1))

    def sample(self, field: Tensor, noise: Tensor, theta: Theta | None = None) -> Tensor:
        """Draws the counts, (..., width), at which the distribution function passes the noise; one pass."""
        logit = self._find_local(field, theta)
        success, failure = logsigmoid(logit), logsigmoid(-logit)
        below = torch.zeros_like(logit)
        count, likely = torch.zeros_like(logit), torch.zeros_like(logit)
        for k, choices in enumerate(self._count_choices().tolist()):
            total = below + (choices + k * success + (self.trials - k) * failure).exp()
            # Where rounding leaves the last total below the noise, the last count that added to it is meant.
            likely = torch.where(total > below, k, likely)
            count += noise >= total
            below = total
        return torch.minimum(count, likely)

    def mode(self, field: Tensor, theta: Theta | None = None) -> Tensor:
        mean = (self.trials + 1) * torch.sigmoid(self._find_local(field, theta))
        return mean.floor().clamp(max=self.trials)

    def log_conditional(self, x: Tensor, field: Tensor, theta: Theta | None = None) -> Tensor:
        logit = self._find_local(field, theta)
        return self.log_measure(x) + x * logsigmoid(logit) + (self.trials - x) * logsigmoid(-logit)

    def propose(self, x: Tensor, noise: Tensor, step: float = 1.0) -> Tensor:
        return (noise * self.n_states).floor().clamp(max=self.trials)

    @torch.no_grad()
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        self.set_finite_(bias=torch.logit(expected[0] / self.trials))

    def misfit(self, x: Tensor) -> tuple[Tensor, str]:
        return (x < 0) | (x > self.trials) | (x != x.floor()), f"counts 0..{self.trials}"

    def _weigh_counts(self, logit: Tensor, A: Tensor | float) -> Tensor:
        """Returns ln of the weight of every count, (..., n_units, n_states)."""
        counts = self.values()[:, 0].to(logit)
        curvature = torch.as_tensor(A, dtype=logit.dtype, device=logit.device).expand_as(logit).unsqueeze(-1)
        weights = counts * logit.unsqueeze(-1) - 0.5 * curvature * counts.square()
        return weights + self._count_choices().to(logit)

    def _count_choices(self) -> Tensor:
        """Returns ln C(N, k) of every count in float64, (n_states,)."""
        k = torch.arange(self.n_states, dtype=torch.float64, device=self.bias.device)
        return torch.lgamma(k[-1] + 1) - torch.lgamma(k + 1) - torch.lgamma(k[-1] - k + 1)
