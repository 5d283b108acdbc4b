"""Which rows each update sees, and their weights: a function of the seed and the step alone."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium import _random
from harmonium.training.seeds import stream_seed


class Batches:
    """Batches cut from a concatenation of random permutations of the rows, one permutation an epoch.

    Every batch is full and every row appears once in each epoch; a batch may reach over the end of one epoch
    into the next. When ``batch_size`` is at least the number of rows, every batch is the whole data set, in
    its own order. As the permutation of an epoch is drawn from ``(seed, epoch)``, a resumed run finds its
    place from the step and keeps no state of the data.

    Args:
        rows: number of rows, >= 1.
        batch_size: rows in a batch, >= 1; more than ``rows`` counts as ``rows``.
        seed: of the permutations.
        weights: of the rows, (rows,), at least 0 and not all 0; None: all count alike. Rows of weight 0 are
            as if they were not there.
    """

    def __init__(self, rows: int, batch_size: int, seed: int, weights: Tensor | None = None) -> None:
        self._kept = torch.arange(rows) if weights is None else weights.nonzero().flatten()
        self._weights: Tensor | None = None
        if weights is not None and bool((weights[self._kept] != weights.max()).any()):
            self._weights = weights / weights[self._kept].mean()
        self.rows = len(self._kept)
        self.size = min(batch_size, self.rows)
        self._seed = seed
        self._orders: dict[int, Tensor] = {}

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

    def indices(self, step: int) -> Tensor:
        """Rows of the update that follows ``step`` earlier ones, int64 on the CPU, shape (size,)."""
        if self.size == self.rows:
            return self._kept
        epoch, offset = divmod(step * self.size, self.rows)
        batch = self._order(epoch)[offset : offset + self.size]
        missing = self.size - len(batch)
        return self._kept[torch.cat([batch, self._order(epoch + 1)[:missing]]) if missing else batch]

    def weights(self, indices: Tensor) -> Tensor | None:
        """Of some rows, relative to the mean over all that are there; None where all count alike.

        A batch's mean weight is left as it is, so that batches add up to the weighted mean over the data.
        """
        return None if self._weights is None else self._weights[indices]

    def _order(self, epoch: int) -> Tensor:
        if epoch not in self._orders:
            generator = torch.Generator().manual_seed(stream_seed(self._seed, "data", epoch))
            # A batch reaches into two epochs at most; older permutations are never asked for again.
            self._orders = {e: order for e, order in self._orders.items() if e == epoch - 1}
            self._orders[epoch] = _random.permutation(self.rows, generator)
        return self._orders[epoch]
