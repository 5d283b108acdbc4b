"""Some columns given others: draws given cells, ln p(rest | given), and what the rest tells of a column."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonium import _checks, tasks
from harmonium.data import Table
from harmonium.data.codings import Labels
from harmonium.data.sheet import Sheet, is_sheet, sheet_of
from harmonium.estimators._generative import Generative
from harmonium.estimators._intake import Array, filled, taken, validated
from harmonium.likelihood.exact import log_weight_of
from harmonium.machine import BoltzmannMachine, Hamiltonian
from harmonium.tasks.impute import by_column, unobserved

_METHODS = ("auto", "exact", "gibbs")
_ROWS = 1024
_CHAINS = 10


class Conditional(Generative):
    """Predictions of some columns given others by a fitted estimator. Abstract."""

    n_features_in_: int

    @abstractmethod
    def _double(self) -> BoltzmannMachine:
        """The machine in float64, a copy."""

    @abstractmethod
    def _log_slopes(self, given: Tensor) -> Tensor:
        """ln |slope| of the encoder, summed over the given units (rows, units) of each row."""

    def predict_column(
        self, X: Any, column: Any, *, method: str = "auto", sweeps: int = 100, random_state: Any = None
    ) -> Array:
        """Returns the most probable label of a column given the rest of each row, or the mean of a number.

        Numbers are counts and reals, labels all else: two values, categories. Means are not rounded.

        Args:
            X: (rows, columns) as in ``fit``; the column's own cells are not read and may be missing, and a
                frame need not have the column.
            column: its name, or its number.
            method: "exact", for discrete columns: p(value | rest) by enumeration of the column's values, and
                of what else the row lacks. "gibbs": by ten chains given the rest, which differ from that by
                their error. "auto": "exact" for a discrete column where a row lacks nothing else and no
                hidden layers are joined, else "gibbs".
            sweeps: of every chain, at least 2.
            random_state: int, ``RandomState``, or None for that of the estimator.

        Returns:
            (rows,), in the units of the data.

        Raises:
            ValueError: no such column, other columns than in ``fit``, "exact" for a real column or more
                than 2^26 states, or an encoder that makes several units of a column.
        """
        check_is_fitted(self)
        _checks.one_of(method, "method", _METHODS)
        self._require_density("predict_column")
        j = self._column_number(column, "column")
        if self._ends[-1] != self.n_features_in_:
            raise ValueError(
                f"column: expected a machine with a unit for each column, received {column!r} for one with "
                "several, such as bit-planes; impute(X) and sample(given=...) take it"
            )
        machine, v = self.machine_, self._visible(self._around(X, column))
        place = next(place for place, end in enumerate(self._ends) if j < end)
        layer, l = self._data_layers[place], machine.visible[place]
        if method == "exact" and not layer.discrete:
            raise ValueError(
                f'method: expected "gibbs" or "auto" for column {column!r} of real numbers, whose mean is '
                'drawn by chains; received "exact"'
            )
        unit = torch.arange(unobserved(machine, v).shape[1], device=v.device) == j
        hole = by_column(machine, unit.unsqueeze(0), 1)[0].to(v.device)
        known = self.encoder_.columns[j] if isinstance(self.encoder_, Table) else None
        number = not (layer.two_values or layer.width > layer.n_units)
        if known is not None:
            number = not isinstance(known.coding, Labels)
        chains: dict[str, Any] = {"sweeps": sweeps, "seed": self._generator(random_state, "impute")}
        if layer.discrete:
            exact = (~v.isnan() | hole).all(1) & machine.graph.independent
            exact = exact & (method != "gibbs") | (method == "exact")
            asked = {"layer": l, "unit": j - (self._ends[place] - layer.n_units)}
            p = v.new_empty(len(v), len(layer.values()))
            for rows, how in ((exact, "exact"), (~exact, "gibbs")):
                if bool(rows.any()):
                    p[rows] = tasks.predict(machine, v[rows], method=how, **asked, **chains)[:, 0].to(v)
            values = layer.values().to(v)
            states = p @ values if number else values[p.argmax(1)]
        else:
            missing = unobserved(machine, v) | unit
            done = tasks.impute(machine, v.to(machine.dtype), missing, draws=_CHAINS, **chains)
            states = done.mean[:, hole].to(v)
        if known is not None:
            coded = states.cpu().numpy()
            told: Array = known.coding.decode(coded) if number else known.decode(coded)
            return told
        rows = self._rows(v.masked_scatter(hole.expand_as(v), states))
        return rows[:, j]  # type: ignore[no-any-return]

    def _around(self, X: Any, column: Any) -> Any:
        """Validated rows, of which a frame may lack the column."""
        if isinstance(self.encoder_, Table) and is_sheet(X):
            sheet = sheet_of(X)
            if {cells.name for cells in sheet.columns} == set(self.encoder_.names) - {column}:
                return self.encoder_.given(_by_name(sheet))
        return validated(self, X, reset=False, sparse=False)

    @property
    def _ends(self) -> list[int]:
        """Units up to the end of each of the data's layers."""
        ends: list[int] = np.cumsum([layer.n_units for layer in self._data_layers]).tolist()
        return ends

    # Given cells
    # ----------------------------------------------------------------------------

    def _given(self, given: Any, times: int) -> tuple[Any, Tensor]:
        """Converts the given columns of some rows to validated rows and to visible states in float64.

        Args:
            given: a frame, or a mapping from columns to a cell for all rows or to one for each; a column that
                is not there, and a missing cell, is not given. Where there are no names also an array (rows,
                columns) with NaN.
            times: repetitions of each row, at least 1, one after the other.

        Returns:
            Rows with missing cells where nothing is given, and states with NaN there.

        Raises:
            TypeError, ValueError: columns that are not there, or cells that the units do not take.
        """
        if isinstance(self.encoder_, Table) and (isinstance(given, Mapping) or is_sheet(given)):
            X: Any = self.encoder_.given(given if isinstance(given, Mapping) else _by_name(sheet_of(given)))
        elif isinstance(given, Mapping):
            listed = {self._column_number(j, "given"): np.atleast_1d(x) for j, x in given.items()}
            X = np.full((max(map(len, listed.values()), default=1), self.n_features_in_), np.nan)
            for j, x in listed.items():
                X[:, j] = x
        else:
            X = validated(self, given, reset=False, sparse=False)
        X = taken(X, np.repeat(np.arange(X.shape[0]), times))
        return X, self._visible(X)

    def _drawn_rows(self, v: Tensor, given: Any) -> Any:
        """Visible states as rows in the units of the data, with what is given as it was."""
        return self._rows(v) if given is None else filled(given, self._data(v), self.encoder_)

    def _column_number(self, column: Any, name: str) -> int:
        """The unit of a column that is called by its name, or by its number where there are none."""
        names: list[Any] = list(range(self.n_features_in_))
        if isinstance(self.encoder_, Table):
            names = [known.name for known in self.encoder_.columns]
        elif isinstance(column, str) and hasattr(self, "feature_names_in_"):
            names = list(self.feature_names_in_)
        if np.ndim(column) or column not in names:
            listed = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
            raise ValueError(f"{name}: expected columns among {listed}; received {column!r}")
        return names.index(column)

    def _conditional_scores(self, v: Tensor, given: Iterable[Any]) -> Tensor:
        """ln p(what a row shows of the other columns | what it shows of the given ones), (rows,)."""
        _checks.instance(given, "given", Iterable, "a list of columns")
        if isinstance(given, Mapping) or hasattr(given, "columns"):
            received = type(given).__name__
            raise TypeError(f"given: expected a list of columns, whose cells X has, received a {received}")
        listed = [given] if isinstance(given, str) else list(given)
        chosen = {self._column_number(column, "given") for column in listed}
        if not 0 < len(chosen) < self.n_features_in_:
            received = "none" if not chosen else "all of them"
            raise ValueError(
                f"given: expected some of the {self.n_features_in_} columns but not all, received {received}"
            )
        machine = self._double()
        # A column has one unit, or one in each of the planes that follow each other.
        rest = torch.tensor(
            [j % self.n_features_in_ not in chosen for j in range(self._ends[-1])], device="cpu"
        )
        hole = by_column(machine, rest.unsqueeze(0), 1).to(v.device)
        hamiltonian = machine.hamiltonian()
        try:
            scores = _summed_weights(hamiltonian, v)
            scores = scores - _summed_weights(hamiltonian, v.masked_fill(hole, torch.nan))
        except ValueError as error:
            raise ValueError(
                "given: expected other columns, or else hidden units, of at most 2^26 joint states, as "
                "ln p(rest | given) is exact; give all but a few discrete columns, or draw the rest with "
                "sample(given=…)"
            ) from error
        return scores + self._log_slopes(~unobserved(machine, v) & rest.to(v.device))


def _by_name(sheet: Sheet) -> dict[Any, list[Any]]:
    return {cells.name: cells.values.tolist() for cells in sheet.columns}


@torch.no_grad()
def _summed_weights(hamiltonian: Hamiltonian, v: Tensor) -> Tensor:
    """ln Σ exp(-E) over all that rows do not observe, (rows,), some rows at a time."""
    return torch.cat([log_weight_of(hamiltonian, part) for part in torch.split(v, _ROWS)])
