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

    With ``filters`` the weights are tied, as those of a convolution (Lee et al. 2009): the second layer is so
    many maps of equal size, one after the other. Each has one window's weights, which it moves over the grid.
    W then has a copy of each of them for every unit of the map, and an update moves all copies by the mean of
    their gradients.

    Args:
        shape: height and width of the image; its pixels are the first layer's units, row by row.
        window: height and width of a window, a pair or one number for both, at most the image's.
        filters: Number of maps with weights of their own, a divisor of the second layer's units. None: every
            unit has weights of its own.

    Raises:
        ValueError: a window larger than the image, or, once the coupling joins layers, a first layer of
            another number of units than the image has pixels; units that are no multiple of ``filters``, or
            ``filters`` within a layer.

    Examples:
        >>> import harmonium as hm
        >>> filters = hm.Local((3, 3), 2, filters=2)  # 2 maps of 2 x 2 units
        >>> machine = hm.BoltzmannMachine([hm.Gaussian(9), hm.Bernoulli(8)], edges={(0, 1): filters}, seed=0)
        >>> W = machine.couplings[0].matrix()
        >>> bool(W[0, 0] == W[1, 1] == W[3, 2] == W[4, 3])  # the upper left corner of the first filter
        True
    """

    kind: ClassVar[str] = "local"
    # Of filters: the rows of W that a unit of a map sees, and that unit.
    _window_indices: tuple[Tensor, Tensor]

    def __init__(self, shape: Sequence[int], window: int | Sequence[int], filters: int | None = None) -> None:
        super().__init__()
        self.filters = None if filters is None else _checks.positive_int(filters, "filters")
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
        if self.filters and (self.inner or above.n_units % self.filters):
            raise ValueError(
                f"filters: expected a divisor of the {above.n_units} units of {above}, in another layer than "
                f"the image, received {self.filters}; filters=None gives every unit weights of its own"
            )
        maps = self.filters or 1
        corners = self._find_corners(above.n_units // maps) * maps
        seen = torch.zeros(above.n_units, height, width, dtype=torch.bool, device="cpu")
        for unit, (top, left) in enumerate(corners):
            seen[unit, top : top + self.window[0], left : left + self.window[1]] = True
        columns = seen.flatten(1).repeat_interleave(below.columns_per_unit, 1)
        if self.filters:
            self.copies = above.n_units // self.filters
            rows = columns[: self.copies].nonzero()[:, 1].view(self.copies, -1)
            self._window_indices = rows, torch.arange(self.copies, device="cpu").unsqueeze(-1)
        return columns.repeat_interleave(above.columns_per_unit, 0).t()

    def within(self, values: Tensor) -> Tensor:
        if self.filters is None:
            return super().within(values)
        rows, units = (indices.to(values.device) for indices in self._window_indices)
        if not values.is_meta:  # where they would be lost
            self._window_indices = rows, units
        by_unit = values.reshape(len(values), self.filters, self.copies, -1).transpose(1, 2)
        means = by_unit[rows, units].mean(0, keepdim=True)  # (1, window, filters, columns of a unit)
        tied = torch.zeros_like(by_unit).index_put((rows, units), means.expand(self.copies, -1, -1, -1))
        return tied.transpose(1, 2).reshape(values.shape)

    def config(self) -> dict[str, Any]:
        tied = {} if self.filters is None else {"filters": self.filters}
        return {"shape": list(self.shape), "window": list(self.window), **tied}

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
