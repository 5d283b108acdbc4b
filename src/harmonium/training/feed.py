"""Sources of the batches of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.data import Rows
from harmonium.machine import BoltzmannMachine
from harmonium.training.batches import Batches
from harmonium.training.fingerprint import digest, digest_of_rows
from harmonium.training.stream import Stream
from harmonium.training.support import check_rows


class Batch(NamedTuple):
    """The rows of one update.

    Attributes:
        v: (rows, width), as the data have them.
        weights: of the rows, (rows,); None where all count alike.
        where: which of the data they are.
    """

    v: Tensor
    weights: Tensor | None
    where: Tensor | range


class Feed(ABC):
    """The batches of a run, one an update.

    Attributes:
        checked: whether all data were found in the support of the machine before the first update.
        observed: whether all their entries are known to be observed.
        per_epoch: updates after which every row has been seen; None where nobody knows.
    """

    checked = False
    observed = False
    per_epoch: int | None = None

    @abstractmethod
    def take(self, step: int) -> Batch:
        """The batch of the update that follows ``step`` earlier ones; asked for in their order."""

    @abstractmethod
    def updates(self, epochs: int) -> int:
        """The least number of updates that shows every row ``epochs`` times."""

    @abstractmethod
    def epoch(self, step: int) -> int:
        """Epochs completed after ``step`` updates."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """By what the data are recognised on resuming."""

    @abstractmethod
    def state_dict(self) -> Any:
        """Returns the position in the data beside the step; None where the step determines it."""

    @abstractmethod
    def load_state_dict(self, state: Any) -> None:
        """Goes to where the data were."""

    @abstractmethod
    def close(self) -> None:
        """Ends what reads ahead."""


@final
class RowFeed(Feed):
    """Batches of a matrix. Those of a file are read by a thread while the update before is made.

    Args:
        rows: the matrix.
        weights: of its rows, (rows,); None: all count alike.
        batch_size: rows of a batch.
        seed: of their order.
        checked: whether they are in the support of the machine.
        observed: whether all entries are known to be observed.

    Attributes:
        size: rows of a batch, at most those that there are.
        width: of the rows.
    """

    def __init__(
        self,
        rows: Rows,
        weights: Tensor | None,
        batch_size: int,
        seed: int,
        *,
        checked: bool,
        observed: bool,
    ) -> None:
        self._rows, self._weights = rows, weights
        self._batches = Batches(len(rows), batch_size, seed, weights)
        self._reader = None if rows.in_memory else ThreadPoolExecutor(1, "harmonium-rows")
        self._ahead: tuple[int, Future[Batch]] | None = None
        self.checked, self.observed, self.per_epoch = checked, observed, self._batches.per_epoch
        self.size, self.width = self._batches.size, rows.width

    def take(self, step: int, count: int = 1) -> Batch:
        """Returns the batch of the update that follows ``step`` earlier ones.

        Args:
            step: in their order.
            count: with rows in memory that were checked: so many batches, one after the other.
        """
        if self._rows.tensor is not None and self.checked:
            where = self._batches.indices(step, count)
            v = self._rows.tensor.index_select(0, where.to(self._rows.tensor.device)).to(self._rows.dtype)
            return Batch(v, self._batches.weights(where) if self._weights is not None else None, where)
        if self._reader is None:
            return self._read(step, count)
        if self._ahead is None or self._ahead[0] != step:
            self._ahead = step, self._reader.submit(self._read, step)
        batch = self._ahead[1].result()
        self._ahead = step + 1, self._reader.submit(self._read, step + 1)
        return batch

    def _read(self, step: int, count: int = 1) -> Batch:
        where = self._batches.indices(step, count)
        return Batch(self._rows.take(where, checked=self.checked), self._batches.weights(where), where)

    def updates(self, epochs: int) -> int:
        return self._batches.updates(epochs)

    def epoch(self, step: int) -> int:
        return self._batches.epoch(step)

    def identity(self) -> dict[str, Any]:
        rows = self._rows
        return {
            "X": [len(rows), rows.width, digest_of_rows(rows)],
            "sample_weight": None if self._weights is None else digest(self._weights),
        }

    def state_dict(self) -> Any:
        return None

    def load_state_dict(self, state: Any) -> None:
        if state is not None:
            raise ValueError(
                f"X: expected a stream, as in the run to resume, received {len(self._rows)} rows"
            )

    def close(self) -> None:
        if self._reader is not None:
            self._reader.shutdown(cancel_futures=True)


@final
class StreamFeed(Feed):
    """Batches as a stream has them; one that ends begins again.

    Args:
        stream: what is iterated over.
        dtype: of the rows.
    """

    def __init__(self, stream: Stream, dtype: torch.dtype) -> None:
        self._stream, self._dtype = stream, dtype
        self._begun: Iterator[Any] | None = None
        self._epochs = 0

    def take(self, step: int) -> Batch:
        if self._begun is None:
            self._begun = iter(self._stream)
        try:
            batch = next(self._begun)
        except StopIteration:
            self._begun, self._epochs = iter(self._stream), self._epochs + 1
            batch = next(self._begun, None)
            if batch is None:
                raise ValueError("X: expected a stream of batches, received one without any") from None
        name = f"X (batch of update {step + 1})"
        rows = Rows.of(batch, dtype=self._dtype, name=name, missing=True)
        return Batch(rows.take(torch.arange(len(rows))), None, range(len(rows)))

    def updates(self, epochs: int) -> int:
        raise ValueError("epochs: expected updates with a stream of batches, which does not say its length")

    def epoch(self, step: int) -> int:
        return self._epochs

    def identity(self) -> dict[str, Any]:
        return {"X": type(self._stream).__name__, "sample_weight": None}

    def state_dict(self) -> Any:
        return {"epochs": self._epochs, "stream": self._stream.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        if not isinstance(state, dict) or state.keys() != {"epochs", "stream"}:
            raise ValueError("X: expected rows, as in the run to resume, received a stream")
        self._epochs, self._begun = _checks.positive_int(state["epochs"], "epochs", minimum=0), None
        self._stream.load_state_dict(state["stream"])

    def close(self) -> None:
        pass


def feed_of(
    machine: BoltzmannMachine, X: Any, sample_weight: Any, batch_size: int, seed: int, *, transformed: bool
) -> Feed:
    """The batches of what ``train`` calls X, checked as far as that is cheap.

    Args:
        machine: gives width and dtype.
        X: rows or a stream, as in ``train``.
        sample_weight: of the rows.
        batch_size: rows of a batch, with rows.
        seed: of their order.
        transformed: whether a transform makes states of them later.

    Raises:
        TypeError, ValueError: as ``train``.
    """
    if isinstance(X, Stream):
        if sample_weight is not None:
            raise ValueError("sample_weight: expected None with a stream of batches, received weights")
        return StreamFeed(X, machine.dtype)
    if hasattr(X, "__next__") or hasattr(X, "sampler"):
        raise TypeError(
            f"X: expected rows, or a stream of batches with state_dict() and load_state_dict(), from which a "
            f"run can go on; received {type(X).__name__}, which has no such state"
        )
    rows = Rows.of(X, dtype=machine.dtype, name="X", missing=True)
    weights = _checks.weights(sample_weight, "sample_weight", len(rows))
    observed = False if transformed else check_rows(machine, rows, "X")
    checked = rows.in_memory and not transformed
    return RowFeed(rows, weights, batch_size, seed, checked=checked, observed=observed)
