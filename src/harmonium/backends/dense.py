"""Products of real numbers, by the library that was chosen.

On CPUs where torch's default library leaves wide vector units idle, the oneDNN path is twice as fast in
float32 at the same precision; on others it is the slower one. It has no derivative and some overhead, so it
serves large products outside autograd; everything else is a plain ``torch`` product.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import torch
from torch import Tensor

from harmonium import _device
from harmonium.compiled import dispatch

LIBRARIES: Final = ("torch", "onednn")

LOT = 128  # rows
_NARROW = 16  # columns below which some processors' libraries add one row after the other


def large(x: Tensor, y: Tensor) -> bool:
    """Returns whether x @ y is worth a choice of backend: large, in float32 on a CPU, outside autograd."""
    return (
        x.dtype is y.dtype is torch.float32
        and x.device.type == "cpu"
        and x.dim() == y.dim() == 2
        and x.shape[1] == y.shape[0]
        and x.shape[0] * y.numel() >= dispatch.WORTHWHILE
        and not _device.needs_grad(x, y)
    )


def multiply(library: str, x: Tensor, y: Tensor) -> Tensor:
    """The product by a library that ``works``."""
    if library == "torch":
        return x @ y
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x.detach(), y.detach().t(), None, "none", [], "")
    return result


def lots(x: Tensor, y: Tensor) -> bool:
    """Returns whether xᵀ @ y sums so many rows that it needs ``sum_of_lots`` for its precision."""
    return len(x) >= 2 * LOT and (x.shape[1] < _NARROW or y.shape[1] < _NARROW)


def sum_of_lots(x: Tensor, y: Tensor) -> Tensor:
    """xᵀ @ y over many rows, lot by lot: a sum that takes them one by one loses digits in float32.

    Args:
        x: (rows, k).
        y: (rows, n).
    """
    cut = len(x) // LOT * LOT
    xs, ys = (rows[:cut].reshape(cut // LOT, LOT, rows.shape[1]) for rows in (x, y))
    sums = torch.bmm(xs.mT, ys).sum(0)
    return sums.addmm_(x[cut:].t(), y[cut:])


@cache
def works(library: str) -> bool:
    """Returns whether a library is available and gives right results, by a small trial."""
    if library == "torch":
        return True
    # The operator is not part of torch's public surface, so it is tried before it is trusted.
    if not (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    ):
        return False
    x = torch.arange(12, dtype=torch.float32, device="cpu").view(3, 4)
    y = torch.arange(20, dtype=torch.float32, device="cpu").view(4, 5)
    try:
        return all(torch.equal(multiply(library, x, each), x @ y) for each in (y, y.t().contiguous().t()))
    except (RuntimeError, TypeError, NotImplementedError):
        return False
