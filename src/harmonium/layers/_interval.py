"""Closed intervals, one for each unit of a layer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor

from harmonium import _checks

Bound = float | Iterable[float]


@final
class Interval:
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
        self._low = _numbers(low, "low", n_units)
        self._high = _numbers(high, "high", n_units)
        for i in range(max(len(self._low), len(self._high))):
            below, above = self._low[i % len(self._low)], self._high[i % len(self._high)]
            if not below < above:
                raise ValueError(f"high: expected more than low = {below:g}, received {above:g} (unit {i})")
        self._tensors: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}

    def config(self) -> dict[str, Any]:
        """The arguments low and high, as JSON knows them."""
        names = {"low": self._low, "high": self._high}
        return {name: values[0] if len(values) == 1 else values for name, values in names.items()}

    def bounds(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """low and high, (n_units,) or (1,), in the precision and on the device of a tensor."""
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
        """x folded back into the interval at its ends, as a ball between two walls."""
        low, high = self.bounds(x)
        width = high - low
        phase = torch.remainder(x - low, 2 * width)
        return torch.minimum(low + torch.minimum(phase, 2 * width - phase), high)

    def __str__(self) -> str:
        if len(self._low) == len(self._high) == 1:
            return f"[{self._low[0]:g}, {self._high[0]:g}]"
        return f"[low, high] of each unit, within [{min(self._low):g}, {max(self._high):g}]"


def _numbers(bound: Bound, name: str, n_units: int) -> list[float]:
    if not isinstance(bound, Iterable) or isinstance(bound, str):
        return [_checks.real(bound, name)]
    values = [_checks.real(value, f"{name}[{i}]") for i, value in enumerate(_listed(bound))]
    if len(values) != n_units:
        raise ValueError(f"{name}: expected a number or {n_units} numbers, received {len(values)}")
    return values[:1] if len(set(values)) == 1 else values


def _listed(bound: Iterable[float]) -> list[float]:
    listed: list[float] = bound.tolist() if hasattr(bound, "tolist") else list(bound)
    return listed
