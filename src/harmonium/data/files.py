"""One door to data: a file of any known format, a folder of images, or a built-in name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from harmonium.data import toy
from harmonium.data._frame_files import read_feather, read_parquet
from harmonium.data._read_arrays import read_hdf5, read_idx, read_images, read_npy, read_npz
from harmonium.data._text_files import read_text
from harmonium.data.dataset import DataSet
from harmonium.data.toy_family import FAMILY, protein_family
from harmonium.sequences import SUFFIXES, Alignment, align, read_alignment

Reader = Callable[[Path], tuple[Any, ...]]  # samples, labels, and names and types of columns where known

# Where sets of images lie without being asked for: beside the project, and where Debian's packages put them.
_DATA_FOLDERS = ("../shared/data", "/usr/share/datasets")
# Columns of labelled alignments by their names, as annaDCA has them.
_SEQUENCE, _NAME = ("sequence", "sequences"), ("name", "id", "")

_FORMATS: list[tuple[str, str, Reader]] = [
    (r"\.npy", "a NumPy array", read_npy),
    (r"\.npz", "a NumPy or scipy sparse archive", read_npz),
    (r"\.csv(\.gz)?", "comma-separated numbers or text", read_text),
    (r"\.tsv(\.gz)?", "tab-separated numbers or text", partial(read_text, delimiter="\t")),
    (r"\.xlsx", "a spreadsheet of numbers or text", read_text),
    (r"\.parquet", "Parquet", read_parquet),
    (r"\.feather", "Feather", read_feather),
    (r"(\.idx|idx\d-ubyte)(\.gz)?", "IDX", read_idx),
    (r"\.(h5|hdf5)", "HDF5", read_hdf5),
]


def read(
    source: str | os.PathLike[str],
    *,
    labels_apart: bool = True,
    alphabet: str = "auto",
    unknown: str = "gap",
    missing_words: str | Sequence[str] = (),
    known: Collection[str] = (),
) -> DataSet:
    """Read samples, one per row, with labels where the source has them.

    - ``.npy``: mapped from the file, not read.
    - ``.npz``: the array ``samples``, ``images``, ``X`` or ``data``, or the only array; labels under
      ``labels`` or ``y``. Or a matrix written by ``scipy.sparse.save_npz``.
    - ``.csv``, ``.tsv``, each also with ``.gz``: decimal numbers, text and missing cells, with an optional
      header line; a column headed ``label`` or ``labels`` becomes labels. A first line with text is a header
      where the text stands above numbers, or where none of its cells stands in its column again; a doubt is
      a warning. A column with text, or with a number such as 00123, is text.
    - ``.xlsx``: the first sheet, as of a ``.csv`` (needs openpyxl).
    - ``.parquet``, ``.feather``: as of a ``.csv``, with the columns' types and categories (needs polars, or
      pandas with pyarrow).
    - ``.idx``, ``*-idx3-ubyte``, each also with ``.gz``: labels from the file beside it whose name has
      ``labels`` for ``images`` (and ``idx1`` for ``idx3``). Bytes of 256 MiB and more that are not
      compressed are mapped, not read.
    - ``.h5``, ``.hdf5``: the datasets ``samples`` and ``labels`` of the file itself (needs h5py).
      Two-dimensional samples stay in the file, others are read.
    - ``.fasta``, ``.fa``, ``.a2m``, ``.a3m``, ``.aln``, ``.clustal``, ``.sto``, ``.stk``, ``.stockholm``,
      ``.txt``, each also with ``.gz``: aligned sequences, one a row,
      as places of their letters in the alphabet (``harmonium.sequences.read_alignment``). A table with a
      column headed ``sequence``, of aligned sequences, is an alignment too; its other columns stand beside
      it, and one of them may be the label.
    - a folder: its images in the order of their names, all of one size and kind.
    - a name in ``harmonium.data.BUILT_IN``, which tells where each of these sets comes from, as ``harmonium
      data --help`` does. A file of such a name is read as ``./name``.

    Samples with more than two dimensions are flattened to rows. The dtype stays the file's: uint8 images
    are 0..255. Compressed, sparse and unwritten data may be 256 times as large as their file, and 64 MiB
    in any case; the variable ``HARMONIUM_READ_LIMIT``, in bytes, allows more or less.

    Args:
        source: a path, or a built-in name.
        labels_apart: whether a column headed ``label`` or ``labels`` becomes labels; else it is one of the
            columns, and may have missing cells.
        alphabet: Alphabet of files of sequences, as ``harmonium.sequences.read_alignment`` takes it.
        unknown: Reading of letters such as X in files of sequences, "gap", "missing" or "error".
        missing_words: words for missing cells of text files beside the usual ones: "?,-" or ["?", "-"];
            semicolons where a word has a comma. 99 stands for 99.0 too.
        known: Names of columns of text files that are read as text, such as 00123, without a warning.

    Raises:
        FileNotFoundError: no such path, or MNIST or Fashion-MNIST is nowhere.
        ImportError: HDF5 without h5py, spreadsheets without openpyxl, Parquet and Feather without a library
            that reads them.
        ValueError: an unknown format, or a file that is empty, damaged, foreign or without samples; the text
            names the file and the reason.
    """
    if isinstance(source, str) and source in BUILT_IN:
        return BUILT_IN[source][0]()
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(
            f"{source}: no such file or folder, and not a built-in name ({', '.join(BUILT_IN)})"
        )
    form, reader = _format(path)
    if reader is read_alignment:
        reader = partial(_read_sequences, alphabet=alphabet, unknown=unknown)
    elif form.endswith("text"):
        reader = partial(
            cast(Callable[..., tuple[Any, ...]], reader), missing_words=missing_words, known=known
        )
    try:
        if path.is_file() and path.stat().st_size == 0:
            raise ValueError("the file is empty")
        samples, labels, *columns = reader(path)
        dataset = _with_sequences(DataSet.of(samples, labels, path.name, *columns), alphabet, unknown)
        return dataset.labels_apart() if labels_apart else dataset
    except ImportError:
        raise
    except Exception as error:  # decoders of damaged files raise almost anything
        reason = str(error).removeprefix("X: ").removeprefix(f"path: {path}: ") or type(error).__name__
        raise ValueError(f"{path}: cannot be read as {form}: {reason}") from error


def _format(path: Path) -> tuple[str, Reader]:
    if path.is_dir():
        return "a folder of images", read_images
    bare = path.name.lower().removesuffix(".gz")
    if bare.endswith(SUFFIXES):
        return "aligned sequences", read_alignment
    for pattern, form, reader in _FORMATS:
        if re.search(pattern + "$", path.name, re.IGNORECASE):
            return form, reader
    raise ValueError(
        f"{path}: expected a name that ends in .npy, .npz, .csv[.gz], .tsv[.gz], .xlsx, .parquet, .feather, "
        ".idx[.gz], idx3-ubyte[.gz], .h5 or .hdf5, of sequences .fasta, .fa, .a2m, .a3m, .txt or .sto[.gz], "
        "or a folder of images; other spreadsheets can be saved as .csv"
    )


def _read_sequences(path: Path, alphabet: str, unknown: str) -> tuple[Any, ...]:
    """The codes of an alignment, NaN where a letter is missing, and the alignment."""
    alignment = read_alignment(path, alphabet=alphabet, unknown=unknown)
    return _codes_of(alignment), None, None, None, None, alignment


def _codes_of(alignment: Alignment) -> Any:
    """Returns the codes of an alignment, NaN where a letter is missing."""
    holes = alignment.codes < 0
    return np.where(holes, np.float32(np.nan), alignment.codes) if holes.any() else alignment.codes


def _with_sequences(dataset: DataSet, alphabet: str, unknown: str) -> DataSet:
    """Returns a table with a column of aligned sequences as an alignment; other data as they are.

    By the letters alone, "auto", a column of another length in some row, or of other letters, is a text.
    """
    found = [name for name in dataset.names or () if name.lower() in _SEQUENCE]
    if len(found) != 1 or dataset.samples.dtype.kind != "O":
        return dataset
    frame = dataset.frame()
    columns = {str(cells.name): cells for cells in frame.columns}
    texts = columns.pop(found[0]).values.tolist()
    named = next((name for name in columns if name.lower() in _NAME), None)
    titles = None if named is None else [str(title) for title in columns.pop(named).values.tolist()]
    aligned = all(isinstance(text, str) for text in texts) and len(set(map(len, texts))) == 1
    if alphabet == "auto" and not (aligned and len(texts[0]) > 1):
        return dataset
    lacking = [row for row, text in enumerate(texts) if not isinstance(text, str)]
    if lacking:
        raise ValueError(f"row {lacking[0]}: expected a sequence in column {found[0]!r}, received none")
    try:
        alignment = align(texts, titles, alphabet=alphabet, unknown=unknown)
    except ValueError:
        if alphabet == "auto":
            return dataset
        raise
    beside = f"; beside them are {', '.join(map(repr, columns))}, of which one may be the label"
    said = f"column {found[0]!r} holds the sequences{beside if columns else ''}"
    alignment = alignment._replace(notes=(said, *alignment.notes))
    codes = _codes_of(alignment)
    sequences = DataSet.of(codes, None, dataset.name, texts=dataset.texts, alignment=alignment)
    return replace(sequences, beside=tuple(columns.values()))


def _read_mnist(file: str, name: str) -> DataSet:
    variable, kind = os.environ.get("HARMONIUM_DATA"), name.removesuffix("-test")
    named = [Path(variable, kind)] if variable else []
    if variable and kind == "mnist":  # the files of both sets have the same names
        named = [Path(variable), *named]
    folders = [*named, *(Path(parent, kind) for parent in _DATA_FOLDERS)]
    for folder in folders:
        for path in (folder / f"{file}.gz", folder / file):
            if path.is_file():
                return replace(read(path), name=name)
    unset = "" if variable else " ($HARMONIUM_DATA is not set)"
    raise FileNotFoundError(
        f"{name}: {file}[.gz] was looked for in {', '.join(map(str, folders))} and not found{unset}; "
        + _remedy(kind)
    )


def _remedy(kind: str) -> str:
    """Returns what makes MNIST, or a set like it, known by its name."""
    files = "train-images-idx3-ubyte, train-labels-idx1-ubyte and those of t10k, each also with .gz"
    own = f"put {files}, into a folder {kind}, and set HARMONIUM_DATA to the folder that holds it"
    package = f"apt install dataset-{kind} on Debian and Ubuntu, or "
    return package + own if kind == "fashion-mnist" else own


def _mnist(kind: str, what: str) -> dict[str, tuple[Callable[[], DataSet], str]]:
    about, test = f"60,000 grey {what} of 28x28 pixels with labels: {_remedy(kind)}", f"{kind}-test"
    return {
        kind: (lambda: _read_mnist("train-images-idx3-ubyte", kind), about),
        test: (lambda: _read_mnist("t10k-images-idx3-ubyte", test), f"10,000 others, as {kind}"),
    }


BUILT_IN: dict[str, tuple[Callable[[], DataSet], str]] = {
    "digits": (
        lambda: DataSet(*toy.digits(), (8, 8), "digits"),
        "1,797 grey digits of 8x8 pixels with labels, those of scikit-learn",
    ),
    "bars-and-stripes": (
        lambda: DataSet(toy.bars_and_stripes(), None, (4, 4), "bars-and-stripes"),
        "32 pictures of 4x4 pixels, 0 and 1",
    ),
    "gaussian-mixture": (
        lambda: DataSet(toy.gaussian_mixture(1000), None, None, "gaussian-mixture"),
        "1,000 draws of three normal distributions in the plane, seed 0",
    ),
    "gaussian-mixture-anisotropic": (
        lambda: DataSet(
            toy.gaussian_mixture(1000, "anisotropic"), None, None, "gaussian-mixture-anisotropic"
        ),
        "as many of three wide and flat ones",
    ),
    FAMILY: (protein_family, "1,500 aligned sequences of a made-up family of proteins"),
    **_mnist("mnist", "digits"),
    **_mnist("fashion-mnist", "pictures of clothes"),
}
"""Readers of sets of data by their names, and what these are and where they come from."""
