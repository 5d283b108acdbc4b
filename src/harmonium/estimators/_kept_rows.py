"""Rows that a fitted estimator keeps of those that it has learned."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from harmonium import _random
from harmonium._random import as_generator
from harmonium.estimators._fitted import Fitted
from harmonium.estimators._intake import Array, taken

_ROWS = 1000


def some_rows(fitted: Fitted, X: Any) -> Tensor:
    """Returns up to 1,000 of validated rows as visible states."""
    chosen = taken(X, rows_to_keep(fitted, X.shape[0], None))
    return fitted.visible(chosen).to(fitted.machine.dtype)


def rows_to_keep(fitted: Fitted, count: int, weights: Tensor | None) -> Array:
    """Draws the indices of up to 1,000 of so many rows, by their weights where there are any."""
    generator = as_generator(fitted.stream("rows kept", fitted.n_updates))
    index = _random.permutation(count, generator)[:_ROWS]
    if weights is not None:
        ends = weights.cumsum(0)
        places = _random.uniform((len(index),), generator, torch.float64) * ends[-1]
        index = torch.searchsorted(ends, places).clamp(max=count - 1)
    kept: Array = index.sort().values.numpy()
    return kept
