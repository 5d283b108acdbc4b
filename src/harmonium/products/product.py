"""The product of two matrices by what was chosen, and of whole numbers."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from harmonium.products import dense
from harmonium.products.backend import get_backend


def product(x: Tensor, y: Tensor) -> Tensor:
    """The matrix product ``x @ y`` of shapes (m, k) and (k, n)."""
    return dense.multiply(get_backend().library, x, y) if dense.large(x, y) else x @ y


def int8_product(x: Tensor, y: Tensor) -> Tensor:
    """The exact product of whole numbers, int8 (m, k) and (k, n), in float32.

    Sums of up to 2^24 are exact.
    """
    return torch._int_mm(x, y).float()


@cache
def int8_works() -> bool:
    """Whether such products are there, and exact: older processors add up in 16 bits, which may not fit."""
    rows, columns = ([127, 127, 1, -128], [-128, -128, 127, 127]), ([127, 1, -127], [127, 0, -128])
    x = torch.tensor(rows, dtype=torch.int8, device="cpu").repeat(9, 64)
    y = torch.tensor(columns, dtype=torch.int8, device="cpu").repeat(128, 24)
    try:
        return torch.equal(int8_product(x, y), x.float() @ y.float())
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False
