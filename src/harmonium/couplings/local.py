"""A window of an image for every unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium.couplings.coupling import Coupling
from harmonium.layers import Layer


@final
class Local(Coupling):
    """Every unit of the second layer joined to one window of the first layer's image.

    The windows' corners lie on a grid that is spread evenly over the image and as fine as the number of
    units allows: units that are left over once the grid is full begin it again.

    Args:
        shape: height and width of the image; its pixels are the first layer's units, row by row.
        window: height and width of a window, a pair or one number for both, at most the image's.

    Raises:
        ValueError: a window larger than the image, or, once the coupling joins layers, a first layer of
            another number of units than the image has pixels.
    """

    kind: ClassVar[str] = "local"

    def __init__(self, shape: Sequence[int], window: int | Sequence[int]) -> None:
        super().__init__()
        self.shape = _read_pair(shape, "shape")
        self.window = _read_pair((window, window) if isinstance(window, int) else window, "window")
        if self.window[0] > self.shape[0] or self.window[1] > self.shape[1]:
            raise ValueError(f"window: expected at most the image's {self.shape}, received {self.window}")

    def pattern(self, below: Layer, above: Layer) -> Tensor | None:
        height, width = self.shape
        if below.n_units != height * width:
            raise ValueError(
                f"shape: expected an image of {below.n_units} pixels, the units of {below}, "
                f"received {height} x {width}"
            )
        corners = self._find_corners(above.n_units)
        seen = torch.zeros(above.n_units, height, width, dtype=torch.bool, device="cpu")
        for unit, (top, left) in enumerate(corners):
            seen[unit, top : top + self.window[0], left : left + self.window[1]] = True
        columns = seen.flatten(1).repeat_interleave(below.columns_per_unit, 1)
        return columns.repeat_interleave(above.columns_per_unit, 0).t()

    def config(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "window": list(self.window)}

    def _find_corners(self, units: int) -> list[tuple[int, int]]:
        """Returns the upper left corners of all windows, from the grid's first row downwards."""
        free = [side - window for side, window in zip(self.shape, self.window, strict=True)]
        rows = max(1, min(free[0] + 1, round((units * (free[0] + 1) / (free[1] + 1)) ** 0.5)))
        columns = max(1, min(free[1] + 1, units // rows))
        ends = zip(free, (rows, columns), strict=True)
        tops, lefts = (np.linspace(0, end, n).round().astype(int).tolist() for end, n in ends)
        grid = [(top, left) for top in tops for left in lefts]
        return [grid[unit % len(grid)] for unit in range(units)]


def _read_pair(value: Any, name: str) -> tuple[int, int]:
    _checks.instance(value, name, Sequence, "a height and a width")
    if len(value) != 2:
        raise ValueError(f"{name}: expected a height and a width, received {value!r}")
    return (_checks.positive_int(value[0], f"{name}[0]"), _checks.positive_int(value[1], f"{name}[1]"))
