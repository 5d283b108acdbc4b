"""Products with a matrix that is zero in most places: where few couplings join its units."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_DENSE = 8  # one nonzero entry in so many: there sums of rows take as long as the dense product


def few_rows(y: Tensor) -> Callable[[Tensor], Tensor] | None:
    """The product x @ y, outside autograd, with a y (k, n) that is zero but for an eighth; None if it is not.

    In float32 or float64, on a CPU.
    """
    known = y.device.type == "cpu" and y.dtype in (torch.float32, torch.float64)
    if not known or int(y.count_nonzero()) * _DENSE > y.numel():
        return None
    columns, rows = y.t().nonzero(as_tuple=True)
    starts = torch.searchsorted(columns, torch.arange(y.shape[1] + 1, device="cpu"))
    values = y[rows, columns].detach()

    def times(x: Tensor) -> Tensor:
        # Sums of rows of xᵀ, which are as long as the batch, as torch.nn.functional.embedding_bag makes
        # them, whose checks take as long; 0 is "sum".
        states = x.detach().t().contiguous()
        sums = torch.embedding_bag(states, rows, starts, False, 0, False, values, True)[0]
        return sums.t().contiguous()

    return times
