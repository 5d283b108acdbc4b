"""Products with matrices that are zero in most places: sums of a few rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium.compiled import serving

SEEN = 8  # rows that say how many entries of all are not 0
_LOT = 1000  # rows that are summed one by one
_CACHED = 640 << 10  # bytes of y that are summed from at a time, of a mebibyte of cache that a core has
_LINE = 64  # of its columns, or a multiple of them
_OFTEN = 16  # sums that each row of y has to be in for copies to be worth their time

DENSE = 8  # one nonzero entry in so many: there the sum of rows takes as long as the dense product


def few(x: Tensor, share: float) -> bool:
    """Whether at most this share of the entries is not 0, of a float32 matrix on a CPU: some rows tell."""
    if share == 0:
        return False
    rows = x.detach().numpy()  # counts a few numbers in a quarter of torch's time
    # A row with twice as many spares a look at the next.
    if np.count_nonzero(rows[:1]) > 2 * share * rows.shape[1]:
        return False
    seen = rows[:: ceil(len(rows) / SEEN) or 1]
    # Booleans are counted in a sixth of the time of numbers.
    return bool(np.count_nonzero(seen != 0) <= share * seen.size)


def summed(x: Tensor) -> bool:
    """Whether rows can be summed for such a matrix: of float32 or float64, on a CPU."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


def sums_of_rows(x: Tensor, y: Tensor, transposed: bool = False) -> Tensor:
    """x @ y, or xᵀ @ y, in float32: the rows of y where x is not 0 are summed.

    Args:
        x: (m, k), or (k, m).
        y: (k, n), rows contiguous.

    Returns:
        (m, n).
    """
    if len(y) <= _LOT:
        return _sums_of_lot(x, y, transposed)
    # Many rows lot by lot: one by one they lose digits.
    lots = zip(torch.split(x, _LOT, 1 - transposed), torch.split(y, _LOT), strict=True)
    return reduce(Tensor.add_, (_sums_of_lot(*lot, transposed) for lot in lots))


def _sums_of_lot(x: Tensor, y: Tensor, transposed: bool) -> Tensor:
    return sums_at(*entries(x, transposed), y)


def entries(x: Tensor, transposed: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Where the entries of each row (column) that are not 0 stand, where each one's start, and the entries.

    Args:
        x: (m, k), or (k, m), float32 or float64 on a CPU.

    Returns:
        Of n entries (n,), (m + 1,) with their number in the end, and (n,), as ``sums_at`` takes them.
    """
    x = x.detach().contiguous()
    if not serving.COMPILED:
        return _entries_by_numpy((x.t() if transposed else x).numpy())
    whose = "_of_columns" if transposed else ""
    rows = x.shape[transposed]
    integer = np.int32 if x.numel() < 1 << 31 else np.int64  # the shorter are faster
    starts = np.zeros(rows + 1, integer)
    serving.over_rows(f"count_entries{whose}", rows, x, starts[1:])
    np.cumsum(starts, out=starts)
    where, by = torch.from_numpy(np.empty(starts[-1], integer)), x.new_empty(starts[-1])
    serving.over_rows(f"list_entries{whose}", rows, x, starts, where, by)
    return where, torch.from_numpy(starts), by


def _entries_by_numpy(x: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows, where = np.nonzero(x)
    starts = rows.searchsorted(np.arange(len(x) + 1))
    return torch.from_numpy(where), torch.from_numpy(starts), torch.from_numpy(x[rows, where])


def sums_at(where: Tensor, starts: Tensor, by: Tensor, y: Tensor) -> Tensor:
    """Sums of rows of y, outside autograd.

    Args:
        where: rows, those of one sum after those of the other.
        starts: where each sum starts among these, and where the last one ends, (m + 1,) of the same type.
        by: what each is multiplied by.
        y: (k, n), rows contiguous.

    Returns:
        (m, n).
    """
    y = y.detach()
    n = y.shape[1]
    if y.dtype is torch.float32 and len(where) > _OFTEN * len(y):
        # So few columns at a time that they stay in the second level of cache; float64 gains nothing.
        n = max(_CACHED // (len(y) * y.element_size() * _LINE), 1) * _LINE
    parts = [_sums_at(where, starts, by, each.contiguous()) for each in torch.split(y, max(n, 1), 1)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _sums_at(where: Tensor, starts: Tensor, by: Tensor, y: Tensor) -> Tensor:
    # As torch.nn.functional does, whose checks take as long as the sums of a few rows; 0 is "sum".
    return torch.embedding_bag(y, where, starts, False, 0, False, by, True)[0]


def few_rows(y: Tensor) -> Callable[[Tensor], Tensor] | None:
    """The product x @ y with a y (k, n) of which at most an eighth differs from zero, else None."""
    if not summed(y) or int(y.count_nonzero()) * DENSE > y.numel():
        return None
    columns, rows = y.t().nonzero(as_tuple=True)
    starts = torch.searchsorted(columns, torch.arange(y.shape[1] + 1, device="cpu"))
    return partial(_sums, rows, starts, y[rows, columns])


def _sums(rows: Tensor, starts: Tensor, values: Tensor, x: Tensor) -> Tensor:
    # Sums of whole rows of xᵀ: the unit that vectors are added in is the batch.
    return sums_at(rows, starts, values, x.t().contiguous()).t().contiguous()
