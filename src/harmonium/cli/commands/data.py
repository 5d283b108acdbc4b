"""``harmonium data``."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from harmonium._fetch import is_sparse
from harmonium._settings import Count, Interval, Setting
from harmonium._storage import replace_file
from harmonium.cli import options
from harmonium.cli.coding import naming, naming_alphabet, read_kinds, weights_of, without_units
from harmonium.cli.output import Listing, check_target, in_answers
from harmonium.cli.rows_file import SEQUENCES, TABLES, array_bytes, check_sequences, spelt, write_rows
from harmonium.data import BUILT_IN, DataSet, Rows, read, write_weights
from harmonium.report import image_grid
from harmonium.sequences import split_by_similarity, write_fasta
from harmonium.tables import IGNORE, Table, name_of, without_unit

_ENTRIES = 1 << 20  # of a chunk that is described: 8 MiB in float64


EXAMPLES = (
    "harmonium data digits --grid digits.png",
    "harmonium data images/ --out images.npz",
    "harmonium data family.fasta.gz --reweight 0.8 --out-weights family.weights",
)
LISTED = ("Built-in names:", *(f"{name}: {about}" for name, (_, about) in BUILT_IN.items()))


def data(
    source: options.Data,
    out: Path | None = None,
    grid: Path | None = None,
    rows: Count = 100,
    columns: options.Columns | None = None,
    image_shape: options.ImageShape | None = None,
    kinds: options.Kinds | None = None,
    missing_words: options.MissingWords | None = None,
    alphabet: options.Alphabet | None = None,
    reweight: options.Reweight | None = None,
    out_weights: Annotated[Path | None, Setting(metavar="FILE")] = None,
    hold_out_clusters: Annotated[
        float | None, Setting(Interval(0.0, 1.0, "neither"), metavar="FRACTION")
    ] = None,
    out_held_out: Annotated[Path | None, Setting(metavar="FILE")] = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Describe DATA; convert them, draw them.

    Args:
        source: a file, a folder of images, or a built-in name.
        out: convert: a file that ends in .npy, .npz, .csv, .tsv, .parquet, .feather, or of sequences in
            .fasta, .fa, .a3m, each also with .gz.
        grid: draw the first rows: a file that ends in .png.
        rows: how many rows to draw.
        out_weights: write the weights of --reweight, a number a line, which train --weights, plmc and bmDCA
            read: a file that ends in .txt, .dat or .weights.
        hold_out_clusters: leave this share of the sequences out of OUT, whole clusters of which any two agree
            in the share of columns of --reweight (0.8 if not given), directly or through others.
        out_held_out: file for the sequences that are held out.
    """
    if (hold_out_clusters is None) != (out_held_out is None) or (out_held_out is not None and out is None):
        raise ValueError(
            "hold_out_clusters: expected together with --out and --out-held-out, received one without another"
        )
    for name, path in (("out", out), ("out_held_out", out_held_out)):
        if hold_out_clusters is not None and path is not None:
            check_target(path, name, SEQUENCES, overwrite)
    if out_weights is not None:
        if reweight is None:
            raise ValueError(f"out_weights: expected together with --reweight, received {out_weights} alone")
        check_target(out_weights, "out_weights", (".txt", ".dat", ".weights"), overwrite)
    if out is not None:
        check_target(out, "out", (*TABLES, ".npy", ".npz", *SEQUENCES), overwrite)
    if grid is not None:
        check_target(grid, "grid", (".png",), overwrite)
    with naming_alphabet(alphabet):
        told = read_kinds(kinds)
        known = without_units(told)
        dataset = read(source, alphabet=alphabet or "auto", missing_words=missing_words or (), known=known)
    dataset.warn_of_unseen_words()
    letters = alphabet if dataset.alignment is None else dataset.alignment.alphabet
    if out is not None:
        check_sequences(out, letters)
    shape = options.image_shape_of(image_shape, dataset.image_shape, needed=grid is not None)
    with naming(dataset.name):
        result = _describe(dataset, told)
        if dataset.alignment is not None:
            beside = {str(x.name): len({*x.values[~x.missing].tolist()}) for x in dataset.beside}
            result |= {"different": beside} if beside else {}
            result |= {"alphabet": letters, "gaps": float((dataset.alignment.codes == 0).mean())}
            if dataset.alignment.notes:
                result["read"] = "; ".join(dataset.alignment.notes)
    if (weights := weights_of(dataset, reweight)) is not None:
        result["effective_rows"] = float(weights.sum())
        if out_weights is not None:
            write_weights(out_weights, weights, overwrite=True)
    if grid is not None:
        first = dataset.samples[:rows]
        image_grid(first.toarray() if is_sparse(first) else np.asarray(first), shape, columns, grid)
    if out is not None:
        if hold_out_clusters is not None and out_held_out is not None:
            paths = out, out_held_out
            result |= _split(dataset, paths, hold_out_clusters, 0.8 if reweight is None else reweight, seed)
        elif out.name.lower().endswith(SEQUENCES):
            write_rows(out, dataset.numbers(), None, None, source=dataset, alphabet=letters)
        else:
            _convert(dataset, out, source, missing_words or ())
    written = [path for path in (out, grid, out_weights, out_held_out) if path is not None]
    return {**result, "files": written} if written else result


def _split(
    dataset: DataSet, paths: tuple[Path, Path], fraction: float, threshold: float, seed: int
) -> dict[str, Any]:
    """Writes the sequences to learn from and those that are held out; returns how many these are."""
    alignment = dataset.alignment
    if alignment is None:
        raise ValueError(f"hold_out_clusters: expected a file of sequences, received {dataset.name}")
    names = alignment.names if all(alignment.names) else [str(k + 1) for k in range(len(alignment.codes))]
    parts = split_by_similarity(alignment.codes, fraction, threshold, seed=seed)
    for path, index in zip(paths, parts, strict=True):
        chosen = [names[k] for k in index.tolist()]
        write_fasta(path, alignment.codes[index.numpy()], alignment.alphabet, chosen, overwrite=True)
    return {"rows_to_learn_from": len(parts[0]), "rows_held_out": len(parts[1])}


def _describe(dataset: DataSet, kinds: Mapping[str, Any]) -> dict[str, Any]:
    labels = None if dataset.labels is None else len(np.unique(dataset.labels))
    if dataset.samples.dtype.kind == "O":  # a table with text or empty cells
        rows, columns = dataset.samples.shape
        known = {"data": dataset.name, "rows": rows, "columns": columns, "different_labels": labels}
        return {**known, "table": _columns(dataset, kinds)}
    rows = Rows.of(dataset.samples, dtype=torch.float64)
    low, high, binary = float("inf"), -float("inf"), True
    for chunk in rows.chunks(max(1, _ENTRIES // rows.width)):
        low, high = min(low, float(chunk.min())), max(high, float(chunk.max()))
        binary = binary and bool(((chunk == 0) | (chunk == 1)).all())
    return {
        "data": dataset.name,
        "rows": len(rows),
        "columns": rows.width,
        "dtype": str(dataset.samples.dtype),
        "minimum": low,
        "maximum": high,
        "binary": binary,
        "image_shape": None if dataset.image_shape is None else "x".join(map(str, dataset.image_shape)),
        "different_labels": labels,
        "in_memory": rows.in_memory,
        "sparse": is_sparse(dataset.samples),
        **({"table": _columns(dataset, kinds)} if dataset.tabular or kinds else {}),
    }


def _columns(dataset: DataSet, kinds: Mapping[str, Any]) -> Listing:
    """Lists the columns of a table, each with the kind of unit that training would choose for it."""
    frame = dataset.frame()
    reasons = without_unit(frame, kinds)
    learned = len(reasons) < len(frame.columns)
    table = Table.fit(frame, {**kinds, **dict.fromkeys(reasons, IGNORE)}) if learned else None
    known = {column.name: column for column in (table.columns if table else ())}
    found = Listing()
    for cells in frame.columns:
        column = known.get(name_of(cells))
        kind, values = (
            (IGNORE, in_answers(reasons[cells.name]))
            if column is None
            else (column.kind, column.holds(cells))
        )
        missing = int(cells.missing.sum())
        found.append({"column": str(cells.name), "kind": kind, "missing": missing, "values": values})
    return found


def _convert(dataset: DataSet, out: Path, source: str, missing_words: str | Sequence[str]) -> None:
    samples = dataset.samples
    if out.suffix.lower() in TABLES:
        if dataset.beside and dataset.alignment is not None:
            alphabet = dataset.alignment.alphabet
            frame = spelt(dataset.numbers(), alphabet, dataset, dataset.beside)
            write_rows(out, frame, None, None, dialect=dataset.dialect)
            return
        table = read(source, labels_apart=False, missing_words=missing_words, known=dataset.names or ())
        labels = None if table.labels is None else table.take_label("label")[1]
        write_rows(out, table.frame(), None, None, table.names, labels, source=table)
        return
    if samples.dtype.kind == "O":
        with naming(dataset.name):
            samples = dataset.frame().numbers()
    if is_sparse(samples) and out.suffix.lower() == ".npz" and dataset.labels is None:
        from scipy.sparse import save_npz

        buffer = io.BytesIO()
        save_npz(buffer, samples)
        replace_file(out, buffer.getvalue())
        return
    array = samples.toarray() if is_sparse(samples) else np.asarray(samples[()])
    if dataset.image_shape is not None:
        array = array.reshape(len(array), *dataset.image_shape)
    replace_file(out, array_bytes(out.suffix.lower(), array, dataset.labels))
