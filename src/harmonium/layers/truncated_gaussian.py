"""Real units in an interval, with a density of any curvature."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from typing import Any, ClassVar, Self, final

import torch
from torch import Tensor, nn

from harmonium import _checks
from harmonium.layers._truncated import (
    match_moments,
    truncated_mode,
    truncated_moments,
    truncated_quantile,
)
from harmonium.layers.layer import Layer, Moments, QuadraticUnits, Theta

Bound = float | Iterable[float]


@final
class UnitInterval:
    """[low, high] of every unit, kept in double precision whatever the layer's own.

    Args:
        low: a number for all units, or one for each.
        high: the same; above ``low``.
        n_units: number of units.

    Raises:
        TypeError: neither a number nor numbers.
        ValueError: another count, a bound that is not finite, or a low that is not below its high.
    """

    def __init__(self, low: Bound, high: Bound, n_units: int) -> None:
        self._low = _read_bound(low, "low", n_units)
        self._high = _read_bound(high, "high", n_units)
        for i in range(max(len(self._low), len(self._high))):
            below, above = self._low[i % len(self._low)], self._high[i % len(self._high)]
            if not below < above:
                raise ValueError(f"high: expected more than low = {below:g}, received {above:g} (unit {i})")
        self._tensors: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}

    def config(self) -> dict[str, Any]:
        """Returns the arguments low and high, as JSON has them."""
        names = {"low": self._low, "high": self._high}
        return {name: values[0] if len(values) == 1 else values for name, values in names.items()}

    def bounds(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Returns low and high, (n_units,) or (1,), in the precision and on the device of a tensor."""
        key = (like.dtype, like.device)
        if key not in self._tensors:
            low, high = (
                torch.tensor(part, dtype=like.dtype, device=like.device) for part in (self._low, self._high)
            )
            self._tensors[key] = (low, high)
        return self._tensors[key]

    def outside(self, x: Tensor) -> Tensor:
        """Marks the entries outside of their interval, as booleans of the shape of x."""
        low, high = self.bounds(x)
        return (x < low) | (x > high)

    def reflect(self, x: Tensor) -> Tensor:
        """Folds x back into the interval at its ends, as a ball between two walls."""
        low, high = self.bounds(x)
        width = high - low
        phase = torch.remainder(x - low, 2 * width)
        return torch.minimum(low + torch.minimum(phase, 2 * width - phase), high)

    def __str__(self) -> str:
        if len(self._low) == len(self._high) == 1:
            return f"[{self._low[0]:g}, {self._high[0]:g}]"
        return f"[low, high] of each unit, within [{min(self._low):g}, {max(self._high):g}]"


def _read_bound(bound: Bound, name: str, n_units: int) -> list[float]:
    if not isinstance(bound, Iterable) or isinstance(bound, str):
        return [_checks.real(bound, name)]
    listed = bound.tolist() if hasattr(bound, "tolist") else bound
    values = [_checks.real(value, f"{name}[{i}]") for i, value in enumerate(listed)]
    if len(values) != n_units:
        raise ValueError(f"{name}: expected a number or {n_units} numbers, received {len(values)}")
    return values[:1] if len(set(values)) == 1 else values


class IntervalUnits(Layer, ABC):
    """Real units in [low, high] with natural parameters U and V, and others behind them.

    Args:
        n_units: number of units, at least 1.
        low: the lower end, a number or one for each unit.
        high: the upper end, above ``low``.

    Attributes:
        linear: learnable U, (n_units,), zero at first.
        quadratic: learnable V, (n_units,), zero at first.
    """

    location: ClassVar[str] = "linear"

    def __init__(self, n_units: int, low: Bound, high: Bound) -> None:
        super().__init__(n_units)
        self.interval = UnitInterval(low, high, self.n_units)
        self.linear = nn.Parameter(torch.zeros(self.n_units))
        self.quadratic = nn.Parameter(torch.zeros(self.n_units))

    @classmethod
    def plain(cls, n_units: int, n_states: int = 2) -> Self:
        return cls(n_units, 0.0, 1.0)

    def config(self) -> dict[str, Any]:
        return {"n_units": self.n_units, **self.interval.config()}

    def _find_slopes(self, B: Tensor, A: Tensor | float, theta: Theta | None) -> tuple[Tensor, ...]:
        """Returns slope, curvature and both ends for ``truncated_moments``, each (..., n_units)."""
        linear, quadratic, *_ = theta or self.natural()
        slope = B + linear
        return (slope, *(x.expand_as(slope) for x in (quadratic + A, *self.interval.bounds(slope))))


@final
class TruncatedGaussian(QuadraticUnits, IntervalUnits):
    """Units in [low, high]; θ = (U, V), t(x) = (x, -x²/2), ψ = ln ∫ exp((U+B)x - (V+A)x²/2) dx.

    V + A may have either sign: positive bends the density to a peak, zero makes it exponential, negative
    piles it up at the ends (Tramel et al. 2018, Eqs. 75-79).

    Args:
        n_units: number of units, at least 1.
        low: the lower end, a number or one for each unit.
        high: the upper end, above ``low``.

    Attributes:
        linear: learnable U, (n_units,), zero at first.
        quadratic: learnable V, (n_units,), zero at first: a uniform density.

    Raises:
        ValueError: bounds that are not finite, in the wrong order, or not as many as units.
    """

    kind: ClassVar[str] = "truncated_gaussian"
    coding = "interval"

    def natural(self) -> Theta:
        return (self.linear, self.quadratic)

    def log_partition(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Tensor:
        return truncated_moments(*self._find_slopes(B, A, theta)).log_mass

    def moments(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Moments:
        moments = truncated_moments(*self._find_slopes(B, A, theta))
        return Moments(moments.mean, moments.variance)

    def sample(self, field: Tensor, noise: Tensor, theta: Theta | None = None) -> Tensor:
        slope, *rest = self._find_slopes(field, 0.0, theta)
        return truncated_quantile(noise.expand_as(slope), slope, *rest)

    def mode(self, field: Tensor, theta: Theta | None = None) -> Tensor:
        return truncated_mode(*self._find_slopes(field, 0.0, theta))

    def log_conditional(self, x: Tensor, field: Tensor, theta: Theta | None = None) -> Tensor:
        slope, curvature, low, high = self._find_slopes(field, 0.0, theta)
        density = (slope - curvature * x / 2) * x - truncated_moments(slope, curvature, low, high).log_mass
        return torch.where(self.interval.outside(x), -torch.inf, density)

    def propose(self, x: Tensor, noise: Tensor, step: float = 1.0) -> Tensor:
        return self.interval.reflect(x + step * 12**0.5 * (noise - 0.5))

    @torch.no_grad()
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        mean, minus_half_square = expected
        bounds = self.interval.bounds(mean)
        slope, curvature = match_moments(mean, -2 * minus_half_square, *bounds, self.linear.dtype)
        self.linear.copy_(slope)
        self.quadratic.copy_(curvature)

    def misfit(self, x: Tensor) -> tuple[Tensor, str]:
        return self.interval.outside(x), f"values in {self.interval}"
