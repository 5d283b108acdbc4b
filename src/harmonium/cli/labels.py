"""The labels of rows: a column among the others, or what lies beside an array."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from harmonium.data import DataSet
from harmonium.data.column import Column
from harmonium.data.dataset import LABELS
from harmonium.data.sheet import Cells, cells_of


def split_label(dataset: DataSet, name: str, *, needed: bool = True) -> tuple[DataSet, Cells | None]:
    """The data without their labels, and these.

    Args:
        dataset: the data.
        name: of a column; ``label`` or ``labels`` is also what lies beside an array.
        needed: whether their absence is an error; else there is None.

    Raises:
        ValueError: no such labels.
    """
    if dataset.names is not None and name in dataset.names:
        cells = dataset.sheet().columns[dataset.names.index(name)]
        return dataset.without(name), cells
    if name.lower() in LABELS and dataset.labels is not None:
        labels = dataset.labels.astype(str) if dataset.labels.dtype.kind == "S" else dataset.labels
        dtype = "str" if labels.dtype.kind == "U" else str(labels.dtype)
        return replace(dataset, labels=None), cells_of(name, labels.tolist(), dtype)
    if needed:
        columns = "" if dataset.names is None else f"one of the columns {', '.join(map(repr, dataset.names))}"
        beside = "label, for what lies beside the rows" if dataset.labels is not None else ""
        expected = " or ".join(filter(None, (columns, beside))) or "data with labels or names of columns"
        raise ValueError(f"label: expected {expected}, received {name!r}")
    return dataset, None


def fit_label(cells: Cells) -> Column:
    """The column of labels, a unit of one state for each of them.

    Raises:
        ValueError: fewer than two labels, or real numbers.
    """
    seen = cells.values[~cells.missing]
    if cells.numeric and bool(np.any(seen != np.round(seen))):
        raise ValueError(
            f"label: expected classes in column {cells.name!r}, received real numbers such as "
            f"{seen[seen != np.round(seen)][0]:g}; without --label they are learned like any column, and "
            f"harmonium predict --column {cells.name} predicts them"
        )
    if len(set(seen.tolist())) < 2:
        raise ValueError(
            f"label: expected at least two classes in column {cells.name!r}, received {seen[:1].tolist()}; "
            "an empty cell is a missing label"
        )
    return Column.fit(cells, "categorical")
