"""Checks of what an estimator is given: rows, their weights, and labels."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data
from torch import Tensor

from harmonium import _checks
from harmonium._fetch import is_sparse
from harmonium.data import DataSet, Frame, frame_of, is_frame
from harmonium.data.frame import differ_in_kind, of_whole_numbers
from harmonium.tables import ColumnCodec, Labels, Table, blank_rows, warn_of_blank

Array = NDArray[Any]


def validated(estimator: Any, X: Any, *, reset: bool = False, sparse: bool = True) -> Any:
    """Returns the rows that an estimator is given, checked as scikit-learn does.

    A ``Frame`` where a table stands between rows and machine: for data frames, text and objects, kinds by
    column, and arrays whose columns differ in kind. Else an array or CSR matrix of numbers. A missing cell
    is NaN or None in either. ``reset``: names and number of columns are taken from X.
    """
    of_mappings = isinstance(X, (list, tuple)) and len(X) > 0 and isinstance(X[0], Mapping)
    if of_mappings or (isinstance(X, (DataSet, str, PathLike, Mapping)) and not is_sparse(X)):
        raise TypeError(
            f"X: expected a data frame, an array or a sparse matrix, received a {type(X).__name__}; "
            "pandas.read_csv reads a file, pandas.DataFrame takes a mapping or a list of such, "
            "a DataSet has rows as .samples"
        )
    if isinstance(X, (list, tuple)) and (objects := np.asarray(X, dtype=object)).ndim == 2:
        X = objects if any(isinstance(cell, (str, type(None))) for cell in objects.flat) else X
    by_table = isinstance(estimator.visible, Mapping) if reset else isinstance(estimator.encoder_, Table)
    if is_frame(X):
        frame = frame_of(X)
        if not (isinstance(X, np.ndarray) and frame.numeric and not by_table):
            validate_data(estimator, X, reset=reset, skip_check_array=True)
            return frame if by_table or reset else frame.numbers()
        X = frame.numbers()
    X = validate_data(
        estimator, X, reset=reset, accept_sparse="csr" if sparse else False, ensure_all_finite="allow-nan"
    )
    chosen = reset and estimator.visible == "auto" and not is_sparse(X)
    if by_table or (chosen and differ_in_kind(X)):
        return frame_of(X.toarray() if is_sparse(X) else X)
    return X


def learned(
    estimator: Any, X: Any, weights: Tensor | None, earlier: Any = None
) -> tuple[Any, Array | slice, Tensor | None]:
    """Returns the rows to learn from: those with a weight above 0 and a cell that is not missing.

    Beside them are their index, or a slice of all, and their weights. A warning tells blank rows.
    """
    counts = np.ones(X.shape[0], dtype=bool) if weights is None else (weights > 0).numpy()
    blank = counts & blank_rows(X, None if earlier is None else earlier.codec.encoder, estimator.visible)
    if (blank == counts).all():
        raise ValueError("X: expected a row to learn from, every cell of every row is missing (NaN)")
    if blank.any():
        warn_of_blank(blank, "X")
    elif counts.all():
        return X, slice(None), weights
    index = np.flatnonzero(counts & ~blank)
    return taken(X, index), index, None if weights is None else weights[torch.from_numpy(index)]


def taken(X: Any, index: Array) -> Any:
    """Returns some of validated rows."""
    return X.take(index) if isinstance(X, Frame) else X[index]


def dtype_of(X: Any) -> Any:
    """Returns float32 for float32 rows, else float64."""
    return np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64


def take_tables(tags: Tags) -> Tags:
    """Returns tags that tell scikit-learn of missing cells and text, and that float32 stays float32."""
    tags.input_tags.allow_nan = tags.input_tags.string = True
    if tags.transformer_tags is not None:
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
    return tags


# Columns


def rows_given(estimator: Any, given: Any, times: int) -> Any:
    """Returns validated rows of the cells that are given, the others missing, each so many times in a row.

    They are a frame, a mapping from columns to a cell for all rows or to one for each, or an array with NaN.
    """
    table = estimator.encoder_
    if isinstance(table, Table) and (isinstance(given, Mapping) or is_frame(given)):
        if isinstance(given, Mapping):
            for name in given.keys() & {left.name for left in table.unlearned_columns}:
                raise ValueError(f"given: expected columns that are learned, received {name!r}, left out")
        else:
            given = {cells.name: cells.values.tolist() for cells in frame_of(given).columns}
        X: Any = table.frame_of_cells(given)
        table.encode(X, strict=True)
    elif isinstance(given, Mapping):
        X = np.full((max(map(np.size, given.values()), default=1), estimator.n_features_in_), np.nan)
        for j, x in given.items():
            if j not in range(X.shape[1]):
                raise ValueError(f"given: expected columns 0 to {X.shape[1] - 1}, received {j!r}")
            X[:, j] = x
    else:
        X = validated(estimator, given, sparse=False)
    return taken(X, np.repeat(np.arange(X.shape[0]), times))


# Labels


def observed_labels(y: Any, missing_label: Any) -> tuple[Array, Array]:
    """Returns the labels that are there, (observed,), and of which rows they are, (rows,) bool.

    Missing are NaN, None, pandas' NA and ``missing_label``. Real numbers, whole ones beyond 2^53, text beside
    numbers and labels of another kind, such as dates, are refused.
    """
    if getattr(y, "shape", (0,))[1:] == (1,) and hasattr(y, "columns"):
        y = y[y.columns[0]]
    of_library = hasattr(y, "to_list") and not isinstance(y.dtype, np.dtype)
    if of_library or (isinstance(y, list | tuple) and any(map(_missing, y))):
        y = np.array([*y], dtype=object)  # NumPy makes text of NaN beside text, and scikit-learn 1.0 of True
    y = column_or_1d(y, warn=True)
    named = missing_label is not None
    there = ~np.array([_missing(value) or (named and value == missing_label) for value in y.tolist()])
    if not there.any():
        raise ValueError(f"y: expected a label in at least one row, received {len(y)} missing ones")
    labels = y[there]
    if labels.dtype == object:
        texts = {isinstance(value, str) for value in labels}
        if len(texts) > 1:
            raise TypeError("y: expected labels that are all text or all numbers, received both")
        labels = labels if texts == {True} else np.asarray(labels.tolist())
    if labels.dtype.kind not in ("OUTbiuf" if isinstance(labels[0], str) else "biuf"):
        raise TypeError(
            f"y: expected text, numbers or booleans, received {labels[0]!r}; .astype(str) makes text of it"
        )
    if labels.dtype.kind in "iu" and max(abs(int(labels.min())), abs(int(labels.max()))) >= 2**53:
        raise ValueError(
            f"y: expected whole numbers below 2^53, received {labels.max()}; .astype(str) makes text of it"
        )
    check_classification_targets(labels)
    return labels, there


def one_hot(labels: Array, there: Array, classes: Array, name: str = "y") -> Tensor:
    """Returns states of a label layer, (rows, classes), float64: NaN where the label is missing."""
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        received = labels[unknown].tolist()[0]
        raise ValueError(f"{name}: expected the classes {classes.tolist()}, received {received!r}")
    states = torch.full((len(there), len(classes)), torch.nan, dtype=torch.float64, device="cpu")
    states[torch.from_numpy(there)] = torch.from_numpy(labels[:, None] == classes).double()
    return states


def column_of(classes: Array) -> ColumnCodec:
    """Returns the classes as a column of a table, which a machine's metadata keep."""
    values = [float(x) if isinstance(x, int) and not isinstance(x, bool) else x for x in classes.tolist()]
    return Labels(name="label", dtype=str(classes.dtype), kind="categorical", values=tuple(values))


def classes_of(description: Any) -> Array:
    """Returns the classes of a column that a machine's metadata have."""
    _checks.instance(description, "label", Mapping, "the description of a column")
    column = ColumnCodec.from_dict(description)
    classes = np.array(column.values)
    try:
        return classes.astype(column.dtype)
    except (TypeError, ValueError):  # what another library calls its type
        return classes.astype(np.int64) if of_whole_numbers(column.dtype) else classes


def _missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or bool(value != value)
