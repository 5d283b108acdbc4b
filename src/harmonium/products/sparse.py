"""Products with matrices that are zero in most places: sums of a few rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from harmonium.compiled import serving

_SEEN = 8  # rows that say how many entries of all are not 0

DENSE = 8  # one nonzero entry in so many: there the sum of rows takes as long as the dense product


def few(x: Tensor, share: float) -> bool:
    """Whether at most this share of the entries is not 0, of a float32 matrix on a CPU: some rows tell."""
    if share == 0:
        return False
    entries = x.detach().numpy()  # counts a few numbers in a quarter of torch's time
    # A row with twice as many spares a look at the next.
    if np.count_nonzero(entries[:1]) > 2 * share * entries.shape[1]:
        return False
    seen = entries[:: ceil(len(entries) / _SEEN) or 1]
    return bool(np.count_nonzero(seen) <= share * seen.size)


def add_rows(x: Tensor, y: Tensor, total: Tensor) -> Tensor:
    """Adds x @ y to ``total`` in place, and returns it: the rows of y where x is not 0 are summed.

    Args:
        x: (m, k), float32.
        y: (k, n), rows contiguous.
        total: (m, n), rows contiguous.
    """
    serving.over_rows("add_rows", len(x), x, y, total)
    return total


def few_rows(y: Tensor) -> Callable[[Tensor], Tensor] | None:
    """The product x @ y with a y (k, n) of which at most an eighth differs from zero, else None."""
    known = y.device.type == "cpu" and y.dtype in (torch.float32, torch.float64)
    if not known or int(y.count_nonzero()) * DENSE > y.numel():
        return None
    columns, rows = y.t().nonzero(as_tuple=True)
    starts = torch.searchsorted(columns, torch.arange(y.shape[1], device="cpu"))
    return partial(_sums, rows, starts, y[rows, columns])


def _sums(rows: Tensor, starts: Tensor, values: Tensor, x: Tensor) -> Tensor:
    # Sums of whole rows of xᵀ: the unit that vectors are added in is the batch.
    sums = embedding_bag(rows, x.t().contiguous(), starts, mode="sum", per_sample_weights=values)
    return sums.t().contiguous()
