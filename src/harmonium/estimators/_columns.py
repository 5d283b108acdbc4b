"""Some columns given others: draws given cells, ln p(rest | given), and what the rest tells of a column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, tasks
from harmonium.data import Frame, frame_of, is_frame
from harmonium.estimators._fitted import Fitted
from harmonium.estimators._intake import Array, taken
from harmonium.sums import LIMIT_TEXT, log_weights
from harmonium.tables import Labels, OneOf, Table
from harmonium.tasks import by_column, unobserved

_CHAINS = 10  # of a row that is drawn: the mean is known to a third of a deviation, or better


def column_number(estimator: Any, column: Any, name: str) -> int:
    """Returns the number of a column called by its name, or by its number where there are no names."""
    names: list[Any] = list(range(estimator.n_features_in_))
    if isinstance(estimator.encoder_, Table):
        names = [known.name for known in estimator.encoder_.columns]
    elif isinstance(column, str) and hasattr(estimator, "feature_names_in_"):
        names = list(estimator.feature_names_in_)
    if np.ndim(column) or column not in names:
        listed = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
        close = _checks.close_to(str(column), map(str, names))
        raise ValueError(f"{name}: expected columns among {listed}; received {column!r}{close}")
    return names.index(column)


def count_learned(fitted: Fitted) -> int:
    """Returns the number of columns that are learned: all but those that a table leaves out."""
    encoder = fitted.encoder
    return len(encoder.columns) if isinstance(encoder, Table) else fitted.n_features


def rows_around(estimator: Any, X: Any, column: Any) -> Any:
    """Returns validated rows, of which a frame may lack the column."""
    table = estimator.encoder_
    if isinstance(table, Table) and is_frame(X):
        frame = frame_of(X)
        lacking = set(table.names) - {cells.name for cells in frame.columns}
        if column in lacking <= {column, *(each.name for each in table.left_out)}:
            return table.given(_by_name(frame))
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
        X: Any = table.given(given if isinstance(given, Mapping) else _by_name(frame_of(given)))
        replace(table, unknown="error").encode(X)
    elif isinstance(given, Mapping):
        listed = {column_number(estimator, j, "given"): np.atleast_1d(x) for j, x in given.items()}
        X = np.full((max(map(len, listed.values()), default=1), estimator.n_features_in_), np.nan)
        for j, x in listed.items():
            X[:, j] = x
    else:
        X = estimator._validated(given, sparse=False)
    return taken(X, np.repeat(np.arange(X.shape[0]), times))


def _by_name(frame: Frame) -> dict[Any, list[Any]]:
    return {cells.name: cells.values.tolist() for cells in frame.columns}


def predict_column(
    fitted: Fitted, v: Tensor, j: int, method: str, sweeps: int, generator: torch.Generator
) -> Array:
    """Returns the most probable label of column j given the rest, or the mean of a number, (rows,).

    ``v`` are visible states, (rows, visible_width), in float64; see ``RBM.predict_column``.
    """
    machine, ends = fitted.machine, fitted.ends
    place = next(place for place, end in enumerate(ends) if j < end)
    layer, unit = machine.visible[place], j - (ends[place] - fitted.data_layers[place].n_units)
    known = fitted.encoder.columns[j] if isinstance(fitted.encoder, Table) else None
    label = None if known is None else isinstance(known.coding, Labels)
    predict = partial(
        tasks.predict_column,
        machine, layer=layer, unit=unit, method=method, label=label, sweeps=sweeps, chains=_CHAINS,
        seed=generator,
    )  # fmt: skip
    made = predict(X=v)
    if known is not None and not label and isinstance(fitted.encoder, Table) and made.method == "exact":
        states = machine.split(torch.full_like(v, torch.nan))
        machine.layers[layer].by_unit(states[layer])[:, unit] = made.states.to(v)
        far = tasks.beyond_seen(fitted.encoder, torch.cat([states[l] for l in machine.visible], 1))
        if bool(far.any()):
            lacking = machine.split(v[far].clone())
            machine.layers[layer].by_unit(lacking[layer])[:, unit] = torch.nan
            rest = torch.cat([lacking[l] for l in machine.visible], 1)
            made.states[far] = predict(X=tasks.without_refuted(machine, fitted.encoder, rest)).states
    if known is not None:
        shared = isinstance(known.coding, OneOf) and known.coding.rare and made.probabilities is not None
        likely = made.probabilities if shared else made.states
        assert likely is not None
        told: Array = known.decode(likely.cpu().numpy(), rounded=bool(label))
        return told
    states = machine.split(v)
    machine.layers[layer].by_unit(states[layer])[:, unit] = made.states.to(v)
    return fitted.decode(torch.cat([states[l] for l in machine.visible], 1))[:, j]  # type: ignore[no-any-return]


def columns_given(estimator: Any, given: Iterable[Any]) -> set[int]:
    """Returns the numbers of the columns in a list of them, which has some but not all."""
    _checks.instance(given, "given", Iterable, "a list of columns")
    if isinstance(given, Mapping) or hasattr(given, "columns"):
        received = type(given).__name__
        raise TypeError(f"given: expected a list of columns, whose cells X has, received a {received}")
    listed = [given] if isinstance(given, str) else list(given)
    chosen = {column_number(estimator, column, "given") for column in listed}
    columns = count_learned(estimator._fitted)
    if not 0 < len(chosen) < columns:
        received = "none" if not chosen else "all of them"
        raise ValueError(f"given: expected some of the {columns} columns but not all, received {received}")
    return chosen


def units_of_rest(fitted: Fitted, chosen: set[int]) -> list[bool]:
    """Marks the units of the data that are not those of chosen columns."""
    # A column has one unit, or one in each of the planes that follow each other.
    columns = count_learned(fitted)
    return [j % columns not in chosen for j in range(fitted.ends[-1])]


def conditional_scores(fitted: Fitted, v: Tensor, units: list[bool]) -> Tensor:
    """Returns ln p(states of these units | of the others), as far as a row shows them, (rows,)."""
    machine = fitted.double()
    rest = torch.tensor(units, device="cpu")
    hole = by_column(machine, rest.unsqueeze(0), 1).to(v.device)
    hamiltonian = machine.hamiltonian()
    try:
        scores = log_weights(hamiltonian, v) - log_weights(hamiltonian, v.masked_fill(hole, torch.nan))
    except ValueError as error:
        raise ValueError(
            f"given: expected other columns, or else hidden units, that take {LIMIT_TEXT}, as "
            "ln p(rest | given) is exact; give all but a few discrete columns, or draw the rest with "
            "sample(given=…)"
        ) from error
    return scores + fitted.log_slopes(~unobserved(machine, v) & rest.to(v.device), v)
