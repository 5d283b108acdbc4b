"""Some columns given others: draws given cells, ln p(rest | given), and what the rest tells of a column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, tasks
from harmonium.data import Frame, frame_of, is_frame
from harmonium.data.frame import series_of
from harmonium.estimators._fitted import Fitted
from harmonium.estimators._intake import Array, taken
from harmonium.sums import LIMIT_TEXT, log_weights
from harmonium.tables import Codec, ColumnCodec, Table
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


class ColumnProbabilities(NamedTuple):
    """Probabilities of the labels or counts of a column, given the rest of each row.

    Attributes:
        values: the labels or counts, in the units of the data.
        probabilities: (rows, values), float64; each row sums to 1.
    """

    values: tuple[Any, ...]
    probabilities: Array


@dataclass(frozen=True)
class Asked:
    """Answers questions on a column given the rest of rows.

    Args:
        fitted: the machine.
        v: visible states, (rows, visible_width), in float64; those of the column are not read.
        j: Number of the column.
        method: see ``RBM.predict_column``.
        sweeps: Sweeps of every chain.
        generator: source of their noise.
    """

    fitted: Fitted
    v: Tensor
    j: int
    method: str
    sweeps: int
    generator: torch.Generator

    @property
    def known(self) -> ColumnCodec | None:
        """The column of a table; None: there is no table."""
        encoder = self.fitted.encoder
        return encoder.columns[self.j] if isinstance(encoder, Table) else None

    @cached_property
    def place(self) -> tuple[int, int]:
        """The visible layer of the column, and its unit there."""
        ends = self.fitted.ends
        place = next(place for place, end in enumerate(ends) if self.j < end)
        unit = self.j - (ends[place] - self.fitted.data_layers[place].n_units)
        return self.fitted.machine.visible[place], unit

    @cached_property
    def told(self) -> tasks.ColumnPrediction:
        """Its states: the most probable of a label, the mean of a number; and probabilities of all."""
        known = self.known
        label = None if known is None else bool(known.values)
        return tasks.predict_column(
            self.fitted.machine,
            self.v,
            *self.place,
            self.method,
            label=label,
            sweeps=self.sweeps,
            chains=_CHAINS,
            seed=self.generator,
        )

    def predict(self) -> Array:
        """Returns the most probable label of the column, or the mean of a number, (rows,)."""
        if (known := self.known) is not None:
            rounded = bool(known.values)
            cells: Array = known.decode(self.told.states.cpu().numpy(), rounded=rounded)
            return cells
        return self._decode(self.v, self.told.states)

    def probabilities(self) -> ColumnProbabilities:
        """Returns the probabilities of all labels or counts of the column; ValueError: it is real."""
        if self.told.probabilities is None:
            raise ValueError(
                "column: expected one of labels or counts, received one of real numbers; predict_column has "
                "their mean, RBMRegressor quantiles and a density"
            )
        p = self.told.probabilities.cpu().numpy()
        layer, _ = self.place
        states = self.fitted.machine.layers[layer].values()
        known = self.known
        if known is None:
            alike = self.v[:1].nan_to_num(0.0).expand(len(states), -1)
            return ColumnProbabilities(tuple(self._decode(alike, states).tolist()), p)
        if not bool(known.values):
            cells = known.decode(states.cpu().numpy())
            return ColumnProbabilities(tuple(cells.tolist()), p)
        labels = series_of(known.name, list(known.labels), known.dtype)
        places = (known.encode(labels)[:, None] == states.cpu().numpy()).all(-1).argmax(1)
        p = p[:, places] * np.exp(known.log_shares(labels))
        return ColumnProbabilities(tuple(known.labels), p / p.sum(1, keepdims=True))

    def _decode(self, v: Tensor, states: Tensor) -> Array:
        """Returns cells of the column, (rows,), where there is no table."""
        machine, (layer, unit) = self.fitted.machine, self.place
        split = machine.split(v.clone())
        machine.layers[layer].by_unit(split[layer])[:, unit] = states.to(v)
        rows = self.fitted.decode(torch.cat([split[l] for l in machine.visible], 1))
        return rows[:, self.j]  # type: ignore[no-any-return]


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


def hide_units(fitted: Fitted, v: Tensor, units: list[bool]) -> Tensor:
    """Returns states without these units, the others as they tell of them (``Codec.within``)."""
    hole = by_column(fitted.machine, torch.tensor(units, device="cpu").unsqueeze(0), 1)
    return Codec(fitted.encoder, fitted.data_layers).within(v).masked_fill(hole.to(v.device), torch.nan)


def conditional_scores(fitted: Fitted, v: Tensor, units: list[bool]) -> Tensor:
    """Returns ln p(states of these units | of the others), as far as a row shows them, (rows,)."""
    machine = fitted.double()
    rest = torch.tensor(units, device="cpu")
    hamiltonian = machine.hamiltonian()
    known = hide_units(fitted, v, units)
    v = torch.where(known.isnan(), v, known)
    try:
        scores = log_weights(hamiltonian, v) - log_weights(hamiltonian, known)
    except ValueError as error:
        raise ValueError(
            f"given: expected other columns, or else hidden units, that take {LIMIT_TEXT}, as "
            "ln p(rest | given) is exact; give all but a few discrete columns, or draw the rest with "
            "sample(given=…)"
        ) from error
    return scores + fitted.log_slopes(~unobserved(machine, v) & rest.to(v.device), v)
