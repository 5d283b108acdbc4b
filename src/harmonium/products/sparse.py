"""Products with matrices that are zero in most places: sums of a few rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from harmonium.compiled.serving import share_out

_SHARE = 16  # rows from which on another thread is worth its start
_DENSE = 8  # one nonzero entry in so many: there the sum of rows takes as long as the dense product


def density(x: Tensor) -> float:
    """The share of entries that are not 0."""
    from harmonium.compiled import products as compiled

    return float(compiled.count_nonzero(x.detach().numpy())) / max(x.numel(), 1)


def add_rows(x: Tensor, y: Tensor, total: Tensor) -> Tensor:
    """Adds x @ y to ``total`` in place, and returns it: the rows of y where x is not 0 are summed.

    Args:
        x: (m, k), float32.
        y: (k, n), rows contiguous.
        total: (m, n), rows contiguous.
    """
    from harmonium.compiled import products as compiled

    arrays = x.detach().numpy(), y.detach().numpy(), total.numpy()
    threads = min(torch.get_num_threads(), max(len(x) // _SHARE, 1))
    cuts = [len(x) * part // threads for part in range(threads + 1)]
    share_out(lambda part: compiled.add_rows(cuts[part], cuts[part + 1], *arrays), threads)
    return total


def few_rows(y: Tensor) -> Callable[[Tensor], Tensor] | None:
    """The product x @ y with a y (k, n) of which at most an eighth differs from zero, else None."""
    known = y.device.type == "cpu" and y.dtype in (torch.float32, torch.float64)
    if not known or int(y.count_nonzero()) * _DENSE > y.numel():
        return None
    columns, rows = y.t().nonzero(as_tuple=True)
    starts = torch.searchsorted(columns, torch.arange(y.shape[1]))
    return partial(_sums, rows, starts, y[rows, columns])


def _sums(rows: Tensor, starts: Tensor, values: Tensor, x: Tensor) -> Tensor:
    # Sums of whole rows of xᵀ: the unit that vectors are added in is the batch.
    sums = embedding_bag(rows, x.t().contiguous(), starts, mode="sum", per_sample_weights=values)
    return sums.t().contiguous()
