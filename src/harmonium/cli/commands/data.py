"""``harmonium data``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harmonium.cli import options
from harmonium.cli.output import Listing, working
from harmonium.cli.rows_file import SEQUENCES, TABLES, check_rows_target, spelt, write_array, write_rows
from harmonium.data import BUILT_IN, DataSet, Rows, parse_arguments, read as read_data
from harmonium.data.dataset import dense
from harmonium.report import image_grid
from harmonium.tables import IGNORE, Table, name_of, read_kinds, without_unit

_ENTRIES = 1 << 20  # of a chunk that is described: 8 MiB in float64
_DRAWN = 100  # rows of a picture

EXAMPLES = (
    "harmonium data digits --out digits.png",
    "harmonium data images/ --out images.npz",
    "harmonium data family.fasta.gz --reweight 0.8",
)
LISTED = ("Built-in names:", *(f"{name}: {about}" for name, (_, about) in BUILT_IN.items()))


def data(
    source: options.Data,
    out: Path | None = None,
    image_shape: options.ImageShape | None = None,
    kinds: options.Kinds | None = None,
    read: options.Read | None = None,
    alphabet: options.Alphabet | None = None,
    reweight: options.Reweight | None = None,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Describe DATA; convert them, draw them.

    Args:
        source: a file, a folder of images, or a built-in name.
        out: convert: a file that ends in .npy, .npz, .csv, .tsv, .parquet, .feather, or of sequences in
            .fasta, .fa, .a3m, each also with .gz; .png draws the first 100 images.
    """
    columns = read_kinds(kinds) if kinds else {}
    table = out is not None and out.suffix.lower() in TABLES  # labels then keep their place
    reading = parse_arguments(read or ())
    with working("reading the data"):
        dataset = read_data(source, labels_apart=not table, alphabet=alphabet or "auto", **reading)
    weights = dataset.row_weights(reweight)
    with working("looking at the columns"):
        result = _describe(dataset, columns)
    if weights is not None:
        result["effective_rows"] = float(weights.sum())
    if out is None:
        return result
    letters = alphabet if dataset.alignment is None else dataset.alignment.alphabet
    check_rows_target(out, letters, overwrite, ".png")
    shape = options.image_shape_of(image_shape, dataset.image_shape, needed=out.suffix.lower() == ".png")
    _convert(replace(dataset, image_shape=shape or None), out, letters)
    return {**result, "files": [out]}


def _describe(dataset: DataSet, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is known of data: their size, range, columns and letters."""
    rows, columns = dataset.samples.shape
    result: dict[str, Any] = {"data": dataset.name, "rows": rows, "columns": columns}
    if dataset.labels is not None:
        result["different_labels"] = len(np.unique(dataset.labels))
    if dataset.samples.dtype.kind != "O":  # no table with text
        result |= _describe_numbers(dataset)
    if dataset.samples.dtype.kind == "O" or dataset.tabular or kinds:
        result["table"] = _columns(dataset, kinds)
    alignment = dataset.alignment
    if alignment is not None:
        result |= {"alphabet": alignment.alphabet, "gaps": float((alignment.codes == 0).mean())}
    notes = dataset.notes if alignment is None else (*dataset.notes, *alignment.notes)
    return result | ({"read": "; ".join(notes)} if notes else {})


def _describe_numbers(dataset: DataSet) -> dict[str, Any]:
    """Returns the type, range and shape of numbers, read a chunk at a time."""
    rows = Rows.of(dataset.samples, dtype=torch.float64, missing=True, name=dataset.name)
    low, high, binary, missing = float("inf"), -float("inf"), True, 0
    for chunk in rows.chunks(max(1, _ENTRIES // rows.width)):
        seen = chunk[~chunk.isnan()]
        missing += chunk.numel() - seen.numel()
        if seen.numel():
            low, high = min(low, float(seen.min())), max(high, float(seen.max()))
        binary = binary and bool(((seen == 0) | (seen == 1)).all())
    return {
        "dtype": str(dataset.samples.dtype),
        **({"missing_cells": missing} if missing else {}),
        **({"minimum": low, "maximum": high, "binary": binary} if low <= high else {}),
        "image_shape": None if dataset.image_shape is None else "x".join(map(str, dataset.image_shape)),
    }


def _columns(dataset: DataSet, kinds: Mapping[str, Any]) -> Listing:
    """Lists the columns of a table, each with the kind of unit that training would choose for it."""
    frame = dataset.frame()
    reasons = without_unit(frame, kinds)
    learned = len(reasons) < len(frame.columns)
    table = Table.fit(frame, {**kinds, **dict.fromkeys(reasons, IGNORE)}) if learned else None
    known = {column.name: column for column in (table.columns if table else ())}
    listing = Listing()
    for cells in frame.columns:
        column, missing = known.get(name_of(cells)), int(cells.missing.sum())
        kind = IGNORE if column is None else column.kind
        values = reasons[cells.name] if column is None else column.holds(cells)
        listing.append({"column": str(cells.name), "kind": kind, "missing": missing, "values": values})
    return listing


def _convert(dataset: DataSet, out: Path, letters: str | None) -> None:
    """Writes data to a file of another form, labels at their place in a table."""
    suffix, alignment, samples = out.suffix.lower(), dataset.alignment, dataset.samples
    if out.name.lower().endswith(SEQUENCES):
        write_rows(out, dataset.numbers(), source=dataset, alphabet=letters)
    elif suffix in TABLES and alignment is not None:
        write_rows(out, spelt(dataset.numbers(), alignment.alphabet, dataset, dataset.other_columns))
    elif suffix in TABLES:
        labels = None if dataset.labels is None else dataset.take_label("label")[1]
        write_rows(out, dataset.frame(), dataset.names, labels)
    elif suffix == ".png":
        image_grid(dense(samples[:_DRAWN]), dataset.image_shape, None, out)
    else:
        array = dataset.numbers() if samples.dtype.kind == "O" else dense(samples)
        write_array(out, array.reshape(len(array), *(dataset.image_shape or (-1,))), dataset.labels)
