"""Sheets as the frames and arrays that they came from."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from harmonium.data._cell_text import as_written
from harmonium.data.sheet import NUMPY, TEXT, Cells, Sheet, of_whole_numbers


def build(sheet: Sheet) -> Any:
    """A frame of the sheet's library with its names, dtypes and categories, or an array, for a file too.

    A dtype that has no place for missing cells, or for what is not whole, gives way where there is any.
    """
    if sheet.library in (NUMPY, TEXT):
        return _array(sheet)
    if sheet.library == "pandas":
        pandas = import_module("pandas")
        columns = {column.name: _pandas_series(pandas, column, sheet.index) for column in sheet.columns}
        return pandas.DataFrame(columns, index=sheet.index)
    narwhals = import_module("narwhals")
    series = [series_of(narwhals, column, sheet.library) for column in sheet.columns]
    return narwhals.from_dict({s.name: s for s in series}).to_native()


def _array(sheet: Sheet) -> Any:
    text = sheet.library == TEXT
    dtype = np.dtype(object if text else sheet.columns[0].dtype)
    if sheet.numeric and (text or dtype.kind in "biuf"):
        return sheet.numbers().astype(np.float32 if dtype == np.float32 else np.float64)
    array = np.empty(sheet.shape, dtype=object)
    for j, column in enumerate(sheet.columns):
        array[:, j] = column.values if column.texts is None else as_written(column.texts, column.values)
    if dtype.kind in "UT" and not any(column.missing.any() for column in sheet.columns):
        return array.astype("U")
    return array


def _pandas_series(pandas: Any, column: Cells, index: Any) -> Any:
    dtype = _IN_PANDAS.get(column.dtype, column.dtype)
    if dtype == "category":
        known = None if column.categories is None else list(column.categories)
        values = pandas.Categorical(list(column.values), categories=known, ordered=column.ordered)
        return pandas.Series(values, index=index)
    series = pandas.Series(column.values, index=index)
    if (column.missing.any() and dtype in _WITHOUT_MISSING) or _broken(column):
        return series
    return series.astype(dtype)


def _broken(column: Cells) -> bool:
    """Returns whether a column of an integer type has fractions: the column's type then gives way."""
    if not (column.numeric and of_whole_numbers(column.dtype)):
        return False
    numbers = column.values[~column.missing]
    return bool((np.round(numbers) != numbers).any())


def series_of(narwhals: Any, column: Cells, library: str) -> Any:
    """A column as a series of a library, in the type that its own library, NumPy or a file calls it."""
    values = [
        None if hole else value for hole, value in zip(column.missing, column.values.tolist(), strict=True)
    ]
    name = {"str": "String", "bool": "Boolean"}.get(column.dtype, column.dtype.capitalize())
    kind: Any = getattr(narwhals, name.replace("Uint", "UInt"), None)
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


_IN_PANDAS = {"String": "str", "Boolean": "bool", "Categorical": "category", "Enum": "category"}
"""The names in pandas of types that have other names in files and other libraries."""
_WITHOUT_MISSING = {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
