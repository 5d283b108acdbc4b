"""Files of data frames: Parquet and Feather, by polars or by pandas."""

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
from harmonium.data._text_files import ColumnType
from harmonium.data.frame import Frame, frame_of, native_series

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
