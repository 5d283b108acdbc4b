"""Rows to a file, with the names of their columns where it has a place for them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harmonium._storage import replace_file
from harmonium.cli.output import check_target
from harmonium.data import DataSet, Frame, Series, frame_of
from harmonium.data.frame import TEXT
from harmonium.data.table_files import table_bytes
from harmonium.sequences import spell, write_fasta

TABLES = (".csv", ".tsv", ".parquet", ".feather")
SUFFIXES = (*TABLES, ".npz", ".npy")
SEQUENCES = (".fasta", ".fa", ".a3m", ".fasta.gz", ".fa.gz", ".a3m.gz")


def write_rows(
    path: Path,
    rows: NDArray[Any] | Frame,
    names: Sequence[str] | None = None,
    labels: Series | None = None,
    *,
    source: DataSet | None = None,
    alphabet: str | None = None,
) -> None:
    """Rows to a file of one of ``SUFFIXES``, or of ``SEQUENCES`` where an alphabet is known.

    Sequences with labels are a column of letters in a table, others columns of codes. Labels are a column of
    a table at the place of their name among ``names``, else the last one, and ``labels`` of a ``.npz`` file;
    other files have no place for them. Names of sequences are those of ``source``.

    Raises:
        ImportError: no library that writes such files.
        ValueError: text for a file of numbers; the message names the column.
    """
    suffix = path.suffix.lower()
    if path.name.lower().endswith(SEQUENCES):
        assert alphabet is not None and not isinstance(rows, Frame)
        write_fasta(path, rows, alphabet, _row_names(source, len(rows)), overwrite=True)
        return
    if suffix in TABLES:
        if alphabet is not None and labels is not None and not isinstance(rows, Frame):
            rows, names = spelt(rows, alphabet, source), None
        replace_file(path, table_bytes(_frame(rows, names, labels), suffix))
        return
    if isinstance(rows, Frame):
        try:
            rows = rows.numbers()
        except ValueError as error:
            raise ValueError(f"out: {str(error).removeprefix('X: ')}; a .csv file takes text") from error
    write_array(path, rows, None if labels is None else np.array(labels.values.tolist()))


def write_table(path: Path, columns: Mapping[str, NDArray[Any] | Series]) -> None:
    """Writes columns of numbers or text to a file of one of ``TABLES``; NaN and None are empty cells."""
    series = []
    for name, values in columns.items():
        if not isinstance(values, Series):
            text = values.dtype.kind == "U"
            cells = values.astype(object if text else np.float64)
            values = Series(name, cells, "str" if text else str(values.dtype))
        series.append(values)
    write_rows(path, Frame(tuple(series), TEXT))


def write_array(path: Path, rows: Any, labels: NDArray[Any] | None = None) -> None:
    """Writes rows to a ``.npy`` file, or with their labels to ``.npz``."""
    buffer = io.BytesIO()
    if path.suffix.lower() == ".npy":
        np.save(buffer, rows)
    else:
        label_arrays: dict[str, Any] = {} if labels is None else {"labels": labels}
        np.savez_compressed(buffer, samples=rows, **label_arrays)
    replace_file(path, buffer.getvalue())


def check_rows_target(path: Path, alphabet: str | None, overwrite: bool, *others: str) -> None:
    """Refuses a file that rows could not be written to in the end; ``others`` are suffixes to allow besides.

    Raises:
        FileExistsError, FileNotFoundError, ValueError: as ``check_target``, or one of sequences where there
            are no letters to write.
    """
    check_target(path, (*SUFFIXES, *others, *SEQUENCES), overwrite)
    if alphabet is None and path.name.lower().endswith(SEQUENCES):
        raise ValueError(f"out: expected a machine or data of sequences for {path.name}, received others")


def spelt(
    rows: NDArray[Any], alphabet: str, source: DataSet | None, other_columns: Sequence[Series] = ()
) -> Frame:
    """Returns sequences as a table: names, those of their source or 1, 2, …, letters, and other columns."""
    names = _row_names(source, len(rows)) or [str(k + 1) for k in range(len(rows))]
    cells = {"name": names, "sequence": spell(np.nan_to_num(rows, nan=-1), alphabet)}
    columns = [Series(name, np.array(values, object), "str") for name, values in cells.items()]
    return Frame((*columns, *other_columns), TEXT)


def _row_names(source: DataSet | None, rows: int) -> Sequence[str] | None:
    """Returns the names of sequences in their source; None where not all of these rows have one."""
    names = [] if source is None or source.alignment is None else source.alignment.names
    return names if len(names) == rows and all(names) else None


def _frame(rows: NDArray[Any] | Frame, names: Sequence[str] | None, labels: Series | None) -> Frame:
    """Rows and labels as one table, in the order of the names where these are known."""
    frame = rows if isinstance(rows, Frame) else frame_of(rows)
    columns, order = list(frame.columns), list(names or ())
    data_names = [name for name in order if labels is None or name != labels.name]
    if not isinstance(rows, Frame) and len(data_names) == len(columns):
        columns = [replace(cells, name=name) for cells, name in zip(columns, data_names, strict=True)]
    if labels is not None:
        column_index = order.index(str(labels.name)) if labels.name in order else len(columns)
        columns.insert(column_index, labels)
    return Frame(tuple(columns), frame.library)
