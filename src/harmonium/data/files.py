"""Files: samples of any known format, folders of images and built-in names, weights of rows and distances."""

from __future__ import annotations

import gzip
import math
import os
import re
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium._size_limit import check_claim
from harmonium.data import toy
from harmonium.data.dataset import DataSet
from harmonium.data.frame import is_number
from harmonium.data.table_files import COLUMNS, SHEETS, read_table
from harmonium.data.toy_family import FAMILY, family_distances, protein_family
from harmonium.sequences import SUFFIXES, Alignment, align, read_alignment

Parts = dict[str, Any]  # of a ``DataSet``

# Where sets of images lie without being asked for: beside the project, and where Debian's packages put them.
_DATA_FOLDERS = ("../shared/data", "/usr/share/datasets")
# Columns of labelled alignments by their names, as annaDCA has them.
_SEQUENCE, _NAME = ("sequence", "sequences"), ("name", "id", "")


def read(
    source: str | os.PathLike[str],
    *,
    labels_apart: bool = True,
    alphabet: str = "auto",
    unknown: str = "gap",
    text: Collection[str] = (),
    like: Mapping[str, Any] | None = None,
    **options: Any,
) -> DataSet:
    """Reads samples, one per row, with labels where the source has them.

    - ``.npy``, mapped and not read; ``.npz``: the array ``samples``, ``images``, ``X`` or ``data``, or the
      only one, with ``labels`` or ``y``, or a matrix written by ``scipy.sparse.save_npz``.
    - ``.csv``, ``.tsv``, ``.tab``, ``.dat``, ``.data``, each also with ``.gz``, ``.bz2`` or ``.xz``, and
      ``.xlsx``, ``.xls``, ``.ods``: a table, by pandas. A doubt about its first line is a warning; text with
      one reading is read as ``as_types`` does; a number such as 00123 makes text of its column.
    - ``.parquet``, ``.feather``: tables whose columns have types, by pandas with pyarrow, or else polars.
    - ``.idx``, ``*-idx3-ubyte``, each also with ``.gz``: labels from the file beside it whose name has
      ``labels`` for ``images`` (and ``idx1`` for ``idx3``).
    - ``.h5``, ``.hdf5``: the datasets ``samples``, which stay in the file, and ``labels`` (needs h5py).
    - files of sequences (``harmonium.sequences.read_alignment``), and a table with a column headed
      ``sequence``: aligned sequences, as places of their letters in the alphabet.
    - a folder: its images in the order of their names, all of one size and kind.
    - a name in ``harmonium.data.BUILT_IN``. A file of such a name is read as ``./name``.

    Samples with more than two dimensions are flattened to rows. The dtype stays the file's: uint8 images
    are 0..255. Compressed, sparse and unwritten data may be 256 times as large as their file, and 64 MiB
    in any case; the variable ``HARMONIUM_READ_LIMIT``, in bytes, allows more or less.

    Args:
        source: a path, or a built-in name.
        labels_apart: whether a column headed ``label`` or ``labels`` becomes labels; else it is one of the
            columns, and may have missing cells.
        alphabet: Alphabet of files of sequences, as ``harmonium.sequences.read_alignment`` takes it.
        unknown: What other letters of sequences become, likewise.
        text: Names of columns of a table that are text, whatever their cells look like.
        like: Arguments that ``read`` of an earlier file has, which hold where ``options`` has none. Decimal
            commas are expected where cells have a place for them: not between commas without quotation marks.
        options: Arguments of pandas' reader of tables, such as ``sep``, ``header``, ``comment``, ``dtype``,
            ``encoding``, ``sheet_name``, or ``na_values`` (beside the usual words for missing cells).
            ``decimal`` and ``dayfirst`` also tell how ``as_types`` reads what can be read in two ways, and
            a ``dtype`` of "float" that a column such as USD 5 or (1.50) is one of numbers.

    Raises:
        FileNotFoundError: no such path, or MNIST or Fashion-MNIST is nowhere.
        ImportError: a package that such a file needs is not there; the text names the extra.
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
    try:
        if path.is_file() and path.stat().st_size == 0:
            raise ValueError("the file is empty")
        if reader is read_alignment:
            parts = _sequences(read_alignment(path, alphabet=alphabet, unknown=unknown))
        elif reader is read_table:
            parts = read_table(path, options, text, like or {})
        else:
            parts = reader(path)
        dataset = _with_sequences(DataSet.of(name=path.name, **parts), alphabet, unknown)
        return dataset.labels_apart() if labels_apart else dataset
    except ImportError:
        raise
    except Exception as error:  # decoders of damaged files raise almost anything
        reason = str(error).removeprefix("X: ").removeprefix(f"path: {path}: ") or type(error).__name__
        advice = "; a sheet can be saved as .csv" if form == "a spreadsheet" else ""
        raise ValueError(f"{path}: cannot be read as {form}: {reason}{advice}") from error


def _format(path: Path) -> tuple[str, Callable[..., Any]]:
    if path.is_dir():
        return "a folder of images", _read_images
    if path.name.lower().removesuffix(".gz").endswith(SUFFIXES):
        table = " (a table's name ends in .csv or .tsv)" if ".txt" in path.name.lower() else ""
        return f"aligned sequences{table}", read_alignment
    for pattern, form, reader in _FORMATS:
        if re.search(pattern + "$", path.name, re.IGNORECASE):
            return form, reader
    raise ValueError(
        f"{path}: expected a name that ends in .npy, .npz, .csv[.gz], .tsv[.gz], .xlsx, .parquet, .feather, "
        ".idx[.gz], idx3-ubyte[.gz], .h5 or .hdf5, of sequences .fasta, .fa, .a2m, .a3m, .txt or .sto[.gz], "
        "or a folder of images"
    )


def _sequences(alignment: Alignment) -> Parts:
    """Returns the parts of an alignment: its codes, NaN where a letter is missing, and itself."""
    holes = alignment.codes < 0
    codes = np.where(holes, np.float32(np.nan), alignment.codes) if holes.any() else alignment.codes
    return {"samples": codes, "alignment": alignment}


def _with_sequences(dataset: DataSet, alphabet: str, unknown: str) -> DataSet:
    """Returns a table with a column of aligned sequences as an alignment; other data as they are.

    By the letters alone, "auto", a column of another length in some row, or of other letters, is a text.
    """
    sequence_columns = [name for name in dataset.names or () if name.lower() in _SEQUENCE]
    if len(sequence_columns) != 1 or dataset.samples.dtype.kind != "O":
        return dataset
    frame = dataset.frame()
    columns = {str(cells.name): cells for cells in frame.columns}
    texts = columns.pop(sequence_columns[0]).values.tolist()
    named = next((name for name in columns if name.lower() in _NAME), None)
    titles = None if named is None else [str(title) for title in columns.pop(named).values.tolist()]
    aligned = all(isinstance(text, str) for text in texts) and len(set(map(len, texts))) == 1
    if alphabet == "auto" and not (aligned and len(texts[0]) > 1):
        return dataset
    if None in texts:
        raise ValueError(
            f"row {texts.index(None)}: expected a sequence in column {sequence_columns[0]!r}, received none"
        )
    try:
        alignment = align(texts, titles, alphabet=alphabet, unknown=unknown)
    except ValueError:
        if alphabet == "auto":
            return dataset
        raise
    others_note = f"; beside them are {', '.join(map(repr, columns))}, of which one may be the label"
    said = f"column {sequence_columns[0]!r} holds the sequences{others_note if columns else ''}"
    alignment = alignment._replace(notes=(said, *alignment.notes))
    sequences = DataSet.of(name=dataset.name, read=dataset.read, **_sequences(alignment))
    return replace(sequences, other_columns=tuple(columns.values()))


# Arrays
# ---------------------------------------------------------------------------------

_SAMPLES = ("samples", "images", "X", "data")
_LABELS = ("labels", "y")


def read_npy(path: Path) -> Any:
    """Returns the array of a file, mapped and not read."""
    array, size = np.load(path, mmap_mode="r", allow_pickle=False), path.stat().st_size
    if array.offset + array.nbytes != size:  # rows that the header leaves out would go without a word
        claimed = array.offset + array.nbytes
        raise ValueError(f"expected {claimed} bytes for shape {array.shape}, received {size}")
    return array


def _read_npz(path: Path) -> Parts:
    """Samples and labels by their usual names, or the only array, or a matrix saved by ``scipy.sparse``."""
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    check_claim(unpacked, path.stat().st_size, "the archive")
    with np.load(path, allow_pickle=False) as archive:
        names = archive.files
        if {"format", "shape"} <= set(names):
            return {"samples": _read_sparse(path)}
        labels = next((name for name in _LABELS if name in names), None)
        others = [name for name in names if name not in _LABELS]
        chosen = [name for name in _SAMPLES if name in names][:1] or others
        if len(chosen) != 1:
            raise ValueError(
                f"expected an array named {', '.join(_SAMPLES[:-1])} or {_SAMPLES[-1]}, or one array only; "
                f"it holds {', '.join(names) or 'none'}"
            )
        return {"samples": archive[chosen[0]], "labels": None if labels is None else archive[labels]}


def _read_sparse(path: Path) -> Any:
    from scipy import sparse  # slow to import, and only needed here

    matrix = sparse.load_npz(path)
    # scipy's compiled loops trust the indices, so damaged ones must not reach them.
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
        if (np.diff(matrix.indptr) < 0).any():  # which scipy does not look at where the last one is 0
            raise ValueError("expected an indptr that never falls")
    # A shape is a mere claim here: CSR keeps an index for every row, and a batch is dense in its columns.
    check_claim(8 * max(matrix.shape), path.stat().st_size, f"the shape {matrix.shape}")
    return matrix


def import_h5py(reader: str = "") -> Any:
    """Returns h5py; ImportError: it is not there, for ``reader``."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            f'{reader}reading HDF5 needs h5py; install it with pip install "harmonium[hdf5]"'
        ) from error
    return h5py


def _read_hdf5(path: Path) -> Parts:
    """The dataset ``samples``, left in its file, and ``labels``, read."""
    h5py = import_h5py(f"{path}: ")
    file = h5py.File(path, "r")
    try:
        names = ["samples", *({"labels"} & {*file})]
        parts = {name: inside(file, name) for name in names}
        for name, dataset in parts.items():
            if not isinstance(dataset, h5py.Dataset):
                raise ValueError(f"expected a dataset named {name}; it holds {', '.join(file) or 'none'}")
            check_dataset(dataset, name, path.stat().st_size)
        return {"samples": parts["samples"], "labels": parts["labels"][()] if "labels" in parts else None}
    except Exception:
        file.close()  # the samples, once returned, keep it open
        raise


def inside(file: Any, name: str) -> Any:
    """Returns the object of this name, or None; refuses a link, which may lead to any other file."""
    import h5py

    links, key = file.id.links, name.encode()
    if not links.exists(key):
        return None
    if links.get_info(key).type != h5py.h5l.TYPE_HARD:
        raise ValueError(f"{name}: expected data in the file itself, received a link")
    return file[name]


def check_dataset(dataset: Any, name: str, size: int) -> None:
    """Refuse data that lie in other files, have no fixed size, or are more than the file's size allows."""
    if dataset.external or dataset.is_virtual:
        raise ValueError(f"{name}: expected data in the file itself, received a reference to other files")
    if dataset.shape is None or dataset.dtype.hasobject:
        raise ValueError(f"{name}: expected numbers, or text of a fixed length, received {dataset.dtype}")
    # What was never written, and what is compressed, takes next to no place in the file.
    check_claim(math.prod(dataset.shape) * dataset.dtype.itemsize, size, name)
    if dataset.chunks:
        check_claim(math.prod(dataset.chunks) * dataset.dtype.itemsize, size, f"a chunk of {name}")


# The third byte of an IDX file (LeCun, Cortes & Burges, MNIST); numbers are big-endian.
_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def _read_idx(path: Path) -> Parts:
    """The array, and labels from the file beside it whose name has ``labels`` for ``images``."""
    name = path.name.replace("images", "labels").replace("idx3", "idx1").removesuffix(".gz")
    label_paths = [path.with_name(name), path.with_name(name + ".gz")] if name not in path.name else []
    labels = next((other for other in label_paths if other.is_file()), None)
    try:
        return {"samples": _read_array(path), "labels": None if labels is None else _read_array(labels)}
    except ValueError as error:
        raise ValueError(f"{error} (with labels from {labels})" if labels else str(error)) from error


def _read_array(path: Path) -> Any:
    """The array that the header claims, if the file holds that and no more."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    size = path.stat().st_size
    with opened(path, "rb") as file:
        first = file.read(4)
        if len(first) < 4 or first[:2] != b"\0\0" or first[2] not in _DTYPES:
            raise ValueError("it does not begin as an IDX file")
        dtype, shape = np.dtype(_DTYPES[first[2]]), np.frombuffer(file.read(4 * first[3]), ">u4").tolist()
        claimed = math.prod(shape) * dtype.itemsize
        check_claim(claimed, size, f"the shape {tuple(shape)}")
        content = file.read(claimed + 1)  # one byte beyond, and with it the checksum of gzip
    if len(shape) != first[3] or len(content) != claimed:
        raise ValueError(f"expected {claimed} bytes for shape {tuple(shape)}, received {len(content)}")
    array = np.frombuffer(bytearray(content), dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


_IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
# Pillow knows many more, and starts other programs for some: what a file is called must be what it is.
_PILLOW = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
_CONVERTED = {"1": "L", "P": "RGB"}  # without loss
_KEPT = ("L", "RGB", "I;16", "I", "F")


def _read_images(folder: Path) -> Parts:
    """All pictures in the order of their names; every other file is passed over."""
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in _IMAGES)
    if not paths:
        raise ValueError(f"it holds no image ({', '.join(sorted(_IMAGES))})")
    first = _pixels(paths[0])
    size = sum(path.stat().st_size for path in paths)
    check_claim(len(paths) * first.nbytes, size, f"{len(paths)} images of shape {first.shape}")
    samples = np.empty((len(paths), *first.shape), dtype=first.dtype)
    for i, path in enumerate(paths):
        pixels = _pixels(path)
        if (pixels.shape, pixels.dtype) != (first.shape, first.dtype):
            raise ValueError(
                f"{path.name}: expected shape {first.shape} and dtype {first.dtype} like {paths[0].name}, "
                f"received {pixels.shape} and {pixels.dtype}"
            )
        samples[i] = pixels
    return {"samples": samples}


def _pixels(path: Path) -> Any:
    from PIL import Image  # slow to import, and only needed here

    try:
        with Image.open(path, formats=_PILLOW) as image:
            check_claim(image.width * image.height, path.stat().st_size, f"the size {image.size}")
            mode = _CONVERTED.get(image.mode, image.mode)
            if mode not in _KEPT:
                raise ValueError(
                    f"expected grey levels or RGB without transparency, received mode {image.mode}"
                )
            return np.asarray(image if image.mode == mode else image.convert(mode))
    except Exception as error:  # decoders of damaged files raise almost anything
        raise ValueError(f"{path.name}: {error or type(error).__name__}") from error


# Weights and distances
# ---------------------------------------------------------------------------------

_WEIGHTS = ("weight", "weights")


def weighted(dataset: DataSet, path: Path | None, threshold: float | None) -> DataSet:
    """Returns data with the weights of a file, where there is one.

    Raises:
        FileNotFoundError: no such file.
        ValueError: weights that do not fit the data, or both a file and a threshold.
    """
    if path is None:
        return dataset
    if threshold is not None:
        raise ValueError(f"weights: expected none beside reweight, received {path} and {threshold:g}")
    return replace(dataset, weights=read_weights(path, len(dataset.samples)).numpy())


def read_weights(path: str | Path, rows: int) -> Tensor:
    """Reads weights of rows, one for each in their order.

    Text with a number a line, as plmc, bmDCA, adabmDCA and EVcouplings write it; a table with a column headed
    ``weight``; or a NumPy array in ``.npy``, as the pipelines of EVE and ProteinGym keep it. A weight of 0
    leaves a row out, as plmc does with sequences that it passes over.

    Args:
        path: Path of the file.
        rows: Number of rows of the data.

    Returns:
        (rows,) float64.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another number of weights, or one that is negative or not finite; the message names the
            file and the line.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import harmonium as hm
        >>> with TemporaryDirectory() as folder:
        ...     _ = open(f"{folder}/weights.txt", "w").write("0.5\\n0.5\\n1\\n")
        ...     hm.data.read_weights(f"{folder}/weights.txt", 3)
        tensor([0.5000, 0.5000, 1.0000], dtype=torch.float64)
    """
    path = Path(path)
    values, names = _numbers_of(path, "weights")
    if values.ndim == 2:
        headed = [0] if values.shape[1] == 1 else [j for j, x in enumerate(names) if x.lower() in _WEIGHTS]
        if len(headed) != 1:
            raise ValueError(
                f"weights: {path}: expected a number a line, or one column headed weight, received "
                f"{values.shape[1]} columns {', '.join(map(repr, names))}".rstrip()
            )
        values = values[:, headed[0]]
    if values.shape != (rows,):
        raise ValueError(
            f"weights: {path}: expected {rows}, one for each row of the data, received {len(values)}"
        )
    wrong = [j for j, x in enumerate(values.tolist()) if not 0 <= x < math.inf]
    if wrong or not values.any():
        received = f"{values[wrong[0]]} as number {wrong[0] + 1}" if wrong else f"{rows} times 0"
        expected = "finite numbers of at least 0" if wrong else "one above 0"
        raise ValueError(f"weights: {path}: expected {expected}, received {received}")
    return torch.from_numpy(values)


def read_distances(path: str | Path, sites: int) -> Tensor:
    """Reads distances between the sites of an alignment, from a structure.

    Lines ``i j … distance``, with the distance in the last column, or with columns headed ``i``, ``j`` and
    ``dist`` or ``distance``, as EVcouplings has them. Sites are from 1, or from 0 where a site 0 occurs. Or
    the whole matrix, as text or in ``.npy``. Pairs that the file leaves out are unknown.

    Args:
        path: Path of the file, or "family" for those of ``protein_family``.
        sites: Number of sites.

    Returns:
        (sites, sites) float64, symmetric, NaN where unknown.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another form, or sites that there are not.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import harmonium as hm
        >>> with TemporaryDirectory() as folder:
        ...     _ = open(f"{folder}/pairs.txt", "w").write("1 2 3.8\\n1 3 6.5\\n")
        ...     hm.data.read_distances(f"{folder}/pairs.txt", 3)[0]
        tensor([   nan, 3.8000, 6.5000], dtype=torch.float64)
    """
    if str(path) == FAMILY and sites == len(family_distances()):
        return family_distances()
    path = Path(path)
    values, names = _numbers_of(path, "distances")
    if values.shape == (sites, sites) and not names and sites != 3:
        matrix = torch.from_numpy(values)
        return torch.where(matrix.isnan(), matrix.t(), matrix)
    if values.ndim != 2 or values.shape[1] < 3:
        raise ValueError(
            f"distances: {path}: expected lines 'i j distance', or ({sites}, {sites}) numbers, "
            f"received shape {values.shape}"
        )
    ends = [names.index("i"), names.index("j")] if {"i", "j"} <= set(names) else [0, 1]
    headed = [j for j, name in enumerate(names) if name.lower() in ("dist", "distance")]
    pairs, lengths = values[:, ends], values[:, headed[0] if headed else -1]
    first = 0 if (pairs == 0).any() else 1
    for i, j in pairs[~np.isin(pairs, np.arange(first, sites + first)).all(1)].tolist():
        raise ValueError(
            f"distances: {path}: expected pairs of sites from {first} to {sites - 1 + first}, received "
            f"{i:g} {j:g}; sites are columns of the alignment"
        )
    i, j = (pairs.T - first).astype(np.int64)
    distances = np.full((sites, sites), np.nan)
    distances[i, j] = distances[j, i] = lengths
    return torch.from_numpy(distances)


def _numbers_of(path: Path, name: str) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Returns the numbers of a table or an array, and the names above them, () where there are none.

    Spaces, tabs, commas or semicolons separate cells. A cell that is no number, such as the name of a
    sequence, is NaN where another cell of its line is one.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{name}: there is no file {path}")
    if path.suffix.lower() == ".npy":
        return read_npy(path).astype(np.float64), ()
    names, rows = tuple[str, ...](), list[list[float]]()
    for number, line in enumerate(path.read_text("utf-8-sig").splitlines(), 1):
        cells = re.split(r"\s*[,;]\s*|\s+", line.strip())
        if not line.strip() or line.startswith("#"):
            continue
        wrong = ""
        if any(map(is_number, cells)):
            rows.append([float(x) if is_number(x) else math.nan for x in cells])
            width = len(names or rows[0])
            wrong = f"{width} columns" if len(cells) != width else ""
        elif rows or names:
            wrong = "a number"
        else:
            names = tuple(cell.strip('"') for cell in cells)
        if wrong:
            received = repr(line.strip()[:40])
            raise ValueError(f"{name}: {path}: line {number}: expected {wrong}, received {received}")
    if not rows:
        raise ValueError(f"{name}: {path}: expected numbers, received none")
    return np.array(rows, np.float64), names


# Built-in names
# ---------------------------------------------------------------------------------


def _read_mnist(file: str, name: str) -> DataSet:
    variable, kind = os.environ.get("HARMONIUM_DATA"), name.removesuffix("-test")
    # The files of both sets have the same names: those of digits may lie in the folder itself.
    named = [Path(variable), Path(variable, kind)][kind != "mnist" :] if variable else []
    folders = [*named, *(Path(parent, kind) for parent in _DATA_FOLDERS)]
    for folder in folders:
        for path in (folder / f"{file}.gz", folder / file):
            if path.is_file():
                return replace(read(path), name=name)
    unset = "" if variable else " ($HARMONIUM_DATA is not set)"
    raise FileNotFoundError(
        f"{name}: {file}[.gz] was looked for in {', '.join(map(str, folders))} and not found{unset}; "
        + _REMEDIES[kind]
    )


_FILES = "put train-images-idx3-ubyte, train-labels-idx1-ubyte and those of t10k, each also with .gz, into a "
_REMEDIES = {
    kind: f"{package}{_FILES}folder {kind}, and set HARMONIUM_DATA to the folder that holds it"
    for kind, package in {
        "mnist": "",
        "fashion-mnist": "apt install dataset-fashion-mnist on Debian and Ubuntu, or ",
    }.items()
}  # what makes MNIST, and a set like it, known by their names
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
    FAMILY: (protein_family, "1,500 aligned sequences of a made-up family of proteins"),
}
"""Readers of sets of data by their names, and what these are and where they come from."""
for _kind, _shown in {"mnist": "digits", "fashion-mnist": "pictures of clothes"}.items():
    BUILT_IN[_kind] = (
        partial(_read_mnist, "train-images-idx3-ubyte", _kind),
        f"60,000 grey {_shown} of 28x28 pixels with labels: {_REMEDIES[_kind]}",
    )
    BUILT_IN[f"{_kind}-test"] = (
        partial(_read_mnist, "t10k-images-idx3-ubyte", f"{_kind}-test"),
        f"10,000 others, as {_kind}",
    )
_FORMATS: list[tuple[str, str, Callable[..., Any]]] = [
    (r"\.npy", "a NumPy array", lambda path: {"samples": read_npy(path)}),
    (r"\.npz", "a NumPy or scipy sparse archive", _read_npz),
    (r"\.(csv|tsv|tab|dat|data)(\.(gz|bz2|xz))?", "a table of numbers or text", read_table),
    (SHEETS, "a spreadsheet", read_table),
    (COLUMNS, "a table", read_table),
    (r"(\.idx|idx\d-ubyte)(\.gz)?", "IDX", _read_idx),
    (r"\.(h5|hdf5)", "HDF5", _read_hdf5),
]
