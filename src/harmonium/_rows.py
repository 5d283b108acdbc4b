"""One face over data in memory, in a sparse matrix or in a file larger than memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium._fetch import (
    Fetch,
    Index,
    as_tensor,
    is_mapped,
    is_sparse,
    read_array,
    read_file,
    read_sparse,
    read_tensor,
)

# The elements that one chunk of a whole pass holds: 8 MB in float64.
_CHUNK = 1 << 20


@final
class Moments:
    """Mean and variance of columns, from blocks of rows one after the other.

    Merged as by Chan, Golub and LeVeque (1983), equations 2.1, with weights for counts. NaN is not observed.
    """

    def __init__(self) -> None:
        self._origin: Tensor | None = None

    def add(self, chunk: Tensor, weights: Tensor | None = None) -> None:
        """Adds rows, (rows, width) float64, with their weights, (rows,), at least 0."""
        if self._origin is None:
            # Measured from its first entry, a constant column is exactly zero and stays so.
            self._origin = torch.full_like(chunk[0], math.nan)
            self._seen, self._mean, self._squares = (torch.zeros_like(chunk[0]) for _ in range(3))
        count = (~chunk.isnan()).double()
        first = chunk.gather(0, count.argmax(0, keepdim=True))[0]
        self._origin = torch.where(self._origin.isnan(), first, self._origin)
        if weights is not None:
            count *= weights.to(count).unsqueeze(1)
        chunk = (chunk - self._origin).nan_to_num_(nan=0.0)
        added = count.sum(0)
        total = self._seen + added
        chunk_mean = (count * chunk).sum(0) / added.where(added > 0, 1.0)
        step = chunk_mean - self._mean
        share = added / total.where(total > 0, 1.0)
        self._squares += (count * (chunk - chunk_mean).square_()).sum(0) + step.square() * (
            self._seen * share
        )
        self._mean += step * share
        self._seen = total

    def result(self) -> tuple[Tensor, Tensor]:
        """Returns mean and variance, both (width,); NaN for a column that was never observed."""
        assert self._origin is not None
        return (self._mean + self._origin).where(self._seen > 0, math.nan), self._squares / self._seen


class Rows:
    """Rows of a matrix as floating tensors, a batch at a time, wherever the matrix lives.

    Only what is asked for is converted: a memory map is never copied, integers are never kept as floats.
    Make one with :meth:`of`. With ``keep`` the first whole pass keeps what ``fetch`` makes of data in memory,
    so that no other makes it again; ``shown`` is the number of leading columns of which every row has to have
    one that is not NaN, 0 where a row may be blank.

    Attributes:
        width: number of columns.
        dtype: Type of the tensors returned.
        in_memory: False for memory maps and h5py datasets.
        tensor: all rows where they lie in memory, in the type that they have there; None where torch has no
            such type, or they are made row by row (sparse matrices, encoded rows, files).
        missing: whether NaN is allowed, as an entry that was not observed.
        support: the units whose support all rows were found in, in words; None: nobody has looked.
        observed: whether all entries were found to be observed.
    """

    def __init__(
        self,
        X: Any,
        fetch: Fetch,
        in_memory: bool,
        dtype: torch.dtype = torch.float32,
        name: str = "X",
        width: int | None = None,
        missing: bool = False,
        *,
        keep: bool = False,
        shown: int = 0,
    ) -> None:
        self._X = X
        self.tensor = as_tensor(X) if fetch in (read_tensor, read_array) else None
        self._fetch = fetch
        self._name = name
        self._length, columns = (int(side) for side in X.shape)
        self.width = columns if width is None else width
        self.in_memory = in_memory
        self.dtype = dtype
        self.missing = missing
        self.support: tuple[str, ...] | None = None
        self.observed = False
        self._keep, self._shown, self._mapped = keep and in_memory, shown, False
        self._block = max(1, _CHUNK // self.width)  # rows of one block of a whole pass

    @classmethod
    def of(
        cls,
        X: Any,
        dtype: torch.dtype = torch.float32,
        name: str = "X",
        *,
        missing: bool = False,
        blank: bool = True,
    ) -> Rows:
        """Check a matrix and wrap it.

        Args:
            X: (rows, columns) numbers or booleans, at least one of each: a NumPy array or memory map, a dense
                torch tensor (batches stay on its device), a scipy sparse matrix (converted once to CSR), an
                h5py dataset (whose file must stay open), or rows already wrapped.
            dtype: floating dtype of the tensors returned.
            name: what error messages call ``X``.
            missing: whether NaN is allowed, as an entry that was not observed.
            blank: whether a row may consist of NaN alone.

        Raises:
            TypeError: another type of object, a dtype that is not numeric, or ``dtype`` not floating.
            ValueError: not two-dimensional, or no rows or no columns.
        """
        if not dtype.is_floating_point:
            raise TypeError(f"dtype: expected a floating dtype, received {dtype}")
        if isinstance(X, Rows):
            return X._copy(dtype, name, missing)
        fetch: Fetch
        in_memory = True
        if is_sparse(X):
            fetch = read_sparse
        elif type(X).__module__.partition(".")[0] == "h5py":
            fetch, in_memory = read_file, False
        elif isinstance(X, Tensor):
            fetch = read_tensor
        elif isinstance(X, np.ndarray):
            in_memory = not is_mapped(X)
            fetch = read_array if in_memory else read_file
        else:
            frames = "; estimators take frames, and hm.tables.Table makes arrays of them"
            raise TypeError(
                f"{name}: expected a numpy array, torch tensor, scipy sparse matrix, memory map or h5py "
                f"dataset, received {type(X).__name__}{frames if hasattr(X, 'columns') else ''}"
            )
        if isinstance(X, (Tensor, np.ndarray)):
            _checks.numeric(X, name)
        elif getattr(getattr(X, "dtype", None), "kind", None) not in tuple("biuf"):
            received = getattr(X, "dtype", type(X).__name__)
            raise TypeError(f"{name}: expected a numeric or boolean dtype, received {received}")
        if len(X.shape) != 2 or 0 in X.shape:
            raise ValueError(
                f"{name}: expected two dimensions (rows, columns), at least one row and one column, received "
                f"shape {tuple(X.shape)}"
            )
        if is_sparse(X):
            X = X.tocsr()
        elif isinstance(X, Tensor):
            X = X.detach()
        return cls(X, fetch, in_memory, dtype, name, missing=missing, shown=0 if blank else X.shape[1])

    def __len__(self) -> int:
        return self._length

    def take(self, indices: Tensor, *, checked: bool = False) -> Tensor:
        """The rows at ``indices``, in that order, repetitions included.

        Args:
            indices: (k,) int64, each in [0, len(self)).
            checked: whether these rows were looked at before, and are not looked at for infinities again.

        Returns:
            (k, width) of ``dtype``, a fresh tensor.

        Raises:
            TypeError: indices of another type or shape.
            ValueError: indices out of range, or a row that holds infinity, or NaN unless ``missing``.
        """
        if not isinstance(indices, Tensor) or indices.dtype != torch.int64 or indices.ndim != 1:
            received = (
                f"{indices.dtype} of shape {tuple(indices.shape)}"
                if isinstance(indices, Tensor)
                else type(indices).__name__
            )
            raise TypeError(f"indices: expected a tensor (k,) of torch.int64, received {received}")
        positions = indices.cpu().numpy()
        if positions.size and not (positions.min() >= 0 and positions.max() < self._length):
            raise ValueError(
                f"indices: expected values in [0, {self._length}), "
                f"received {positions.min()} to {positions.max()}"
            )
        batch = _checks.tensor(self._fetch(self._X, positions), self._name, self.dtype)
        return batch if checked else self._checked(batch, positions)

    def spread(self, most: int, *, whole: bool = False) -> Tensor:
        """Returns the indices of at most so many rows, evenly spaced as data are often sorted, (k,) int64.

        Args:
            most: how many at most, at least 1.
            whole: whether to leave out rows with a missing entry.
        """
        index = torch.arange(len(self), device="cpu")
        if whole and self.missing:
            index = index[torch.cat([~v.isnan().any(1).cpu() for v in self.chunks(self._block)])]
        if len(index) <= most:
            return index
        return index[torch.linspace(0, len(index) - 1, most, dtype=torch.float64, device="cpu").long()]

    def all(self) -> Tensor:
        """Returns all rows, (rows, width), a fresh tensor.

        Raises:
            ValueError: as ``take``.
        """
        return next(self.chunks(self._length))

    def _copy(self, dtype: torch.dtype, name: str, missing: bool) -> Rows:
        rows = copy(self)
        rows._name, rows.missing = name, missing
        if dtype != self.dtype or not (missing or self.observed):
            rows.dtype, rows.support = dtype, None
        return rows

    def map(
        self, make: Callable[[Any, Index], Any], width: int, *, keep: bool = False, shown: int = 0
    ) -> Rows:
        """Returns the rows that a function makes of blocks of these.

        Args:
            make: takes some rows, as they lie, and their index; returns an array or tensor, (rows, width).
            width: columns of what it makes.
            keep: whether the first whole pass keeps what it makes, of rows in memory.
            shown: leading columns of which every row has to have one that is not NaN; 0: a row may be blank.
        """
        fetch, about = self._fetch, (self.in_memory, self.dtype, self._name, width, self.missing)
        rows = Rows(self._X, lambda X, i: make(fetch(X, i), i), *about, keep=keep, shown=shown)
        rows._mapped = True
        return rows

    def chunks(self, size: int) -> Iterator[Tensor]:
        """All rows in their order, as fresh tensors of ``size`` rows; the last may be shorter.

        Raises:
            ValueError: a size below 1, or a row that holds infinity, or NaN unless ``missing``.
        """
        if size < 1:
            raise ValueError(f"size: expected at least 1, received {size}")
        return (
            self._checked(_checks.tensor(raw, self._name, self.dtype), span)
            for span, raw in self._pieces(size)
        )

    def mean_variance(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and variance (about it, with the same weights) of each column, both (width,) float64.

        One pass in bounded memory. A constant column has variance exactly zero; a column that was never
        observed has NaN for both.

        Args:
            weights: Row weights, (len(self),), at least 0; None means uniform.

        Raises:
            ValueError: a row that holds infinity, or NaN unless ``missing``.
        """
        moments = Moments()
        for span, _, wide in self.blocks():
            moments.add(wide, None if weights is None else weights[span])
        return moments.result()

    def blocks(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yields all rows in blocks of bounded size, for a whole pass over them.

        Yields:
            Which rows these are; the rows in ``dtype``; and in float64, as they lie, or rounded to ``dtype``
            where ``map`` makes them.

        Raises:
            ValueError: as ``chunks``.
        """
        for span, raw in self._pieces(self._block):
            v = self._checked(_checks.tensor(raw, self._name, self.dtype), span)
            yield span, v, v.double() if self._mapped else _checks.tensor(raw, self._name, torch.float64)

    def _pieces(self, size: int) -> Iterator[tuple[slice, Any]]:
        """Reads all rows, ``size`` at a time, and keeps them where they are to be kept."""
        whole: Tensor | None = None
        for start in range(0, self._length, size):
            span = slice(start, min(start + size, self._length))
            raw = self._fetch(self._X, span)
            if self._keep:
                raw = _checks.tensor(raw, self._name, self.dtype)
                if whole is None:
                    whole = raw.new_empty(self._length, self.width)
                whole[span] = raw
            yield span, raw
        if whole is not None:
            self._X, self.tensor, self._fetch, self._keep = whole, whole, read_tensor, False

    def _checked(self, batch: Tensor, index: Index) -> Tensor:
        # A finite sum rules out NaN and infinity in one cheap pass; an infinite one may be mere overflow.
        if math.isfinite(batch.sum().item()):
            return batch
        wrong = (batch.isinf() if self.missing else ~torch.isfinite(batch)).nonzero()
        if self._shown and not len(wrong):
            refuse_blank(batch[:, : self._shown], self._name, index.start if isinstance(index, slice) else 0)
        if len(wrong):
            i, column = wrong[0].tolist()
            row = index.start + i if isinstance(index, slice) else index[i]
            raise ValueError(
                f"{self._name}: expected finite values in {batch.dtype}, "
                f"received {batch[i, column].item()} at row {row}, column {column}"
            )
        return batch


def refuse_blank(v: Tensor, name: str = "X", start: int = 0) -> Tensor:
    """Returns states, (rows, columns) with NaN where a cell is missing, as they are, each row with a cell.

    Args:
        v: the states.
        name: what the message calls them.
        start: number of the first row.

    Raises:
        ValueError: a row of missing cells only.
    """
    blank = v.isnan().all(1)
    if bool(blank.any()):
        row = start + int(blank.int().argmax())
        raise ValueError(
            f"{name}: expected at least one value in every row, all of row {row} is missing (NaN); drop such "
            "rows"
        )
    return v
