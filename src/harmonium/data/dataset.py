"""Data as a reader returns them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium._fetch import is_sparse
from harmonium.data.frame import LONG, NUMPY, TEXT, Frame, Series, differ_in_kind, frame_of, series_of
from harmonium.data.transforms import Array, refuse_where
from harmonium.sequences import Alignment, similarity_weights

LABELS = ("label", "labels")
"""Names of columns that are labels."""

_PIXELS = 16  # columns that may be a picture
_LOOKED_AT = 64  # rows that tell that most data have more than two values
_PAIRS = ({0.0, 1.0}, {-1.0, 1.0})  # values of data that are all two-valued


@dataclass(frozen=True, eq=False)
class DataSet:
    """Samples as rows, with what is known about them.

    Attributes:
        samples: (rows, columns), in the dtype of its file: a NumPy array, a read-only memory map, a scipy CSR
            matrix or an h5py dataset. :class:`harmonium.data.Rows` reads them all alike. Of a table with text
            or empty cells an array of objects, None where a cell is empty, for ``frame``.
        labels: (rows,) or None.
        image_shape: the shape that one row had before it was flattened, or None.
        name: the file's name, or the built-in name.
        names: Names of the columns, or None.
        types: Columns without cells by name, of the types that the file has; None: what the cells look like.
        notes: what was found out about a table as it was read, in words.
        read: Arguments of pandas' reader for other files like this one.
        alignment: the sequences whose codes the samples are, as they were read; None of other data.
        other_columns: Columns that stand beside sequences, of which one may be the label.
        weights: Row weights, (rows,) float64, that go with the data (``read_weights``); None: none do.
    """

    samples: Any
    labels: Array | None
    image_shape: tuple[int, ...] | None
    name: str
    names: tuple[str, ...] | None = None
    types: Mapping[str, Series] | None = None
    notes: tuple[str, ...] = ()
    read: Mapping[str, Any] = field(default_factory=dict)
    alignment: Alignment | None = None
    other_columns: tuple[Series, ...] = ()
    weights: Array | None = None

    @classmethod
    def of(cls, samples: Any, labels: Any = None, name: str = "data", **parts: Any) -> DataSet:
        """Flattens samples of any shape (rows, ...) to (rows, columns) and checks them against the labels.

        Raises:
            ValueError: no rows or columns, a dtype that is not numeric, or labels that do not fit.
        """
        if samples.dtype.kind not in ("biufO" if parts.get("names") else "biuf"):
            raise ValueError(f"samples: expected a numeric or boolean dtype, received {samples.dtype}")
        if samples.ndim < 2 or 0 in samples.shape:
            raise ValueError(
                f"samples: expected (rows, columns) or (rows, ...) with at least one of each, "
                f"received shape {tuple(samples.shape)}"
            )
        image_shape = None
        if samples.ndim > 2:
            image_shape = tuple(int(side) for side in samples.shape[1:])
            # An h5py dataset cannot be reshaped in its file, so images stored there are read whole.
            samples = samples if isinstance(samples, np.ndarray) else samples[()]
            samples = samples.reshape(len(samples), math.prod(image_shape))
        samples = samples.tocsr() if is_sparse(samples) else samples
        if labels is not None:
            labels = np.asarray(labels)
            if labels.shape != (samples.shape[0],):
                raise ValueError(
                    f"labels: expected shape ({samples.shape[0]},), one per sample, received {labels.shape}"
                )
            if labels.dtype.kind not in "biufUS":
                raise ValueError(f"labels: expected numbers, booleans or text, received {labels.dtype}")
            if labels.dtype.kind == "f":
                refuse_where(~np.isfinite(labels), labels, "finite numbers", "labels")
        return cls(samples, labels, image_shape, name, **parts)

    @property
    def mixed(self) -> bool:
        """True if columns differ in kind: there is text, or a column of 0 and 1 beside one of fractions."""
        kind = self.samples.dtype.kind
        plain = isinstance(self.samples, np.ndarray) and self.image_shape is None
        return kind == "O" or (plain and kind == "f" and differ_in_kind(self.samples))

    @property
    def tabular(self) -> bool:
        """True if every column has a kind of its own, as in a data frame: they differ in kind, or have names.

        False, whatever the names, where all numbers are 0 and 1, or all are -1 and 1. False for images too:
        16 columns or more whose names differ by their numbers alone.
        """
        alike = Counter(re.sub(r"\d+", "0", name) for name in self.names or ())
        named = 0 < max(alike.values(), default=0) < _PIXELS
        return self.mixed or (named and self.image_shape is None and not _two_valued(self.samples))

    def frame(self) -> Frame:
        """The columns of cells, by name where they have names.

        Raises:
            TypeError, ValueError: as ``harmonium.data.frame.frame_of``.
        """
        cells = dense(self.samples)
        if self.names is None or self.types is None:
            return replace(frame_of(cells, self.names), library=NUMPY if self.names is None else TEXT)
        types = [self.types[name] for name in self.names]  # of cells that were looked at when they were read
        columns = (replace(x, values=cells[:, j].astype(x.values.dtype)) for j, x in enumerate(types))
        return Frame(tuple(columns), TEXT)

    def without(self, name: str) -> DataSet:
        """Returns the other columns than one that is there; ValueError: there is no other."""
        names = self.names or ()
        column = names.index(name)
        rest = names[:column] + names[column + 1 :]
        if not rest:
            raise ValueError(f"name: expected other columns beside {name!r}, received none")
        return replace(self, samples=np.delete(self.samples, column, axis=1), names=rest)

    def matrix(self) -> Any:
        """Returns the samples as numbers, (rows, columns), where they lie.

        Raises:
            ValueError: text among them.
        """
        return self.frame().numbers() if self.samples.dtype.kind == "O" else self.samples

    def numbers(self) -> Array:
        """Returns the samples, dense and in memory, as numbers (rows, columns).

        Raises:
            ValueError: text among them, or whole numbers of which float64 does not keep every digit.
        """
        X: Array = dense(self.samples)
        return self.frame().numbers() if X.dtype.kind == "O" or X.dtype in (np.int64, np.uint64) else X

    def take_label(self, name: str, *, needed: bool = True) -> tuple[DataSet, Series | None]:
        """Returns the data without their labels, and these.

        Args:
            name: Name of a column, or of one beside sequences; ``label`` or ``labels`` is also what lies
                beside an array.
            needed: whether their absence is an error; else there is None.

        Raises:
            ValueError: no such labels.
        """
        if self.names is not None and name in self.names:
            return self.without(name), self.frame().columns[self.names.index(name)]
        matching = [cells for cells in self.other_columns if cells.name == name]
        if matching:
            return replace(self, other_columns=()), matching[0]
        if name.lower() in LABELS and self.labels is not None:
            labels = self.labels.astype(str) if self.labels.dtype.kind == "S" else self.labels
            dtype = "str" if labels.dtype.kind == "U" else str(labels.dtype)
            return replace(self, labels=None), series_of(name, labels.tolist(), dtype)
        if needed:
            known = [*(self.names or ()), *(cells.name for cells in self.other_columns)]
            columns = [f"one of the columns {', '.join(map(repr, known))}"] if known else []
            label_option = ["label, for what lies beside the rows"] if self.labels is not None else []
            expected = " or ".join(columns + label_option) or "data with labels or names of columns"
            raise ValueError(f"label: expected {expected}, received {name!r}")
        return self, None

    def take(self, rows: Array) -> DataSet:
        """Returns some of the rows, by a mask or by their numbers, without what stands beside sequences."""
        labels, weights = (None if part is None else part[rows] for part in (self.labels, self.weights))
        return replace(self, samples=self.samples[rows], labels=labels, other_columns=(), weights=weights)

    def row_weights(self, threshold: float | None = None) -> Tensor | None:
        """Returns how much each row counts, (rows,) float64; None: all alike.

        Args:
            threshold: of ``similarity_weights``, where the data have no weights.

        Raises:
            ValueError: data to compare that are no whole numbers from 0 to 254.
        """
        if self.weights is not None:
            return torch.from_numpy(self.weights)
        if threshold is None:
            return None
        try:
            return similarity_weights(np.nan_to_num(self.numbers(), nan=-1), threshold)
        except ValueError as error:
            raise ValueError(f"{self.name}: {str(error).removeprefix('X: ')}") from error

    def in_order(self, names: Collection[str], needed: Collection[str], source: str) -> DataSet:
        """Returns the data with their columns in the order of some names, of which not all are needed.

        Args:
            names: all that may be there.
            needed: those that have to be there.
            source: what the data are called in a message.

        Raises:
            ValueError: other columns.
        """
        there = self.names or ()
        missed = [f"none called {name!r}" for name in needed if name not in there]
        more = [f"{name!r} beside them" for name in there if name not in names]
        if missed or more:
            raise ValueError(
                f"{source}: expected the columns {', '.join(map(repr, names))} as in training, received "
                f"{(missed + more)[0]}"
            )
        order = [there.index(name) for name in names if name in there]
        return replace(self, samples=self.samples[:, order], names=tuple(there[j] for j in order))

    def with_missing(self, name: str) -> DataSet:
        """Returns the data with one more column, of which every cell is missing."""
        blank = np.full((len(self.samples), 1), None, dtype=object)
        types = {**(self.types or {}), name: Series(name, blank[:0, 0], "Float64")}
        samples = np.hstack([self.samples.astype(object), blank])
        return replace(self, samples=samples, names=(*(self.names or ()), name), types=types)

    def labels_apart(self) -> DataSet:
        """A column named ``label`` or ``labels`` as the labels, where there is one.

        Raises:
            ValueError: two of them, a missing label, or numbers that no integer holds.
        """
        names = self.names or ()
        label_columns = [j for j, name in enumerate(names) if name.lower() in LABELS]
        if len(label_columns) > 1:
            raise ValueError(
                f"expected one column of labels, received columns {[j + 1 for j in label_columns]}"
            )
        if not label_columns:
            return self
        return replace(
            self.without(names[label_columns[0]]), labels=_labels(self.samples[:, label_columns[0]])
        )


def dense(samples: Any) -> Array:
    """Returns samples as one array in memory."""
    array: Array = samples.toarray() if is_sparse(samples) else np.asarray(samples[()])
    return array


def _two_valued(X: Array) -> bool:
    """Returns whether all numbers are 0 and 1, or all are -1 and 1."""
    seen = set(np.unique(X[:_LOOKED_AT]).tolist())
    return any(seen <= pair and bool(np.isin(X, [*pair]).all()) for pair in _PAIRS)


def _labels(labels: Any) -> Any:
    """Labels as text, or as int64 where all are whole numbers."""
    if None in labels.tolist():
        raise ValueError(f"labels: expected one in every row, row {labels.tolist().index(None)} has none")
    labels = np.array(labels.tolist())
    if labels.dtype.kind in "Ub":
        return labels
    labels = labels.astype(np.float64)
    refuse_where(~(np.abs(labels) < LONG), labels, "numbers between -2**53 and 2**53", "labels")  # NaN too
    return labels.astype(np.int64) if (labels == np.round(labels)).all() else labels
