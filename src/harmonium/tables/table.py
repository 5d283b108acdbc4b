"""Tables: columns of several kinds, names and missing cells, as the states of a machine's visible layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, final

import numpy as np
from torch import Tensor

from harmonium import _checks
from harmonium.data import Encoder, Frame, Series, build, frame_of
from harmonium.data.frame import NUMPY, TEXT, series_of
from harmonium.data.transforms import Array
from harmonium.tables.codings import shown
from harmonium.tables.column import Column
from harmonium.tables.left_out import IGNORE, LeftOut, chosen_kinds, few_names, without_unit

UNKNOWN = ("error", "missing")
_FRAMES = {"pandas": ("pandas",), "polars": ("polars", "narwhals")}  # and what each needs

_T = TypeVar("_T")


class Group(NamedTuple):
    """Columns of a kind, whose units make one visible layer.

    Attributes:
        kind: of the units.
        n_units: columns of the table.
        n_states: of each unit; 2 where there is no choice.
    """

    kind: str
    n_units: int
    n_states: int


@final
@dataclass(frozen=True)
class Table(Encoder):
    """Maps the rows of a table to states of visible units and back, by its columns.

    A row has one unit for each column. Those of a kind, and of as many states, stand side by side and make
    one layer (``groups``, ``harmonium.tables.visible_layers``), wherever they stand in the table. Make one
    with :meth:`fit`.

    Args:
        columns: those with a unit, at least one, of different names, in the order of their units.
        library: what ``decode`` makes: a frame of "pandas", "polars" or another library that narwhals knows,
            or with "numpy" an array.
        unknown: what a cell that its column has no state for is taken as in ``encode``: "missing" takes it as
            missing, with a warning, "error" refuses it by name and value. Such are new categories, and
            numbers beyond the range of counts and of units in an interval.
        places: of these columns, and then of those left out, in the table, from 0; None: as they are.
        left_out: the columns without a unit. Nothing is learned of them or read from them, and a table may
            lack them. Given cells stay as they are; others come back as the column's only value, or missing.

    Raises:
        TypeError, ValueError: something else.
    """

    columns: tuple[Column, ...]
    library: str = NUMPY
    unknown: str = "missing"
    places: tuple[int, ...] | None = None
    left_out: tuple[LeftOut, ...] = ()
    tabular: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "left_out", tuple(self.left_out))
        count = len(self.columns) + len(self.left_out)
        object.__setattr__(self, "places", tuple(range(count) if self.places is None else self.places))
        if sorted(self.places or ()) != list(range(count)):
            raise ValueError(f"places: expected 0 to {count - 1} once each, received {self.places}")
        _checks.one_of(self.unknown, "unknown", UNKNOWN)
        if not self.columns or not all(isinstance(column, Column) for column in self.columns):
            raise TypeError("columns: expected at least one Column, received something else")
        if len(set(self.names)) < count:
            raise ValueError(f"columns: expected different names, received {list(self.names)}")

    @classmethod
    def fit(
        cls,
        X: Any,
        kinds: str | Mapping[Any, str | Mapping[str, Any]] | None = None,
        *,
        unknown: str = "missing",
        weights: Any = None,
    ) -> Table:
        """Looks at each column of a table.

        Without a kind a column of two values is Bernoulli; of text and categories Categorical; of few
        repeated numbers (at most 10, each in five rows on average) Binomial; of other numbers, dates
        and times Gaussian, or with many exact zeros truncated Gauss-Bernoulli (``Column.fit``). Columns of
        one value or none, of row numbers, and of text that hardly repeats are left out, with a warning that
        names them all.

        Args:
            X: a data frame of pandas, polars or whatever narwhals knows, or an array (rows, columns) of
                numbers, objects or text; None, NaN, pandas.NA, NaT and empty text are missing cells.
            kinds: of the columns, by name (by number in an array), for those that are not to be chosen; or
                one for all: "bernoulli", "spin", "categorical", "gaussian" or another real kind, "binomial"
                for counts, "truncated_gaussian" for numbers in an interval; "ignore" leaves the column out.
                With what is known beyond the cells: {"kind": "categorical", "values": [...]}, {"kind":
                "binomial", "largest": 20}, {"kind": "truncated_gaussian", "low": 0, "high": 100}, {"kind":
                "gaussian", "transform": "log"}.
            unknown: see ``Table``.
            weights: of the rows, (rows,), at least 0 and not all 0, for means and deviations; rows of
                weight 0 are not looked at. None: all count alike.

        Raises:
            TypeError: not a table, or cells that are neither numbers, text, booleans, dates nor times.
            ValueError: no column to learn from, or one with other values than its kind takes; kinds of
                columns that are not there; weights that do not fit.
        """
        frame = frame_of(X)
        checked = _checks.weights(weights, "weights", len(frame))
        each = None if checked is None else checked.numpy()
        if each is not None:
            frame, each = frame.take(each.nonzero()[0]), each[each > 0]
        chosen = chosen_kinds(frame, kinds)
        reasons = without_unit(frame, kinds)
        said = [f"{name!r} ({reason})" for name, reason in reasons.items() if reason != IGNORE]
        remedy = f'a kind for a column (visible, --kinds) makes a unit of it, "{IGNORE}" needs no warning'
        if len(reasons) == len(frame.columns):
            raise ValueError(
                f"X: expected a column to learn from, received {', '.join(said) or 'none'}; {remedy}"
            )
        if said:
            _checks.warn(f"X: nothing is learned from columns {', '.join(said)}; {remedy}")
        left_out = tuple(LeftOut.of(cells) for cells in frame.columns if cells.name in reasons)
        learned = [j for j, cells in enumerate(frame.columns) if cells.name not in reasons]
        columns = {j: Column.fit(c := frame.columns[j], chosen.get(c.name), each) for j in learned}
        looks = [(column.kind, column.coding.n_states) for column in columns.values()]
        order = sorted(learned, key=lambda j: looks.index((columns[j].kind, columns[j].coding.n_states)))
        places = (*order, *(j for j in range(len(frame.columns)) if j not in columns))
        return cls(tuple(columns[j] for j in order), frame.library, unknown, places, left_out)

    def in_frames(self) -> Table:
        """Returns a table that decodes to frames, if its rows came from a text file with names.

        Frames are of pandas, or of polars where only polars and narwhals are installed. Without a library of
        frames the table stays as it is.
        """
        if self.library != TEXT:
            return self
        there = (name for name, needs in _FRAMES.items() if all(find_spec(module) for module in needs))
        return replace(self, library=next(there, TEXT))

    @property
    def names(self) -> tuple[str | int, ...]:
        """Of the columns as the table has them; their numbers where they have no names."""
        return tuple(each.name for each in self._in_table(self._every))

    @property
    def kinds(self) -> dict[str | int, str]:
        """Of the columns, by name; ``IGNORE`` of those left out."""
        every = self._in_table(self._every)
        return {each.name: each.kind if isinstance(each, Column) else IGNORE for each in every}

    @property
    def _every(self) -> list[Column | LeftOut]:
        """The columns, and behind them those left out, as ``places`` counts them."""
        return [*self.columns, *self.left_out]

    @property
    def groups(self) -> list[Group]:
        """Columns whose units make one layer."""
        grouped = groupby((column.kind, column.coding.n_states) for column in self.columns)
        return [Group(kind, len(list(units)), n_states) for (kind, n_states), units in grouped]

    @property
    def width(self) -> int:
        """Columns of the matrix."""
        return sum(column.coding.width for column in self.columns)

    def width_of(self, columns: int) -> int:
        return self.width

    def encode(self, X: Any, first: int = 0) -> Any:
        """The rows as states of the visible units.

        Args:
            X: a table with these columns: by name, in any order, where it has names, else by number.
            first: number of the first row, for messages.

        Returns:
            (rows, width) float64, NaN in the whole of a unit whose cell is missing.

        Raises:
            ValueError: other columns, or a cell that its column has no state for (see ``unknown``).
        """
        return states_of_cells(self.columns, self._matched(frame_of(X)), self.unknown, first)

    def decode(self, X: Any) -> Any:
        """States or means of the visible units as rows of the table.

        Of labels the most probable ones, counts and columns of whole numbers rounded, other numbers up to
        rounding; missing where a unit's entries are NaN.

        Args:
            X: (rows, width), array or tensor.

        Returns:
            A frame of ``library`` with the names, dtypes and categories that ``fit`` saw, or an array.
        """
        return build(self.frame(X))

    def frame(self, X: Any) -> Frame:
        """``decode`` without the frame: the columns of cells."""
        decoded = zip(self.columns, self._decoded(X), strict=True)
        cells = [Series(c.name, x, c.dtype, c.categories, c.ordered) for c, x in decoded]
        cells += [each.cells(len(X)) for each in self.left_out]
        return Frame(tuple(self._in_table(cells)), self.library)

    def given(self, cells: Mapping[Any, Any]) -> Frame:
        """Rows of which some columns are given, and the cells of the others are missing.

        Args:
            cells: by column (by number where there are no names), one for all rows or one for each.

        Raises:
            ValueError: columns that are not there, or of different lengths.
        """
        for name in cells:
            if name not in self.names:
                raise ValueError(
                    f"given: expected columns among {few_names(list(self.names))}, received {name!r}"
                )
        listed = {
            name: [x] if isinstance(x, (str, bytes)) or np.ndim(x) == 0 else list(x)
            for name, x in cells.items()
        }
        rows = max((len(x) for x in listed.values()), default=1)
        wrong = [name for name, x in listed.items() if len(x) not in (1, rows)]
        if wrong:
            raise ValueError(
                f"given: expected one cell or {rows} in each column, received {len(listed[wrong[0]])} in "
                f"{wrong[0]!r}"
            )
        columns = []
        for column in self._every:
            x = listed.get(column.name, [None])
            columns.append(series_of(column.name, x * rows if len(x) == 1 else x, column.dtype))
        return Frame(tuple(self._in_table(columns)), self.library)

    @property
    def curved(self) -> bool:
        """True if a column is coded along a curve, so that the mean of cells is not the cell of the mean."""
        return any(column.coding.log_slope is None for column in self.columns)

    def fill(self, X: Any, states: Any, draws: Sequence[Any] = ()) -> Any:
        """A table with its missing cells taken from states or means of the visible units.

        What was given stays, a cell that ``encode`` took as missing too.

        Args:
            X: as in ``encode``.
            states: (rows, width), array or tensor.
            draws: of which the states are the means, each (rows, width), see ``Column.decode``.

        Returns:
            What X is, a frame or an array, its other cells as they were.
        """
        return build(self.filled(X, states, draws))

    def filled(self, X: Any, states: Any, draws: Sequence[Any] = ()) -> Frame:
        """``fill`` without the frame: the columns of cells."""
        frame = frame_of(X)
        filled = {cells.name: cells for cells in frame.columns}
        assert self.places is not None
        by_name = NUMPY not in (self.library, frame.library)
        for each, place in zip(self.left_out, self.places[len(self.columns) :], strict=True):
            name = each.name if by_name else frame.columns[place].name
            if each.constant is not None and name in filled:
                filled[name] = filled[name].filled(each.cells(len(frame)).values)
        decoded = self._decoded(states, draws)
        for column, cells, new in zip(self.columns, self._matched(frame), decoded, strict=True):
            labels = column.categories
            if labels is not None:  # those that nothing in training had stand behind
                given = dict.fromkeys(cells.values[~cells.missing].tolist())
                labels += tuple(label for label in given if label not in labels)
            full = replace(cells, categories=labels, ordered=column.ordered)
            if cells.numeric and new.dtype.kind != "f" and cells.missing.all():  # NaN in place of labels
                full = replace(full, values=np.full(len(new), None), dtype=column.dtype)
            filled[cells.name] = full.filled(new)
        return Frame(tuple(filled[cells.name] for cells in frame.columns), frame.library, frame.index)

    def log_slopes(self, width: int) -> tuple[float, ...]:
        if width != len(self.columns):
            raise ValueError(f"width: expected {len(self.columns)}, received {width}")
        found = [column.coding.log_slope for column in self.columns]
        for column, slope in zip(self.columns, found, strict=True):
            if slope is None:
                raise ValueError(
                    f"X: expected columns of one slope each, column {column.name!r} is coded along a curve; "
                    'log_slopes_at(states) has its slopes, and "gaussian" for it (visible, --kinds) a line'
                )
        return tuple(slope for slope in found if slope is not None)

    def log_slopes_at(self, states: Array) -> Array:
        """ln |slope| of every column at states (rows, width): (rows, columns), NaN where one is missing."""
        parts = zip(self.columns, self._split(states), strict=True)
        return np.column_stack([column.coding.log_slopes(part) for column, part in parts])

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        columns = tuple(Column.from_dict(column) for column in values["columns"])
        left_out = tuple(LeftOut(**each) for each in values["left_out"])
        return cls(columns, str(values["library"]), values["unknown"], tuple(values["places"]), left_out)

    def _in_table(self, columns: Sequence[_T]) -> list[_T]:
        """Something of every column, or of those with a unit, in the order of the table."""
        assert self.places is not None
        return [x for _, x in sorted(zip(self.places, columns, strict=False), key=itemgetter(0))]

    def order(self, frame: Frame) -> list[int]:
        """Finds the column of each unit in a frame: by name where both have names, else by number.

        Raises:
            ValueError: other columns.
        """
        names = [cells.name for cells in frame.columns]
        if NUMPY in (self.library, frame.library):
            assert self.places is not None
            if len(names) != len(self.places):
                raise ValueError(f"X: expected {len(self.places)} columns, received {len(names)}")
            return list(self.places[: len(self.columns)])
        lacking = [column.name for column in self._in_table(self.columns) if column.name not in names]
        more = [name for name in names if name not in self.names]
        if lacking or more:
            complaint = f"lacks {few_names(lacking)}" if lacking else f"has {few_names(more)} beside them"
            raise ValueError(
                f"X: expected columns {few_names(list(self.names))} as in fit; the frame {complaint}"
            )
        return [names.index(column.name) for column in self.columns]

    def _matched(self, frame: Frame) -> list[Series]:
        """The cells of each unit."""
        return [frame.columns[place] for place in self.order(frame)]

    def _decoded(self, X: Any, draws: Sequence[Any] = ()) -> list[Array]:
        drawn = [self._split(draw) for draw in draws]
        parts = enumerate(zip(self.columns, self._split(X), strict=True))
        return [column.decode(part, draws=[each[i] for each in drawn]) for i, (column, part) in parts]

    def _split(self, X: Any) -> list[Array]:
        """The states of each column."""
        x = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
        _checks.numeric(x, "X")
        if x.ndim != 2 or x.shape[1] != self.width:
            raise ValueError(f"X: expected (rows, {self.width}) states, received shape {tuple(x.shape)}")
        ends = np.cumsum([column.coding.width for column in self.columns])[:-1]
        return np.split(np.asarray(x, dtype=np.float64), ends, axis=1)


def states_of_cells(
    columns: Sequence[Column], given: Sequence[Series], unknown: str = "error", first: int = 0
) -> Array:
    """Returns the cells of columns as states, (rows, width); ``unknown`` and ``first`` as for a ``Table``."""
    parts, strange = [], []
    for column, cells in zip(columns, given, strict=True):
        states = column.encode(cells)
        wrong = np.isnan(states[:, 0]) & ~cells.missing
        if wrong.any():
            row = int(wrong.argmax())
            if unknown == "error":
                raise ValueError(column.complain(cells, row, first))
            strange.append(f"{shown(cells.values[row])} in column {column.name!r}")
        parts.append(states)
    if strange:
        _checks.warn(
            f"X: cells that nothing in training was like are taken as missing: {', '.join(strange)}; "
            'unknown="error" refuses them'
        )
    return np.hstack(parts)
