"""Tables: columns of several kinds, names and missing cells, as the states of a machine's visible layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import groupby
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium.data import Encoder, Frame, Series, build, frame_of, question_of
from harmonium.data.frame import NUMPY, TEXT, series_of
from harmonium.data.transforms import Array
from harmonium.layers import Layer
from harmonium.machine import BoltzmannMachine
from harmonium.sums import HiddenStates, has_hidden_states, nothing_seen
from harmonium.tables.cells import few, shown
from harmonium.tables.column import IGNORE, ColumnCodec, chosen_kinds, kind_of
from harmonium.tables.constant import Constant
from harmonium.tables.kinds import without_unit
from harmonium.tables.quantiles import Quantiles

NEW_CELLS = "X: values never seen in training"
"""The beginning of the warning that cells are taken as missing."""
_NODES = 32  # of an integral over the states of a number: a component of a tenth of a deviation is still seen


@final
@dataclass(frozen=True)
class Table(Encoder):
    """Maps the rows of a table to states of visible units and back, by its columns.

    A row has one unit for each column that is learned. Those of a kind, and of as many states, stand side by
    side and make one layer (``layers``), wherever they stand in the table. Make one with :meth:`fit`.

    Args:
        all_columns: as the table has them, of different names. Of those of kind ``IGNORE`` nothing is learned
            or read, and a table may lack them. Given cells stay as they are; others come back as the column's
            only value, or missing.
        library: what ``decode`` makes: a frame of "pandas", "polars" or another library that narwhals knows,
            or with "numpy" an array.

    Attributes:
        columns: those with a unit, at least one, in the order of their units.
        width: Columns of the states.

    Raises:
        TypeError, ValueError: something else.
    """

    tabular: ClassVar[bool] = True
    all_columns: tuple[ColumnCodec, ...]
    library: str = NUMPY
    columns: tuple[ColumnCodec, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        every = tuple(self.all_columns)
        if not all(isinstance(column, ColumnCodec) for column in every):
            raise TypeError("columns: expected codecs of columns, received something else")
        learned = [column for column in every if column.learned]
        if not learned:
            raise TypeError("columns: expected at least one with a unit, received none")
        looks = [_look(column) for column in learned]
        object.__setattr__(self, "all_columns", every)
        in_order = sorted(learned, key=lambda column: looks.index(_look(column)))
        object.__setattr__(self, "columns", tuple(in_order))
        object.__setattr__(self, "width", sum(column.width for column in learned))
        if len(set(self.names)) < len(every):
            raise ValueError(f"columns: expected different names, received {list(self.names)}")

    @classmethod
    def fit(
        cls,
        X: Any,
        kinds: str | Mapping[Any, str | Mapping[str, Any]] | None = None,
        *,
        weights: Any = None,
    ) -> Self:
        """Looks at each column of a table.

        Without a kind a column of two values is Bernoulli; of text and categories Categorical; of few
        repeated numbers (at most 10, each in five rows on average) Binomial; of other numbers, dates
        and times Gaussian, or with many exact zeros truncated Gauss-Bernoulli.
        Columns of one value or none, of row numbers, and of text that hardly repeats are left out, with a
        warning that names them all.

        Args:
            X: a data frame of pandas, polars or whatever narwhals knows, or an array (rows, columns) of
                numbers, objects or text; None, NaN, pandas.NA, NaT and, in arrays, empty text are missing.
            kinds: Kinds of columns, by name (by number in an array), that are not to be chosen; or
                one for all: "bernoulli", "spin", "categorical", "gaussian" or another real kind, "binomial"
                for counts, "truncated_gaussian" for numbers in an interval; "ignore" leaves the column out.
                With what is known beyond the cells: {"kind": "categorical", "values": [...], "rare": 5},
                {"kind": "binomial", "largest": 20}, {"kind": "truncated_gaussian", "low": 0, "high": 100},
                {"kind": "gaussian", "transform": "log"}, of which "auto" is the likeliest.
            weights: Row weights, (rows,), at least 0 and not all 0, for means and deviations; rows of
                weight 0 are not looked at. None means uniform.

        Raises:
            TypeError: not a table, or cells that are neither numbers, text, booleans, dates nor times.
            ValueError: no column to learn from, or one with other values than its kind takes; kinds of
                columns that are not there; weights that do not fit.
        """
        frame = frame_of(X)
        checked = _checks.weights(weights, "weights", len(frame))
        row_weights = None if checked is None else checked.numpy()
        if row_weights is not None:
            frame, row_weights = frame.take(row_weights.nonzero()[0]), row_weights[row_weights > 0]
        chosen = chosen_kinds(frame, kinds)
        reasons = without_unit(frame, kinds)
        said = [f"{name!r} ({reason})" for name, reason in reasons.items() if reason != IGNORE]
        remedy = "give a column a kind (visible or kinds) to learn from it all the same"
        if len(reasons) == len(frame.columns):
            raise ValueError(
                f"X: expected a column to learn from, received {', '.join(said) or 'none'}; {remedy}"
            )
        if said:
            _checks.warn(
                f"X: nothing is learned from columns {', '.join(said)}; {remedy}, or the kind "
                f'"{IGNORE}" to be spared this warning'
            )
        for cells in frame.columns:
            if cells.name not in reasons and kind_of(chosen.get(cells.name)) == "auto":
                question = None if chosen.get(cells.name) else question_of(cells)
                if question is not None:
                    learned = "numbers" if cells.numeric or cells.form is not None else "labels"
                    _checks.warn(f"X: column {cells.name!r} is learned as {learned}: {question}")
        columns = [
            Constant.of(cells)
            if cells.name in reasons
            else ColumnCodec.fit(cells, chosen.get(cells.name), row_weights)
            for cells in frame.columns
        ]
        return cls(tuple(columns), frame.library)

    def in_frames(self) -> Table:
        """Returns a table that decodes to frames, if its rows came from a text file with names.

        Without pandas it stays as it is.
        """
        there = self.library == TEXT and find_spec("pandas")
        return replace(self, library="pandas") if there else self

    @property
    def unlearned_columns(self) -> tuple[ColumnCodec, ...]:
        """The columns without a unit."""
        return tuple(column for column in self.all_columns if not column.learned)

    @property
    def names(self) -> tuple[str | int, ...]:
        """Of the columns as the table has them; their numbers where they have no names."""
        return tuple(column.name for column in self.all_columns)

    @property
    def kinds(self) -> dict[str | int, str]:
        """Of the columns, by name; ``IGNORE`` of those left out."""
        return {column.name: column.kind for column in self.all_columns}

    @property
    def layers(self) -> list[Layer]:
        """The visible layers, one for every group of columns, side by side in the order of their units."""
        groups = ((look, len(list(units))) for look, units in groupby(self.columns, _look))
        return [Layer.registry[kind].plain(number, n_states) for (kind, n_states), number in groups]

    def encode(
        self,
        X: Any,
        *,
        beyond: str = "end",
        warned: set[Any] | None = None,
        strict: bool = False,
    ) -> Any:
        """The rows as states of the visible units.

        A new label is taken as missing, with a warning, and a number as the nearest one with a state.
        ``log_shares`` has the probabilities of both, which scores take into account.

        Args:
            X: a table with these columns: by name, in any order, where it has names, else by number.
            beyond: see ``ColumnCodec.encode``.
            warned: Names of columns whose cells without a state need no further warning, to which those of
                this call are added; None: no column's.
            strict: whether cells without a state are refused.

        Returns:
            (rows, width) float64, NaN in the whole of a unit whose cell is missing.

        Raises:
            ValueError: other columns, or a cell that is refused.
        """
        frame = frame_of(X)
        series = [frame.columns[j] for j in self.order(frame)]
        return states_of_cells(self.columns, series, beyond=beyond, warned=warned, strict=strict)

    def log_shares(self, X: Any, beyond: str = "end") -> Array:
        """Returns ln p(cell | its state), (rows, columns with a unit) float64; see ``ColumnCodec``."""
        frame = frame_of(X)
        pairs = zip(self.columns, self.order(frame), strict=True)
        return np.column_stack([column.log_shares(frame.columns[j], beyond) for column, j in pairs])

    def decode(self, X: Any) -> Any:
        """States or means of the visible units as rows of the table.

        Of labels the most probable ones, counts and columns of whole numbers rounded, other numbers up to
        rounding and within the limits of their columns; missing where a unit's entries are NaN.

        Args:
            X: (rows, width), array or tensor.

        Returns:
            A frame of ``library`` with the names, dtypes and categories that ``fit`` saw, or an array.
        """
        return build(self.frame(X))

    def frame(self, X: Any, *, rounded: bool = True, drawn: str | None = "rows") -> Frame:
        """``decode`` to the columns of cells, with ``rounded`` and ``drawn`` as of ``ColumnCodec.series``."""
        parts = self.split(X)
        series = (c.series(parts[c.name], rounded=rounded, drawn=drawn) for c in self.all_columns)
        return Frame(tuple(series), self.library)

    def frame_of_cells(self, cells: Mapping[Any, Any]) -> Frame:
        """Rows of which some columns are given, and the cells of the others are missing.

        Args:
            cells: Cells by column (by number where there are no names), one for all rows or one for each.

        Raises:
            ValueError: columns that are not there, or of different lengths.
        """
        for name in cells:
            if name not in self.names:
                raise ValueError(f"given: expected columns among {few(self.names, 10)}, received {name!r}")
        listed = {
            name: [x] if isinstance(x, (str, bytes)) or np.ndim(x) == 0 else list(x)
            for name, x in cells.items()
        }
        rows = max(map(len, listed.values()), default=1)
        for name, x in listed.items():
            if len(x) not in (1, rows):
                raise ValueError(
                    f"given: expected one cell or {rows} in each column, received {len(x)} in {name!r}"
                )
        columns = []
        for column in self.all_columns:
            x = listed.get(column.name, [None])
            columns.append(series_of(column.name, x * rows if len(x) == 1 else x, column.dtype))
        return Frame(tuple(columns), self.library)

    def filled(self, X: Any, states: Any, *, rounded: bool = True, drawn: str | None = None) -> Frame:
        """Returns the columns of a table with its missing cells taken from states or means.

        What was given stays, a cell that ``encode`` took as missing too.

        Args:
            X: as in ``encode``.
            states: (rows, width), array or tensor.
            rounded: whether to round numbers of whole columns, see ``ColumnCodec.series``.
            drawn: see ``ColumnCodec.decode``.
        """
        frame = frame_of(X)
        filled, decoded = list(frame.columns), self.frame(states, rounded=rounded, drawn=drawn)
        units = dict(zip((column.name for column in self.columns), self.order(frame), strict=True))
        names = [*self.names] if NUMPY in (self.library, frame.library) else [c.name for c in frame.columns]
        for column, new in zip(self.all_columns, decoded.columns, strict=True):
            if isinstance(column, Constant):
                if column.value is not None and column.name in names:
                    column_index = names.index(column.name)
                    filled[column_index] = filled[column_index].filled(new.values)
                continue
            column_index = units[column.name]
            cells, labels = filled[column_index], column.categories
            if labels is not None:  # those that nothing in training had stand behind
                known = dict.fromkeys(cells.values[~cells.missing].tolist())
                labels += tuple(label for label in known if label not in labels)
            full = replace(cells, categories=labels, ordered=column.ordered)
            if cells.numeric and not new.numeric and cells.missing.all():  # NaN in place of labels
                full = replace(full, values=np.full(len(frame), None), dtype=column.dtype)
            filled[column_index] = full.filled(new.values)
        return Frame(tuple(filled), frame.library, frame.index)

    def log_jacobian(self, states: Array) -> Array:
        parts = self.split(states)
        return np.hstack([c.log_jacobian(parts[c.name]) for c in self.columns])

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        columns = tuple(ColumnCodec.from_dict(column) for column in values["all_columns"])
        return cls(columns, str(values["library"]))

    def order(self, frame: Frame) -> list[int]:
        """Finds the column of each unit in a frame: by name where both have names, else by number.

        Raises:
            ValueError: other columns.
        """
        names = [cells.name for cells in frame.columns]
        if NUMPY in (self.library, frame.library):
            if len(names) != len(self.names):
                raise ValueError(f"X: expected {len(self.names)} columns, received {len(names)}")
            return [self.names.index(column.name) for column in self.columns]
        unlearned = {column.name for column in self.unlearned_columns}
        lacking = [name for name in self.names if name not in names and name not in unlearned]
        more = [name for name in names if name not in self.names]
        if lacking or more:
            complaint = f"lacks {few(lacking, 10)}" if lacking else f"has {few(more, 10)} beside them"
            raise ValueError(f"X: expected columns {few(self.names, 10)} as in fit; the frame {complaint}")
        return [names.index(column.name) for column in self.columns]

    def split(self, X: Any) -> dict[Any, Array]:
        """Returns the states of each column, by name; none of those left out."""
        x = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
        _checks.numeric(x, "X")
        if x.ndim != 2 or x.shape[1] != self.width:
            raise ValueError(f"X: expected (rows, {self.width}) states, received shape {tuple(x.shape)}")
        ends = np.cumsum([column.width for column in self.columns])[:-1]
        parts = np.split(np.asarray(x, dtype=np.float64), ends, axis=1)
        none = {column.name: np.empty((len(x), 0)) for column in self.unlearned_columns}
        return none | dict(zip((column.name for column in self.columns), parts, strict=True))


def _look(column: ColumnCodec) -> tuple[str, int]:
    """Returns the kind and the number of states of a column's unit."""
    return column.kind, column.n_states


def states_of_cells(
    columns: Sequence[ColumnCodec],
    series: Sequence[Series],
    *,
    beyond: str = "end",
    warned: set[Any] | None = None,
    strict: bool = False,
) -> Array:
    """Returns the cells of columns as states, (rows, width); the rest as for a ``Table``."""
    parts, strange, warned = [], [], set() if warned is None else warned
    for column, cells in zip(columns, series, strict=True):
        states = column.encode(cells, beyond=beyond)
        known = column.encode(cells, beyond="line") if strict else states
        wrong = np.isnan(known[:, 0]) & ~cells.missing
        row = int(wrong.argmax())
        if wrong.any() and strict:
            column.refuse(cells, row)
        if wrong.any() and column.name not in warned:
            warned.add(column.name)
            strange.append(f"{shown(cells.values[row])} in column {column.name!r}")
        parts.append(states)
    if strange:
        _checks.warn(
            f"{NEW_CELLS} have a probability of 1 / (cells in training + 1) in scores, and where other cells "
            f"of their rows are predicted they are taken as missing: {', '.join(strange)}"
        )
    return np.hstack(parts)


@torch.no_grad()
def log_masses(table: Table, machine: BoltzmannMachine) -> Tensor:
    """Returns ln of the integral of each column's density as scores have it, (columns,) float64.

    A number of many cells has a probability in place of a density (``Quantiles``), which is exact where its
    column is normal. Scores divide by the integral of the whole. It is 1 of all other columns, and taken for
    1 where a machine has too many hidden states to sum. There it differs by as much as states are not normal.

    Args:
        table: Encoder of the columns.
        machine: Machine whose first visible units are theirs.
    """
    masses = torch.zeros(len(table.columns), dtype=torch.float64, device=machine.device)
    if not has_hidden_states(machine.graph, machine.layers):
        return masses
    hamiltonian = machine.hamiltonian().to(torch.float64)
    hidden_states, start = HiddenStates(hamiltonian), 0
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    for j, column in enumerate(table.columns):
        unit, start = start, start + column.width
        if not isinstance(column, Quantiles) or not column.common:
            continue
        gaps = np.array([*column.common.values()])
        middles, halves = gaps.mean(1), np.diff(gaps)[:, 0] / 2
        between = (middles[:, None] + np.outer(halves, nodes)).ravel()
        asked = torch.from_numpy(np.concatenate([middles, between])).to(machine.device)
        rows = nothing_seen(hamiltonian, len(asked))
        rows[:, unit] = asked
        density = hidden_states.log_likelihood(rows).exp().cpu().numpy()
        at, gap = np.split(density, [len(middles)])
        inside = at @ np.exp(column.log_slopes_of(middles))
        masses[j] = float(np.log(1 + inside - halves @ (gap.reshape(-1, _NODES) @ weights)))
    return masses


def blank_rows(X: Any, encoder: Encoder | None = None, kinds: Any = None) -> Array:
    """Returns which rows show nothing in any column that is learned, (rows,) bool.

    X is a ``Frame`` or a matrix of numbers; a sparse one has no such rows. Without an encoder ``kinds`` are
    those of ``Table.fit``.
    """
    if isinstance(X, Frame):
        table = encoder if isinstance(encoder, Table) else None
        out = without_unit(X, kinds) if table is None else [column.name for column in table.unlearned_columns]
        holes = [cells.missing for cells in X.columns if cells.name not in out]
        return np.all(holes, axis=0) if holes else np.zeros(len(X), dtype=bool)
    plain = type(X) is np.ndarray and X.dtype.kind == "f"  # one in a file is looked at where it is read
    return np.isnan(X).all(1) if plain else np.zeros(X.shape[0], dtype=bool)


def warn_of_blank(blank: Array, name: str) -> None:
    """Warns that nothing is learned from rows of data of this name, marked in (rows,) bool."""
    _checks.warn(
        f"{name}: nothing is learned from {blank.sum()} of {len(blank)} rows, the first of them row "
        f"{int(blank.argmax())}, as every cell is missing"
    )
