"""The product of two matrices by the backend."""

from __future__ import annotations

from torch import Tensor

from harmonium.products import dense
from harmonium.products.backend import get_backend


def product(x: Tensor, y: Tensor) -> Tensor:
    """Returns the matrix product ``x @ y`` of shapes (m, k) and (k, n)."""
    return dense.multiply(get_backend().library, x, y) if dense.large(x, y) else x @ y
