"""The product of two matrices by what was chosen."""

from __future__ import annotations

from torch import Tensor

from harmonium.products import dense
from harmonium.products.calibration import choice


def product(x: Tensor, y: Tensor) -> Tensor:
    """The matrix product ``x @ y`` of shapes (m, k) and (k, n)."""
    return dense.multiply(choice().library, x, y) if dense.large(x, y) else x @ y
