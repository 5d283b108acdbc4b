"""Labels of any kind and the one-hot states of a label layer; a missing label is NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from harmonium import _checks
from harmonium.data.frame import of_whole_numbers
from harmonium.estimators._intake import Array
from harmonium.tables import Column, OneOf


def observed_labels(y: Any, missing_label: Any) -> tuple[Array, NDArray[np.bool_]]:
    """The labels that are there, and of which rows they are.

    Args:
        y: (rows,), text or numbers; NaN, None and pandas' NA are missing.
        missing_label: one more value that says so; None: none.

    Returns:
        (observed,) and (rows,).

    Raises:
        ValueError: labels that are no classes, such as real numbers, whole ones beyond 2^53, or none that is
            there.
        TypeError: text beside numbers, or labels of another kind, such as dates.
    """
    if getattr(y, "shape", (0,))[1:] == (1,) and hasattr(y, "columns"):
        y = y[y.columns[0]]
    of_library = hasattr(y, "to_list") and not isinstance(y.dtype, np.dtype)
    if of_library or (isinstance(y, list | tuple) and any(map(_missing, y))):
        listed = list(y)  # NumPy makes text of NaN beside text, and scikit-learn 1.0 of True
        y = np.empty(len(listed), dtype=object)
        y[:] = listed
    y = column_or_1d(y, warn=True)
    values = y.tolist()
    there = np.fromiter(
        (not (_missing(v) or (missing_label is not None and v == missing_label)) for v in values),
        dtype=bool,
        count=len(values),
    )
    if not there.any():
        raise ValueError(f"y: expected a label in at least one row, received {len(y)} missing ones")
    labels = y[there]
    if labels.dtype == object:
        texts = {isinstance(value, str) for value in labels}
        if len(texts) > 1:
            raise TypeError("y: expected labels that are all text or all numbers, received both")
        if texts == {False}:
            labels = np.asarray(labels.tolist())
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


def one_hot(labels: Array, there: NDArray[np.bool_], classes: Array, name: str = "y") -> Tensor:
    """States of a label layer, (rows, classes), float64: NaN where the label is missing.

    Raises:
        ValueError: a label that is none of the classes.
    """
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        received = labels[unknown].tolist()[0]
        raise ValueError(f"{name}: expected the classes {classes.tolist()}, received {received!r}")
    states = torch.full((len(there), len(classes)), torch.nan, dtype=torch.float64, device="cpu")
    codes = torch.from_numpy(np.searchsorted(classes, labels))
    states[torch.from_numpy(there)] = torch.nn.functional.one_hot(codes, len(classes)).double()
    return states


def column_of(classes: Array) -> Column:
    """The classes as a column of a table, which a machine's metadata keep."""
    values = [float(x) if isinstance(x, int) and not isinstance(x, bool) else x for x in classes.tolist()]
    return Column("label", str(classes.dtype), "categorical", OneOf(tuple(values)))


def classes_of(description: Any) -> Array:
    """The classes of a column that a machine's metadata have.

    Raises:
        TypeError, ValueError: it is none.
    """
    _checks.instance(description, "label", Mapping, "the description of a column")
    column = Column.from_dict(description)
    classes = np.array(column.values)
    try:
        return classes.astype(column.dtype)
    except (TypeError, ValueError):  # what another library calls its type
        return classes.astype(np.int64) if of_whole_numbers(column.dtype) else classes


def _missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or bool(value != value)
