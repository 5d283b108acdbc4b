"""A curve in a terminal."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import final

_BLOCKS = " ▁▂▃▄▅▆▇█"
_POINTS = 256


@final
class Curve:
    """Numbers in order, in bounded memory: neighbours are averaged where there are many.

    Attributes:
        last: the last finite number; NaN before the first.
    """

    def __init__(self) -> None:
        self.last = math.nan
        self._means: list[float] = []
        self._stride = 1  # numbers behind each mean
        self._sum, self._count = 0.0, 0

    def add(self, value: float) -> None:
        """One number more; one that is not finite is left out."""
        if not math.isfinite(value):
            return
        self.last = value
        self._sum, self._count = self._sum + value, self._count + 1
        if self._count < self._stride:
            return
        self._means.append(self._sum / self._count)
        self._sum, self._count = 0.0, 0
        if len(self._means) == _POINTS:
            self._means = [(a + b) / 2 for a, b in zip(self._means[::2], self._means[1::2], strict=True)]
            self._stride *= 2

    def lines(self, columns: int, rows: int) -> list[str]:
        """The curve as bars, from its smallest to its largest mean, in lines of ``columns`` characters."""
        means = self._means
        if len(means) > columns:
            edges = [round(i * len(means) / columns) for i in range(columns + 1)]
            means = [sum(means[a:b]) / (b - a) for a, b in pairwise(edges)]
        low, high = (min(means), max(means)) if means else (0.0, 0.0)
        steps = 8 * rows
        levels = [1 + round((steps - 1) * (x - low) / (high - low)) if high > low else 1 for x in means]
        return [
            "".join(_BLOCKS[min(max(level - 8 * row, 0), 8)] for level in levels).ljust(columns)
            for row in range(rows - 1, -1, -1)
        ]
