"""The batches of a run: rows in an order that the seed and the step determine."""

from __future__ import annotations

import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium.data import Rows
from harmonium.machine import BoltzmannMachine
from harmonium.training.seeds import stream_seed

_CHUNK: Final = 1 << 20  # entries that are checked at once, which bounds the memory of the pass


class Batch(NamedTuple):
    """The rows of one update, (rows, width), and which of the data they are; the weights of all its rows.

    Of several processes ``v`` and ``where`` are those of this one, and the weights, (size,), those of all.
    """

    v: Tensor
    weights: Tensor | None
    where: Tensor


@final
class RowBatches:
    """Batches cut from a concatenation of random permutations of the rows, one permutation an epoch.

    Every batch is full and every row appears once in each epoch; a batch may reach over the end of one epoch
    into the next. When ``batch_size`` is at least the number of rows, every batch is the whole data set, in
    its own order. As the permutation of an epoch is drawn from ``(seed, epoch)``, a resumed run finds its
    place from the step and keeps no state of the data. Rows of a file are read by a thread while the update
    before is made.

    Args:
        batch_size: rows in a batch, >= 1; more than there are counts as all.
        weights: row weights, (rows,); None means uniform. Rows of weight 0 are as if they were not there.

    Attributes:
        size: Rows of a batch, at most those that there are.
        width: Columns of the rows.
        complete: True if every batch is all the rows, in their order.
        checked: whether all rows were found in the support of the machine before the first update.
        observed: whether all their entries are known to be observed.
        tensor: All rows as they lie in memory; None where they are made row by row or lie in a file.
        weights: Weights of all rows, (rows,) float64, relative to their mean; None: all count alike.
        per_epoch: updates after which every row has been seen, the last batch possibly reaching beyond.
        part: which rows of every batch this process takes; None: all, there are no others.
    """

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        seed: int,
        weights: Tensor | None = None,
        *,
        checked: bool = False,
        observed: bool = False,
    ) -> None:
        self._rows, self.tensor, self._given_weights = rows, rows.tensor, weights
        self._weighted_rows: Tensor | None = None
        self.weights: Tensor | None = None
        if weights is not None:
            self._weighted_rows = weights.nonzero().flatten()
            if bool((weights[self._weighted_rows] != weights.max()).any()):
                self.weights = weights / weights[self._weighted_rows].mean()
        self._number = len(rows) if self._weighted_rows is None else len(self._weighted_rows)
        self.size, self.width = min(batch_size, self._number), rows.width
        self.complete = self.size == self._number
        self._seed = seed
        self._orders: dict[int, Tensor] = {}
        self._reader = None if rows.in_memory else ThreadPoolExecutor(1, "harmonium-rows")
        self._ahead: dict[int, Future[Tensor]] = {}  # by the step that reads them
        self.part: slice | None = None
        self.checked, self.observed, self.per_epoch = checked, observed, self.updates(1)

    def take(self, step: int, count: int = 1, whole: bool = False) -> Batch:
        """Returns the batch after ``step`` earlier ones; of checked rows in memory ``count`` batches.

        With ``whole`` it has the rows of all processes.
        """
        where = self.indices(step, count)
        weights = None if self.weights is None else self.weights[where]
        part = None if whole else self.part
        where = where if part is None else where[part]
        if self.checked and self.tensor is not None:
            v = self.tensor.index_select(0, where.to(self.tensor.device)).to(self._rows.dtype)
        elif self._reader is None or whole:
            v = self._rows.take(where, checked=self.checked)
        else:
            following = self.indices(step + 1)
            ahead = {step: where, step + 1: following if part is None else following[part]}
            self._ahead = {
                n: self._ahead.get(n) or self._reader.submit(self._rows.take, rows, checked=self.checked)
                for n, rows in ahead.items()
            }
            v = self._ahead[step].result()
        return Batch(v, weights, where)

    def indices(self, step: int, count: int = 1) -> Tensor:
        """Returns the rows of ``count`` updates after ``step`` earlier ones: (count · size,) int64."""
        if self.complete:
            places = torch.arange(self._number).repeat(count)
        else:
            epoch, start = divmod(step * self.size, self._number)
            left, parts = count * self.size, list[Tensor]()
            while left > 0:
                if epoch not in self._orders:
                    key = stream_seed(self._seed, "data", epoch)
                    # A batch reaches into two epochs; older permutations are never asked for again.
                    self._orders = {e: order for e, order in self._orders.items() if e == epoch - 1}
                    order = _random.permutation(self._number, torch.Generator().manual_seed(key))
                    self._orders[epoch] = order
                parts.append(self._orders[epoch][start : min(start + left, self._number)])
                left, epoch, start = left - len(parts[-1]), epoch + 1, 0
            places = parts[0] if len(parts) == 1 else torch.cat(parts)
        return places if self._weighted_rows is None else self._weighted_rows[places]

    def put_on(self, device: torch.device, most: int) -> Tensor | None:
        """Returns all rows on a device, (rows, width), where they take at most so many bytes there.

        As floats where these fit, which are gathered at once, else in the type that they have in memory. None
        where they do not fit or do not lie in memory. Rows that lie there already need no more room.
        """
        rows = self.tensor
        if rows is None:
            return None
        for dtype in (self._rows.dtype, rows.dtype):
            there = rows.device == device and rows.dtype is dtype
            if there or rows.numel() * dtype.itemsize <= most:
                return rows.to(device=device, dtype=dtype)
        return None

    def write(self, step: int, batch: Tensor) -> None:
        """Writes the rows of the update after ``step`` earlier ones into a tensor on the host."""
        rows = self.tensor
        if rows is not None and rows.dtype is batch.dtype and rows.device == batch.device:
            torch.index_select(rows, 0, self.indices(step), out=batch)
        else:
            batch.copy_(self.take(step).v)

    def updates(self, epochs: int) -> int:
        """Returns the least number of updates that shows every row ``epochs`` times."""
        return -(-epochs * self._number // self.size)

    def epoch(self, step: int) -> int:
        """Returns the epochs completed after ``step`` updates."""
        return step * self.size // self._number

    def identity(self) -> dict[str, Any]:
        """Returns the entries by which the data are recognised on resuming."""
        # The first, the middle and the last row are enough to tell one data set from another.
        some = self._rows.take(torch.tensor([0, len(self._rows) // 2, len(self._rows) - 1])).double()
        weights = self._given_weights
        return {
            "X": [len(self._rows), self._rows.width, digest(some)],
            "weights": None if weights is None else digest(weights),
        }

    def close(self) -> None:
        """Ends what reads ahead."""
        if self._reader is not None:
            self._reader.shutdown(cancel_futures=True)


def check_rows(machine: BoltzmannMachine, rows: Rows, name: str) -> bool:
    """Refuses rows of another width and, for data in memory, entries outside the support.

    Data in a file are left to ``BoltzmannMachine.check_batch``, as a whole pass over them may take long. Rows
    that were found in the support of these units before, such as by a machine's start, are not read.

    Returns:
        Whether all entries are known to be observed.
    """
    width = machine.visible_width
    if rows.width != width:
        raise ValueError(
            f"{name}: expected {width} columns, one for each visible unit, received {rows.width}"
        )
    if rows.support == machine.support:
        return rows.observed
    if not rows.in_memory:
        return False
    observed, start = True, 0
    for chunk in rows.chunks(max(1, _CHUNK // rows.width)):
        machine.check_batch(chunk, range(start, start + len(chunk)), name)
        observed = observed and _checks.observed(chunk)
        start += len(chunk)
    rows.support, rows.observed = machine.support, observed
    return observed


def digest(x: Tensor) -> int:
    """Returns a checksum of all numbers of a tensor of any shape."""
    return zlib.crc32(x.cpu().contiguous().numpy().tobytes())
