"""Columns of cells: what data frames, arrays of objects and table files have in common."""

from __future__ import annotations

import math
import numbers
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from torch import Tensor

from harmonium.data.times import TIMES, form_of
from harmonium.data.transforms import Array

NUMPY = "numpy"
TEXT = "text"
LONG = 2**53
"""Below it every whole number is a float64 of its own."""
WHOLE = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
"""NumPy's types of whole numbers, which have no place for missing cells."""
_IN_PANDAS = {
    **{"String": "str", "Boolean": "bool", "Categorical": "category", "Enum": "category"},
    **{"Date": "object", "Time": "object", "Datetime": "datetime64[us]", "Duration": "timedelta64[us]"},
}  # the names in pandas of types that have other names in other libraries
_NUMBER = re.compile(r"\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)\s*", re.ASCII | re.IGNORECASE)
_CODE = re.compile(r"[ \t]*0[0-9]+(\.[0-9]*)?[ \t]*")


def of_whole_numbers(dtype: str) -> bool:
    """Returns whether a type, by its name in its own library, is of whole numbers."""
    return "int" in dtype.lower()


def is_number(cell: str) -> bool:
    """Returns whether a cell holds a number of float64 in plain decimal digits, NaN or infinity."""
    if _NUMBER.fullmatch(cell) is None:
        return False
    return math.isfinite(float(cell)) or not any(map(str.isdecimal, cell))


def is_code(cell: str) -> bool:
    """Returns whether a cell holds digits behind a zero, such as 00123 or 007.1: a name and no number."""
    return _CODE.fullmatch(cell) is not None


def refuse_long(name: object, values: Iterable[Any]) -> None:
    """Refuses whole numbers of which float64 does not keep every digit."""
    for value in values:
        if abs(int(value)) >= LONG:
            raise ValueError(
                f"X: expected whole numbers below 2^53 in column {name!r}, received {int(value)}; drop the "
                "column if it names rows, or make text of it: .astype(str) in a frame, a letter in front of "
                "each in a text file"
            )


def missing_in(values: Array) -> Array:
    """Marks the missing cells: NaN among numbers, None among objects."""
    if values.dtype.kind == "O":
        return np.array([value is None for value in values.ravel()], dtype=bool).reshape(values.shape)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, dtype=bool)


@dataclass(frozen=True, eq=False)
class Series:
    """One column.

    Attributes:
        name: Name of the column, or its number where there are no names.
        values: (rows,), float64 with NaN where a cell is missing; or objects (text, booleans, dates, times,
            whole numbers that are labels) with None there.
        dtype: what the column's own library calls its type.
        categories: all that it may hold, in their order, where its type says so.
        ordered: whether their order means something.
    """

    name: Hashable
    values: Array
    dtype: str
    categories: tuple[Any, ...] | None = None
    ordered: bool = False

    @property
    def numeric(self) -> bool:
        return self.values.dtype.kind == "f"

    @property
    def missing(self) -> Array:
        """(rows,), bool."""
        return missing_in(self.values)

    @cached_property
    def form(self) -> str | None:
        """Form of the dates or times in the column (``form_of``); None where there are none."""
        return None if self.numeric or self.categories else form_of(self.values[~self.missing].tolist())

    def filled(self, other: Array) -> Series:
        """The column with the cells of ``other`` where its own are missing."""
        hole = self.missing
        if self.numeric and other.dtype.kind == "f":
            return replace(self, values=np.where(hole, other, self.values))
        values = self.values.astype(object)
        values[hole] = other[hole]
        return replace(self, values=values)


@dataclass(frozen=True, eq=False)
class Frame:
    """Columns of equal length, at least one, with at least one row.

    Attributes:
        columns: Columns in their order.
        library: where they come from: "pandas", "polars", another name that narwhals knows, "numpy", or
            "text" for a file with names.
        index: Index of the rows of a pandas frame, else None.
    """

    columns: tuple[Series, ...]
    library: str = NUMPY
    index: Any = None

    def __post_init__(self) -> None:
        rows = len(self.columns[0].values) if self.columns else 0
        if not rows:
            raise ValueError(
                "X: expected at least one row (0 sample(s) or columns are too few), "
                f"received {len(self)} rows of {len(self.columns)} columns"
            )

    def __len__(self) -> int:
        return len(self.columns[0].values) if self.columns else 0

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.columns)

    @property
    def numeric(self) -> bool:
        return all(column.numeric for column in self.columns)

    def take(self, index: Any) -> Frame:
        """Some of the rows."""
        columns = tuple(replace(column, values=column.values[index]) for column in self.columns)
        return replace(self, columns=columns, index=None if self.index is None else self.index[index])

    def numbers(self) -> Array:
        """(rows, columns) float64, NaN where a cell is missing.

        Raises:
            ValueError: a column of something else; the message names it.
        """
        for column in self.columns:
            if not column.numeric and not column.missing.all():
                value = column.values[~column.missing].tolist()[0]
                raise ValueError(f"X: expected numbers in column {column.name!r}, received {value!r}")
        values = [c.values if c.numeric else np.full(len(self), np.nan) for c in self.columns]
        return np.column_stack(values)


def is_frame(X: object) -> bool:
    """Returns whether X is a data frame, or an array of objects or of text."""
    if isinstance(X, np.ndarray):
        return X.dtype.kind in "OUT"
    # A lazy frame has a schema to collect, and is refused with a word of what to do.
    known = ("collect_schema", "__dataframe__", "__arrow_c_stream__", "__narwhals_dataframe__")
    return isinstance(X, Frame) or any(hasattr(X, name) for name in known)


def differ_in_kind(X: Array) -> bool:
    """Returns whether some columns of an array hold 0 and 1 and others hold fractions.

    Whole numbers alone may be grey levels, which are of one kind however few a column shows.
    """
    zero, one, known = X == 0, X == 1, X == X
    bits = (zero | one | ~known).all(0) & zero.any(0) & one.any(0)
    fractions = ((np.round(X) != X) & known).any(0)
    return bool(bits.any() and fractions.any())


def frame_of(X: Any, names: Sequence[Hashable] | None = None) -> Frame:
    """The cells of a data frame (pandas, polars and whatever narwhals knows) or of an array (rows, columns).

    None, NaN, pandas.NA and NaT are missing, and in arrays empty text. Of an array of text, columns of
    numbers are numbers. Intervals of pandas are text, periods their beginnings, decimals float64.

    Args:
        X: the table.
        names: Names of the columns of an array; None: their numbers.

    Raises:
        TypeError: something else, or cells that are neither numbers, text, booleans, dates nor times.
        ValueError: no rows, no columns, not two-dimensional, two columns of one name, or infinity.
    """
    if isinstance(X, Frame):
        return X
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    if not isinstance(X, np.ndarray):
        return _from_frame(X)
    if X.ndim != 2:
        raise ValueError(
            f"X: expected two dimensions (rows, columns), received shape {X.shape}; reshape your data, "
            "X.reshape(-1, 1) for one column"
        )
    titles = range(X.shape[1]) if names is None else names
    if X.dtype.kind in "biuf":
        return Frame(tuple(_number(name, X[:, j], str(X.dtype)) for j, name in enumerate(titles)))
    if X.dtype.kind not in "OUT":
        raise TypeError(f"X: expected numbers, text or objects, received dtype {X.dtype}")
    text, dtype = X.dtype.kind != "O", str(X.dtype)
    parsed = (series_of(name, X[:, j].tolist(), dtype, parse=text) for j, name in enumerate(titles))
    return Frame(tuple(parsed))


def _from_frame(X: Any) -> Frame:
    try:
        import narwhals as nw
    except ImportError as error:
        raise ImportError(
            "X: a data frame needs narwhals: pip install 'harmonium[tables]', or give X.to_numpy()"
        ) from error
    if hasattr(X, "collect") and not hasattr(X, "shape"):
        raise TypeError(f"X: expected a frame that is in memory, received {type(X).__name__}; .collect() it")
    if hasattr(X, "to_frame"):
        raise ValueError(
            f"X: expected two dimensions, received a {type(X).__name__}; .to_frame() makes it a table"
        )
    if getattr(getattr(X, "columns", None), "nlevels", 1) > 1:
        raise ValueError(
            f"X: expected columns of one name each, received names of {X.columns.nlevels} levels such as "
            f"{X.columns[0]!r}; X.columns = ['_'.join(map(str, names)) for names in X.columns] joins them"
        )
    refuse_twice(list(getattr(X, "column_names", getattr(X, "columns", ()))), "X: ")  # of pyarrow, of others
    try:
        frame = nw.from_native(X, eager_only=True)
    except TypeError as error:
        raise TypeError(
            f"X: expected a data frame or a numpy array (rows, columns), received {type(X).__name__}"
        ) from error
    if not frame.implementation.is_pandas_like():
        columns = [_column(nw, series, str(series.dtype)) for series in frame.iter_columns()]
        return Frame(tuple(columns), getattr(frame.implementation, "value", str(frame.implementation)))
    columns = [_pandas_column(nw, X[name], str(dtype)) for name, dtype in X.dtypes.items()]
    return Frame(tuple(columns), frame.implementation.value, X.index)


def refuse_twice(names: Sequence[Any], subject: str = "") -> None:
    """Refuses columns of one name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        places = " or ".join(str(j + 1) for j, name in enumerate(names) if name == twice[0])
        raise ValueError(
            f"{subject}expected columns of different names, received {twice[0]!r} twice; rename one, "
            f"column {places}"
        )


def _pandas_column(nw: Any, column: Any, dtype: str) -> Series:
    """Reads a column of pandas: narwhals takes long for wide tables, and has no periods and categories."""
    if column.dtype.kind in "iu":
        refuse_long(column.name, [] if column.isna().all() else [column.min(), column.max()])
    if column.dtype.kind in "iuf":
        return _number(column.name, column.to_numpy(np.float64, na_value=np.nan), dtype)
    if dtype == "category":
        kind = column.cat
        plain = str(kind.categories.dtype).partition("[")[0] not in ("interval", "period")
        labels = kind.categories.tolist() if plain else [str(label) for label in kind.categories]
        values = [labels[code] if code >= 0 else None for code in kind.codes]
        cells = series_of(column.name, values, dtype, objects=True, blank=True)
        return replace(cells, categories=tuple(labels), ordered=bool(kind.ordered))
    if dtype.startswith("period["):
        column, dtype = column.dt.to_timestamp(), "datetime64[us]"
    return _column(nw, nw.from_native(column, series_only=True), dtype)


def _column(nw: Any, series: Any, type_name: str) -> Series:
    """Reads a column of narwhals, which is called ``type_name`` in its own library."""
    name, dtype = series.name, series.dtype
    if dtype.is_numeric():
        if dtype.is_integer() and series.null_count():  # missing cells make floats of the others
            known = series.drop_nulls()
            refuse_long(name, [known.min(), known.max()] if len(known) else [])
        return _number(name, series.to_numpy(), "float64" if dtype == nw.Decimal else type_name)
    if dtype.is_nested():
        raise TypeError(
            f"X: expected numbers, text, booleans, dates or times in column {name!r}, received "
            f"{type_name}; drop it, or turn it into numbers"
        )
    if dtype in (nw.Date, nw.Datetime, nw.Duration):
        values = series.to_numpy()
        days = values.astype(f"{values.dtype.kind}8[D]").tolist() if values.dtype.kind in "mM" else []
        beyond = [row for row, day in enumerate(days) if isinstance(day, int)]  # as numpy hands those out
        if beyond:
            raise ValueError(
                f"X: expected the years 1 to 9999, or days within ±999999999, in column {name!r}, received "
                f"{values[beyond[0]]}; correct it, or make it missing"
            )
    categories = tuple(dtype.categories) if dtype == nw.Enum else None
    dtype_name = type_name if dtype.is_temporal() else type_name.partition("(")[0]
    text = dtype in (nw.Categorical, nw.Enum)
    cells = series_of(name, series.to_list(), dtype_name, objects=text, blank=True)
    return replace(cells, categories=categories)


def series_of(
    name: Hashable,
    values: Sequence[Any],
    dtype: str,
    *,
    parse: bool = False,
    objects: bool = False,
    blank: bool = False,
) -> Series:
    """A column from a list of Python values.

    Args:
        name: Name of the column.
        values: numbers, text, booleans, and what stands for a missing cell.
        dtype: see ``Series``.
        parse: whether a column of text that are numbers is a column of numbers; not so if one is written with
            a zero in front, such as 00123.
        objects: whether numbers are labels.
        blank: whether empty text is a cell like any other; else it is missing.

    Raises:
        TypeError: cells of another type, or dates and times of several; the message names the column.
    """
    plain = [_plain(value, name, blank) for value in values]
    seen = [value for value in plain if value is not None]
    kinds = {*map(type, seen)}
    text = parse and kinds == {str} and not any(map(is_code, seen)) and all(map(is_number, seen))
    if text or (kinds and kinds <= {int, float} and not objects):
        refuse_long(name, [x for x in seen if str(x).strip().lstrip("+-").isdecimal()])
        return _number(name, [math.nan if x is None else float(x) for x in plain], dtype)
    if any(issubclass(kind, TIMES) for kind in kinds) and form_of(seen) is None:
        raise TypeError(f"X: expected dates or times of one kind in column {name!r}, received several")
    array = np.empty(len(plain), dtype=object)
    array[:] = plain
    return Series(name, array, dtype)


def _number(name: Hashable, values: Any, dtype: str) -> Series:
    values = np.asarray(values)
    if values.dtype.kind in "iu" and len(values):
        refuse_long(name, [values.min(), values.max()])
    values = values.astype(np.float64)
    if np.isinf(values).any():
        raise ValueError(
            f"X: expected finite numbers in column {name!r}, received infinity at row "
            f"{int(np.isinf(values).argmax())}; a missing value is NaN"
        )
    return Series(name, values, dtype)


def _plain(value: Any, name: Hashable, blank: bool = False) -> Any:
    """A cell as Python's own str, bool, int or float; None where it is missing."""
    kind = type(value).__name__
    if value is None or kind in ("NAType", "NaTType"):
        return None
    if kind == "Interval":  # of pandas
        return str(value)
    if isinstance(value, np.generic):
        if value.dtype.kind in "mM":
            value = value.astype(f"{value.dtype.kind}8[us]")
        value = value.item()
    if isinstance(value, str):
        return str(value) if blank or value.strip() else None
    if isinstance(value, (bool, int, *TIMES)):
        return value
    if isinstance(value, (numbers.Real, Decimal)):
        value = float(value)
        return None if value != value else value
    raise TypeError(
        f"X: expected numbers, text, booleans, dates or times in column {name!r}, received {value!r} "
        f"({type(value).__name__}); an argument must be a string or a real number in every cell, and "
        ".astype(str) makes text of a pandas column"
    )


# Back to frames and arrays of libraries
# ---------------------------------------------------------------------------------


def build(frame: Frame) -> Any:
    """A frame of the frame's library with its names, dtypes and categories, or an array, for a file too.

    A dtype that has no place for missing cells, or for what is not whole, gives way where there is any.
    """
    if frame.library in (NUMPY, TEXT):
        return _array(frame)
    if frame.library == "pandas":
        pandas = import_module("pandas")
        columns = {column.name: _pandas_series(pandas, column, frame.index) for column in frame.columns}
        return pandas.DataFrame(columns, index=frame.index)
    narwhals = import_module("narwhals")
    series = [_native_series(narwhals, column, frame.library) for column in frame.columns]
    return narwhals.from_dict({s.name: s for s in series}).to_native()


def _array(frame: Frame) -> Any:
    text = frame.library == TEXT
    dtype = np.dtype(object if text else frame.columns[0].dtype)
    if frame.numeric and (text or dtype.kind in "biuf"):
        return frame.numbers().astype(np.float32 if dtype == np.float32 else np.float64)
    array = np.column_stack([column.values.astype(object) for column in frame.columns])
    whole = dtype.kind in "UT" and not any(column.missing.any() for column in frame.columns)
    return array.astype("U") if whole else array


def _gives_way(column: Series) -> bool:
    """Returns whether a column of a type of whole numbers has fractions."""
    return column.numeric and of_whole_numbers(column.dtype) and bool((column.values % 1 > 0).any())


def _pandas_series(pandas: Any, column: Series, index: Any) -> Any:
    dtype = _IN_PANDAS.get(column.dtype.partition("(")[0], column.dtype)
    if dtype == "category":
        known = None if column.categories is None else list(column.categories)
        values = pandas.Categorical(list(column.values), categories=known, ordered=column.ordered)
        return pandas.Series(values, index=index)
    series = pandas.Series(column.values, index=index)
    no_place = column.missing.any() and dtype in {"bool", *WHOLE}
    other = dtype.startswith("interval[") or (column.numeric and dtype == "object")
    return series if no_place or other or _gives_way(column) else series.astype(dtype)


def _native_series(narwhals: Any, column: Series, library: str) -> Any:
    """A column as a series of a library, in the type that its own library, NumPy or a file calls it."""
    values = [None if hole else x for hole, x in zip(column.missing, column.values.tolist(), strict=True)]
    name = {"str": "String", "bool": "Boolean"}.get(column.dtype, column.dtype.capitalize())
    kind: Any = getattr(narwhals, re.split(r"[(\[]", name)[0].replace("Uint", "UInt"), None)
    if column.dtype.startswith(("Datetime(", "Duration(")):
        unit, zone = (re.search(f"{x}='([^']+)'", column.dtype) for x in ("time_unit", "time_zone"))
        kind = kind(*(match[1] for match in (unit, zone) if match))
    if column.categories is not None and all(isinstance(value, str) for value in column.categories):
        kind = narwhals.Enum(list(column.categories))
    elif kind in (narwhals.Object, narwhals.Decimal) or _gives_way(column):
        kind = None
    if kind is not None and kind.is_integer():
        values = [None if value is None else round(value) for value in values]
    return narwhals.new_series(str(column.name), values, kind, backend=library)
