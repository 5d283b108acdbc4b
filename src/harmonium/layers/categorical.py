"""Units with one of q states (Potts), held as one-hot columns."""

from __future__ import annotations

from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from harmonium import _checks
from harmonium.layers.layer import DiscreteUnits, Moments, Theta


@final
class Categorical(DiscreteUnits):
    """Units with q states; θ = bias, t(x) = x one-hot, ψ = logsumexp(bias + B - A/2) over a unit's states.

    A state matrix has n_units · n_states columns, unit by unit; ``from_digits`` makes it from integer labels.

    Args:
        n_units: number of units, at least 1.
        n_states: states of each unit, at least 2.

    Attributes:
        bias: learnable, (n_units, n_states), zero at first.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> hm.Categorical(2, n_states=3).from_digits(torch.tensor([[0, 2]])).tolist()
        [[1.0, 0.0, 0.0, 0.0, 0.0, 1.0]]
    """

    kind: ClassVar[str] = "categorical"
    one_hot = True
    short = True
    coding = "one-hot"
    square = (-0.5,)

    def __init__(self, n_units: int, n_states: int) -> None:
        self._n_states = _checks.positive_int(n_states, "n_states", minimum=2)
        super().__init__(n_units, columns=self._n_states)

    @classmethod
    def plain(cls, n_units: int, n_states: int = 2) -> Categorical:
        return cls(n_units, n_states)

    @property
    def n_states(self) -> int:
        return self._n_states

    def values(self) -> Tensor:
        return torch.eye(self.n_states, dtype=self.bias.dtype, device=self.bias.device)

    def config(self) -> dict[str, Any]:
        return {"n_units": self.n_units, "n_states": self.n_states}

    def log_partition(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Tensor:
        return torch.logsumexp(self._find_logits(B, A, theta), -1)

    def moments(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Moments:
        mean = torch.softmax(self._find_logits(B, A, theta), -1).flatten(-2)
        return Moments(mean, mean * (1 - mean))

    def sample(self, field: Tensor, noise: Tensor, theta: Theta | None = None) -> Tensor:
        cumulative = torch.softmax(self._find_logits(field, 0.0, theta), -1).cumsum(-1)
        # Scaled by the rounded total, the noise stays below it, and a state of probability zero is never
        # drawn.
        threshold = (noise * cumulative[..., -1]).unsqueeze(-1)
        return self._encode((cumulative[..., :-1] <= threshold).sum(-1), field.dtype)

    def mode(self, field: Tensor, theta: Theta | None = None) -> Tensor:
        logits = self._find_logits(field, 0.0, theta)
        return self._encode(self.n_states - 1 - logits.flip(-1).argmax(-1), field.dtype)

    def log_conditional(self, x: Tensor, field: Tensor, theta: Theta | None = None) -> Tensor:
        return (self.by_unit(x) * torch.log_softmax(self._find_logits(field, 0.0, theta), -1)).sum(-1)

    def propose(self, x: Tensor, noise: Tensor, step: float = 1.0) -> Tensor:
        return self._encode((noise * self.n_states).long().clamp_(max=self.n_states - 1), x.dtype)

    @torch.no_grad()
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        self.set_finite_(bias=self.by_unit(expected[0].log()))

    def misfit(self, x: Tensor) -> tuple[Tensor, str]:
        one_hot = (self.by_unit(x).sum(-1, keepdim=True) == 1).expand(*x.shape[:-1], -1, self.n_states)
        wrong = (x.square() != x) | ~one_hot.flatten(-2)
        return wrong, f"one-hot blocks of {self.n_states} columns"

    def _find_logits(self, B: Tensor, A: Tensor | float, theta: Theta | None) -> Tensor:
        (bias,) = theta or self.natural()
        return self.by_unit(B + bias - A / 2)

    def _encode(self, digits: Tensor, dtype: torch.dtype) -> Tensor:
        return nn.functional.one_hot(digits, self.n_states).to(dtype).flatten(-2)
