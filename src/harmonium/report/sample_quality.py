"""Sample quality: the rows of data nearest to samples, which show copies."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks

_ROWS = 1000  # at a time: their distances from 60,000 rows fit in half a gigabyte


class Neighbours(NamedTuple):
    """The nearest row of a data set for every sample.

    Attributes:
        distances: Euclidean, (samples,).
        indices: Places of the nearest rows in the data, (samples,) int64.
    """

    distances: Tensor
    indices: Tensor


@torch.no_grad()
def nearest_neighbours(samples: Any, data: Any) -> Neighbours:
    """Finds the nearest row of the data for every sample, which shows copies of the training set.

    Distances mean little by themselves: set those of the samples beside those of held-out data. Samples that
    lie much nearer to the training data than held-out data do are memorised.

    Args:
        samples: (n, …).
        data: (m, …), rows of the same number of values.
    """
    x, y = _read_set(samples, "samples").flatten(1), _read_set(data, "data").flatten(1)
    _checks.finite(x, "samples")
    _checks.finite(y, "data")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"samples: expected {y.shape[1]} values a row as in data, received {x.shape[1]}")
    y = y.to(x.device)
    # ‖y‖² - 2xy orders the rows, best about their mean; the winner's distance is taken without cancellation.
    mean = y.mean(0)
    centred = (y - mean).t()
    norms = centred.square().sum(0)
    index = torch.cat([(norms - 2 * ((part - mean) @ centred)).argmin(-1) for part in torch.split(x, _ROWS)])
    return Neighbours((x - y[index]).norm(dim=-1), index)


def _read_set(x: Any, name: str) -> Tensor:
    """Returns a set as a floating tensor of at least one row."""
    values = x if isinstance(x, Tensor) else np.asarray(x)
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "biuf":
            raise TypeError(
                f"{name}: expected numbers, received {values.dtype}; encode a table, "
                "as by hm.tables.Table.fit(frame).encode(frame)"
            )
        values = torch.from_numpy(values)
    if values.dim() < 2 or len(values) == 0:
        raise ValueError(
            f"{name}: expected at least one row of at least one value, received {tuple(values.shape)}"
        )
    return values if values.is_floating_point() else values.float()
