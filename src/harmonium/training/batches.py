"""The rows of each update, and their weights: a function of the seed and the step alone."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

from harmonium import _random
from harmonium.training.permutation import KeyedPermutation
from harmonium.training.seeds import stream_seed

HELD: Final = 1 << 22
"""Rows up to which the order of an epoch is drawn and held; beyond, it is computed from a key."""


class Batches:
    """Batches cut from a concatenation of random permutations of the rows, one permutation an epoch.

    Every batch is full and every row appears once in each epoch; a batch may reach over the end of one epoch
    into the next. When ``batch_size`` is at least the number of rows, every batch is the whole data set, in
    its own order. As the permutation of an epoch is drawn from ``(seed, epoch)``, a resumed run finds its
    place from the step and keeps no state of the data. More than ``HELD`` rows are in the order of a
    ``KeyedPermutation``: any number of them takes no memory.

    Args:
        rows: number of rows, >= 1.
        batch_size: rows in a batch, >= 1; more than ``rows`` counts as ``rows``.
        seed: of the permutations.
        weights: of the rows, (rows,), at least 0 and not all 0; None: all count alike. Rows of weight 0 are
            as if they were not there.
    """

    def __init__(self, rows: int, batch_size: int, seed: int, weights: Tensor | None = None) -> None:
        self._kept: Tensor | None = None
        self._weights: Tensor | None = None
        if weights is not None:
            self._kept = weights.nonzero().flatten()
            if bool((weights[self._kept] != weights.max()).any()):
                self._weights = weights / weights[self._kept].mean()
        self.rows = rows if self._kept is None else len(self._kept)
        self.size = min(batch_size, self.rows)
        self._seed = seed
        self._orders: dict[int, Tensor | KeyedPermutation] = {}

    @property
    def per_epoch(self) -> int:
        """Updates after which every row has been seen, the last batch possibly reaching beyond."""
        return self.updates(1)

    def updates(self, epochs: int) -> int:
        """The least number of updates that shows every row ``epochs`` times."""
        return -(-epochs * self.rows // self.size)

    def epoch(self, step: int) -> int:
        """Epochs completed after ``step`` updates."""
        return step * self.size // self.rows

    def indices(self, step: int, count: int = 1) -> Tensor:
        """Returns the rows of ``count`` updates after ``step`` earlier ones: (count · size,) int64."""
        if self.size == self.rows:
            places = torch.arange(self.rows).repeat(count)
        else:
            epoch, start = divmod(step * self.size, self.rows)
            left, parts = count * self.size, list[Tensor]()
            while left > 0:
                parts.append(self._places(epoch, start, min(start + left, self.rows)))
                left, epoch, start = left - len(parts[-1]), epoch + 1, 0
            places = parts[0] if len(parts) == 1 else torch.cat(parts)
        return places if self._kept is None else self._kept[places]

    def weights(self, indices: Tensor) -> Tensor | None:
        """Of some rows, relative to the mean over all that are there; None where all count alike.

        A batch's mean weight is left as it is, so that batches add up to the weighted mean over the data.
        """
        return None if self._weights is None else self._weights[indices]

    def _places(self, epoch: int, start: int, stop: int) -> Tensor:
        """Returns the rows at places ``start`` to ``stop`` in the order of an epoch."""
        if epoch not in self._orders:
            key = stream_seed(self._seed, "data", epoch)
            # A batch reaches into two epochs at most; older permutations are never asked for again.
            self._orders = {e: order for e, order in self._orders.items() if e == epoch - 1}
            if self.rows > HELD:
                self._orders[epoch] = KeyedPermutation(self.rows, key)
            else:
                self._orders[epoch] = _random.permutation(self.rows, torch.Generator().manual_seed(key))
        order = self._orders[epoch]
        if isinstance(order, Tensor):
            return order[start:stop]
        return torch.from_numpy(order(np.arange(start, stop)))
