"""Differences of states, which are zero nearly everywhere."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from harmonium.products.product import product
from harmonium.products.sparse import DENSE


class Changes:
    """A matrix (m, k) that may well be zero nearly everywhere, such as the difference of two states.

    Args:
        x: the matrix.

    Attributes:
        rows: of its nonzero entries, in rising order.
    """

    def __init__(self, x: Tensor) -> None:
        self._dense = x
        if x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64):
            # Three times as fast as torch's own search.
            places = np.divmod(np.flatnonzero(x.detach().numpy().astype(bool)), x.shape[1])
            self.rows, self._columns = (torch.from_numpy(place) for place in places)
        else:
            self.rows, self._columns = x.nonzero(as_tuple=True)

    def product(self, y: Tensor) -> Tensor:
        """The matrix product with a contiguous y (k, n), outside autograd.

        Below an eighth of nonzero entries the rows of y that they touch are summed.
        """
        x = self._dense
        if x.device.type != "cpu" or len(self.rows) * DENSE > x.numel():
            return product(x, y)
        starts, values = self._bags
        return embedding_bag(self._columns, y, starts, mode="sum", per_sample_weights=values)

    @cached_property
    def _bags(self) -> tuple[Tensor, Tensor]:
        """Where the entries of each row start, and the entries."""
        starts = torch.searchsorted(self.rows, torch.arange(len(self._dense), device="cpu"))
        return starts, self._dense[self.rows, self._columns]
