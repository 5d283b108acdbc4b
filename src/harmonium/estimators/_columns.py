"""Some columns given others: the rows that are given, and what the rest of a row tells of a column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium.data import frame_of, is_frame
from harmonium.data.frame import series_of
from harmonium.estimators._fitted import Fitted
from harmonium.estimators._intake import Array, taken
from harmonium.tables import ColumnCodec, Table
from harmonium.tasks import ColumnPrediction, predict_column

_CHAINS = 10  # of a row that is drawn: the mean is known to a third of a deviation, or better


def column_number(estimator: Any, column: Any, name: str) -> int:
    """Returns the number of a column called by its name, or by its number where there are no names."""
    names: list[Any] = list(range(estimator.n_features_in_))
    if isinstance(estimator.encoder_, Table):
        names = [known.name for known in estimator.encoder_.columns]
    if np.ndim(column) or column not in names:
        listed = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
        close = _checks.close_to(str(column), map(str, names))
        raise ValueError(f"{name}: expected columns among {listed}; received {column!r}{close}")
    return names.index(column)


def rows_around(estimator: Any, X: Any, column: Any) -> Any:
    """Returns validated rows, of which a frame may lack the column."""
    table = estimator.encoder_
    if isinstance(table, Table) and is_frame(X):
        frame = frame_of(X)
        lacking = set(table.names) - {cells.name for cells in frame.columns}
        if column in lacking <= {column, *(each.name for each in table.left_out)}:
            return table.given({cells.name: cells.values.tolist() for cells in frame.columns})
    return estimator._validated(X, sparse=False)


def rows_given(estimator: Any, given: Any, times: int) -> Any:
    """Returns validated rows of the cells that are given, the others missing, each so many times in a row.

    They are a frame, a mapping from columns to a cell for all rows or to one for each, or an array with NaN.
    """
    table = estimator.encoder_
    if isinstance(table, Table) and (isinstance(given, Mapping) or is_frame(given)):
        if isinstance(given, Mapping):
            for name in given.keys() & {each.name for each in table.left_out}:
                raise ValueError(f"given: expected columns that are learned, received {name!r}, left out")
        else:
            given = {cells.name: cells.values.tolist() for cells in frame_of(given).columns}
        X: Any = table.given(given)
        table.encode(X, strict=True)
    elif isinstance(given, Mapping):
        listed = {column_number(estimator, j, "given"): np.atleast_1d(x) for j, x in given.items()}
        X = np.full((max(map(len, listed.values()), default=1), estimator.n_features_in_), np.nan)
        for j, x in listed.items():
            X[:, j] = x
    else:
        X = estimator._validated(given, sparse=False)
    return taken(X, np.repeat(np.arange(X.shape[0]), times))


class ColumnProbabilities(NamedTuple):
    """Probabilities of the labels or counts of a column, given the rest of each row.

    Attributes:
        values: the labels or counts, in the units of the data.
        probabilities: (rows, values), float64; each row sums to 1.
    """

    values: tuple[Any, ...]
    probabilities: Array


def ask(fitted: Fitted, v: Tensor, j: int, method: str, **how: Any) -> ColumnPrediction:
    """Returns the states of a column given the rest of rows, as visible states; see ``predict_column``."""
    known = _column(fitted, j)
    label = None if known is None else bool(known.values)
    about: dict[str, Any] = {"label": label, "chains": _CHAINS, **how}
    return predict_column(fitted.machine, v, *_place(fitted, j), method, **about)


def cells_of(fitted: Fitted, v: Tensor, j: int, states: Tensor, *, rounded: bool = False) -> Array:
    """Returns cells of a column, (rows,), of states of its unit beside those of the others, v."""
    known = _column(fitted, j)
    if known is not None:
        rounded |= bool(known.values)
        cells: Array = known.decode(states.cpu().numpy(), rounded=rounded)
        return cells
    layer, unit = _place(fitted, j)
    split = fitted.machine.split(v.clone())
    fitted.machine.layers[layer].by_unit(split[layer])[:, unit] = states.to(v)
    rows = fitted.decode(torch.cat([split[l] for l in fitted.machine.visible], 1))
    return rows[:, j]  # type: ignore[no-any-return]


def probabilities_of(fitted: Fitted, v: Tensor, j: int, told: ColumnPrediction) -> ColumnProbabilities:
    """Returns the probabilities of all labels or counts of a column; ValueError: it is real."""
    if told.probabilities is None:
        raise ValueError(
            "column: expected one of labels or counts, received one of real numbers; predict_column has "
            "their mean, RBMRegressor quantiles and a density"
        )
    p, known = told.probabilities.cpu().numpy(), _column(fitted, j)
    states = fitted.machine.layers[_place(fitted, j)[0]].values()
    if known is None or not known.values:
        alike = v[:1].nan_to_num(0.0).expand(len(states), -1)
        return ColumnProbabilities(tuple(cells_of(fitted, alike, j, states, rounded=True).tolist()), p)
    labels = series_of(known.name, list(known.values), known.dtype)
    places = (known.encode(labels)[:, None] == states.cpu().numpy()).all(-1).argmax(1)
    return ColumnProbabilities(known.values, p[:, places])


def _column(fitted: Fitted, j: int) -> ColumnCodec | None:
    """Returns a column of a table; None: there is no table."""
    return fitted.encoder.columns[j] if isinstance(fitted.encoder, Table) else None


def _place(fitted: Fitted, j: int) -> tuple[int, int]:
    """Returns the visible layer of a column, and its unit there."""
    for l in fitted.machine.visible:
        if j < (units := fitted.machine.layers[l].n_units):
            break
        j -= units
    return l, j
