"""The base of real units whose exponent is a parabola."""

from __future__ import annotations

from abc import ABC

from torch import Tensor

from harmonium.layers.layer import Layer, Theta


class QuadraticUnits(Layer, ABC):
    """Real units with θ = (U, V), t(x) = (x, -x²/2)."""

    square = (0.0, 1.0)

    def statistics(self, x: Tensor) -> Theta:
        return (x, -0.5 * x.square())

    def expected_statistics(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Theta:
        mean, variance = self.moments(B, A, theta)
        return (mean, -0.5 * (mean.square() + variance))
