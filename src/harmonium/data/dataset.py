"""What a reader returns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harmonium.data._arrays import Array, is_sparse, refuse_where
from harmonium.data.sheet import TEXT, Cells, Sheet, sheet_of


@dataclass(frozen=True, eq=False)
class DataSet:
    """Samples as rows, with what is known about them.

    Attributes:
        samples: (rows, columns), in the dtype of its file: a NumPy array, a read-only memory map, a scipy CSR
            matrix or an h5py dataset. :class:`harmonium.data.Rows` reads them all alike. Of a table with text
            or empty cells an array of objects, None where a cell is empty, for ``sheet``.
        labels: (rows,) or None.
        image_shape: the shape that one row had before it was flattened, or None.
        name: the file's name, or the built-in name.
        names: of the columns, or None.
    """

    samples: Any
    labels: Array | None
    image_shape: tuple[int, ...] | None
    name: str
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, samples: Any, labels: Any, name: str, names: tuple[str, ...] | None = None) -> DataSet:
        """Flatten samples of any shape (rows, ...) to (rows, columns) and check them against the labels.

        Raises:
            ValueError: no rows or columns, a dtype that is not numeric, or labels that do not fit.
        """
        if samples.dtype.kind not in "biuf" and not (names and samples.dtype.kind == "O"):
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
        if is_sparse(samples):
            samples = samples.tocsr()
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
        return cls(samples, labels, image_shape, name, names)

    def sheet(self) -> Sheet:
        """The columns of cells, by name where they have names.

        Raises:
            TypeError, ValueError: as ``harmonium.data.sheet.sheet_of``.
        """
        dense = self.samples.toarray() if is_sparse(self.samples) else np.asarray(self.samples[()])
        sheet = sheet_of(dense)
        if self.names is None:
            return sheet
        columns = zip(self.names, sheet.columns, dense.T, strict=True)
        return Sheet(tuple(replace(c, name=name, dtype=_dtype(c, own)) for name, c, own in columns), TEXT)


def _dtype(cells: Cells, values: Array) -> str:
    """What the cells of a text file are: whole numbers, others, or text."""
    if not cells.numeric:
        return "str"
    whole = values.dtype.kind == "O" and all(type(value) in (int, type(None)) for value in values)
    return "int64" if whole else "float64"
