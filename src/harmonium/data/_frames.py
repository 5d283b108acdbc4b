"""Frames as those of libraries, arrays and files: back to what they came from, and Parquet and Feather."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from harmonium._size_limit import check_claim
from harmonium.data._cell_text import as_written
from harmonium.data.dataset import ColumnType
from harmonium.data.frame import NUMPY, TEXT, Frame, Series, frame_of, of_whole_numbers


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
    series = [native_series(narwhals, column, frame.library) for column in frame.columns]
    return narwhals.from_dict({s.name: s for s in series}).to_native()


def _array(frame: Frame) -> Any:
    text = frame.library == TEXT
    dtype = np.dtype(object if text else frame.columns[0].dtype)
    if frame.numeric and (text or dtype.kind in "biuf"):
        return frame.numbers().astype(np.float32 if dtype == np.float32 else np.float64)
    array = np.empty(frame.shape, dtype=object)
    for j, column in enumerate(frame.columns):
        array[:, j] = column.values if column.texts is None else as_written(column.texts, column.values)
    if dtype.kind in "UT" and not any(column.missing.any() for column in frame.columns):
        return array.astype("U")
    return array


def _pandas_series(pandas: Any, column: Series, index: Any) -> Any:
    dtype = _IN_PANDAS.get(column.dtype.partition("(")[0], column.dtype)
    if dtype == "category":
        known = None if column.categories is None else list(column.categories)
        values = pandas.Categorical(list(column.values), categories=known, ordered=column.ordered)
        return pandas.Series(values, index=index)
    series = pandas.Series(column.values, index=index)
    if (column.missing.any() and dtype in _WITHOUT_MISSING) or _broken(column):
        return series
    return series.astype(dtype)


def _broken(column: Series) -> bool:
    """Returns whether a column of an integer type has fractions: the column's type then gives way."""
    if not (column.numeric and of_whole_numbers(column.dtype)):
        return False
    numbers = column.values[~column.missing]
    return bool((np.round(numbers) != numbers).any())


def native_series(narwhals: Any, column: Series, library: str) -> Any:
    """A column as a series of a library, in the type that its own library, NumPy or a file calls it."""
    values = [
        None if hole else value for hole, value in zip(column.missing, column.values.tolist(), strict=True)
    ]
    name = {"str": "String", "bool": "Boolean"}.get(column.dtype, column.dtype.capitalize())
    kind: Any = getattr(narwhals, name.partition("(")[0].replace("Uint", "UInt"), None)
    if column.dtype.startswith(("Datetime(", "Duration(")):
        unit, zone = (re.search(f"{x}='([^']+)'", column.dtype) for x in ("time_unit", "time_zone"))
        kind = kind(*(found[1] for found in (unit, zone) if found))
    if column.categories is not None and all(isinstance(value, str) for value in column.categories):
        kind = narwhals.Enum(list(column.categories))
    elif kind is narwhals.Object or _broken(column):
        kind = None
    whole = kind is not None and kind.is_integer()
    if whole:
        values = [None if value is None else round(value) for value in values]
    if library == "pandas" and None in values and (whole or kind is narwhals.Boolean):
        kind = None  # NumPy's own types have no place for what is missing
    return narwhals.new_series(str(column.name), values, kind, backend=library)


_IN_PANDAS = {
    **{"String": "str", "Boolean": "bool", "Categorical": "category", "Enum": "category"},
    **{"Date": "object", "Time": "object", "Datetime": "datetime64[us]", "Duration": "timedelta64[us]"},
}
"""The names in pandas of types that have other names in files and other libraries."""
_WITHOUT_MISSING = {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls a column for the names of its rows
_LIBRARIES = {"polars": ("polars",), "pandas": ("pandas", "pyarrow")}


def _read(path: Path, form: str) -> tuple[Any, None, tuple[str, ...], dict[str, ColumnType]]:
    """Samples, no labels, and names and types of columns.

    Samples are float64 where every column is of numbers, else objects, None where a cell is missing.
    """
    narwhals = import_module("narwhals")
    native = narwhals.from_native(_READERS[_library(path.suffix)](path, form), eager_only=True)
    native = native.select([name for name in native.columns if not _INDEX.fullmatch(name)])
    frame = frame_of(native.to_native())
    names = tuple(str(cells.name) for cells in frame.columns)
    dtypes = (
        str(x.dtype) if x.dtype.is_temporal() else str(x.dtype).partition("(")[0]
        for x in native.iter_columns()
    )
    types = {
        name: ColumnType(dtype, cells.categories, cells.ordered)
        for name, dtype, cells in zip(names, dtypes, frame.columns, strict=True)
    }
    if frame.numeric:
        return frame.numbers(), None, names, types
    samples = np.empty(frame.shape, dtype=object)
    for j, cells in enumerate(frame.columns):
        samples[:, j] = cells.values
        samples[cells.missing, j] = None
    return samples, None, names, types


read_parquet, read_feather = partial(_read, form="parquet"), partial(_read, form="feather")


def frame_bytes(frame: Frame, suffix: str) -> bytes:
    """A frame as the content of a file.

    Args:
        frame: columns, of which those without a name get one.
        suffix: ".parquet" or ".feather".

    Raises:
        ImportError: no library that writes them.
    """
    library = _library(suffix)
    narwhals = import_module("narwhals")
    columns = [native_series(narwhals, cells, library) for cells in frame.columns]
    native = narwhals.from_dict({column.name: column for column in columns}).to_native()
    buffer = io.BytesIO()
    getattr(native, _WRITERS[library, suffix])(buffer)
    return buffer.getvalue()


def _library(suffix: str) -> str:
    for library, modules in _LIBRARIES.items():
        if all(find_spec(module) for module in (*modules, "narwhals")):
            return library
    raise ImportError(
        f"{suffix} files need narwhals and polars, or narwhals, pandas and pyarrow: "
        "pip install 'harmonium[tables]' polars; a .csv file needs none of them"
    )


def _by_polars(path: Path, form: str) -> Any:
    polars = import_module("polars")
    try:
        lazy = {"parquet": polars.scan_parquet, "feather": polars.scan_ipc}[form](path, glob=False)
        _check(path, lazy.select(polars.len()).collect().item(), len(lazy.collect_schema()))
        return lazy.collect()
    except polars.exceptions.PanicException as error:  # which is no Exception
        raise ValueError("polars cannot follow what it claims; it is damaged") from error


def _by_pandas(path: Path, form: str) -> Any:
    table = import_module("pyarrow.dataset").dataset(path, format=form)
    _check(path, table.count_rows(), len(table.schema))
    whole = table.to_table()
    whole.validate(full=True)  # offsets of text that point anywhere would be followed
    return whole.to_pandas()


def _check(path: Path, rows: int, columns: int) -> None:
    check_claim(8 * rows * columns, path.stat().st_size, f"{rows} rows of {columns} columns")


_READERS: dict[str, Callable[[Path, str], Any]] = {"polars": _by_polars, "pandas": _by_pandas}
_WRITERS = {
    ("polars", ".parquet"): "write_parquet",
    ("polars", ".feather"): "write_ipc",
    ("pandas", ".parquet"): "to_parquet",
    ("pandas", ".feather"): "to_feather",
}
