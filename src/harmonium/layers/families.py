"""Bases that several kinds of units share, and checks of their data that pass over NaN."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

import torch
from torch import Tensor, nn

from harmonium.data import Rows
from harmonium.layers.layer import Layer, Theta

_ROWS = 4096


class DiscreteUnits(Layer, ABC):
    """Units with few states, θ = bias and t(x) = x.

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

    def expected_statistics(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Theta:
        return (self.moments(B, A, theta).mean,)

    def statistics(self, x: Tensor) -> Theta:
        return (x,)

    def _local(self, B: Tensor, theta: Theta | None) -> Tensor:
        (bias,) = theta or self.natural()
        return B + bias


class QuadraticUnits(Layer, ABC):
    """Real units with θ = (U, V), t(x) = (x, -x²/2)."""

    square = (0.0, 1.0)

    def statistics(self, x: Tensor) -> Theta:
        return (x, -0.5 * x.square())

    def expected_statistics(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Theta:
        mean, variance = self.moments(B, A, theta)
        return (mean, -0.5 * (mean.square() + variance))

    def _local(self, B: Tensor, A: Tensor | float, theta: Theta | None) -> tuple[Tensor, Tensor]:
        slope, curvature = theta or self.natural()
        return B + slope, curvature + A


def first_other(rows: Rows, values: tuple[float, ...]) -> float | None:
    """Returns the first entry that is none of a few values; None where there is none."""
    for chunk in rows.chunks(_ROWS):
        bad = ~chunk.isnan()
        for value in values:
            bad &= chunk != value
        if bool(bad.any()):
            return float(chunk[bad][0])
    return None


def value_range(rows: Rows) -> tuple[float, float]:
    """Returns the smallest and the largest entry."""
    seen = [chunk[~chunk.isnan()] for chunk in rows.chunks(_ROWS)]
    ends = [(float(x.min()), float(x.max())) for x in seen if len(x)]
    return min(low for low, _ in ends), max(high for _, high in ends)


def largest_count(rows: Rows, expected: str, kind: str) -> int:
    """Returns the largest of integers from 0, at least 1.

    Raises:
        ValueError: another entry; the message names what was expected for the kind of units.
    """
    largest = 1.0
    for chunk in rows.chunks(_ROWS):
        bad = (chunk < 0) | ((chunk != chunk.floor()) & ~chunk.isnan())
        if bool(bad.any()):
            raise ValueError(
                f'X: expected {expected} for visible="{kind}", received {float(chunk[bad][0]):g}'
            )
        largest = max(largest, float(chunk.nan_to_num(nan=0.0).max()))
    return int(largest)
