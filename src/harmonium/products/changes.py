"""Differences of states, which are zero nearly everywhere."""

from __future__ import annotations

from torch import Tensor

from harmonium.products.product import product
from harmonium.products.sparse import DENSE, entries, summed, sums_at


class Changes:
    """A matrix (m, k) that may well be zero nearly everywhere, such as the difference of two states.

    Args:
        x: the matrix.

    Attributes:
        rows: which of its rows are not zero, (m,).
    """

    def __init__(self, x: Tensor) -> None:
        self._dense = x
        self._entries = entries(x) if summed(x) else None
        if self._entries is None:
            self.rows = (x != 0).any(-1)
        else:
            starts = self._entries[1]
            self.rows = starts[1:] != starts[:-1]

    def product(self, y: Tensor) -> Tensor:
        """The matrix product with a contiguous y (k, n), outside autograd.

        Below an eighth of nonzero entries the rows of y that they touch are summed.
        """
        if self._entries is None or len(self._entries[0]) * DENSE > self._dense.numel():
            return product(self._dense, y)
        return sums_at(*self._entries, y)
