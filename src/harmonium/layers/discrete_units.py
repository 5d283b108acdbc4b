"""The base of discrete units, which have no learnable parameter but a bias."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from harmonium import _random
from harmonium.layers.layer import Layer, Theta


class DiscreteUnits(Layer, ABC):
    """Units with few states, θ = bias, t(x) = x and uniform noise, one number a unit.

    Args:
        n_units: number of units, at least 1.
        columns: of the state matrix for each unit.

    Attributes:
        bias: learnable, (n_units,) or (n_units, columns), zero at first.
    """

    location: ClassVar[str] = "bias"

    def __init__(self, n_units: int, columns: int = 1) -> None:
        super().__init__(n_units, columns)
        self.bias = nn.Parameter(torch.zeros(self.n_units, *([columns] if columns > 1 else [])))

    def natural(self) -> Theta:
        return (self.bias.flatten(),)

    def reference(self) -> Theta:
        return (torch.zeros_like(self.bias).flatten(),)

    def expected_statistics(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Theta:
        return (self.moments(B, A, theta).mean,)

    def statistics(self, x: Tensor) -> Theta:
        return (x,)

    def noise(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        return _random.uniform((*shape[:-1], self.n_units), generator, self.bias.dtype)

    def _local(self, B: Tensor, theta: Theta | None) -> Tensor:
        (bias,) = theta or self.natural()
        return B + bias
