"""NumPy and scipy sparse files."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from harmonium.data._claims import check_claim

_SAMPLES = ("samples", "images", "X", "data")
_LABELS = ("labels", "y")
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npy(path: Path) -> tuple[Any, Any]:
    """The array, mapped from its file and not read."""
    with path.open("rb") as file:
        _check_array(file, path.stat().st_size)
    return np.lib.format.open_memmap(path, mode="r"), None


def read_npz(path: Path) -> tuple[Any, Any]:
    """Samples and labels by their usual names, or the only array, or a matrix saved by ``scipy.sparse``."""
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not a complete zip archive")
    _check_members(path)
    with np.load(path, allow_pickle=False) as archive:
        names = archive.files
        if {"format", "shape"} <= set(names):
            return _read_sparse(path), None
        samples = next((name for name in _SAMPLES if name in names), None)
        others = [name for name in names if name not in _LABELS]
        if samples is None and len(others) == 1:
            samples = others[0]
        if samples is None:
            raise ValueError(
                f"expected an array named {', '.join(_SAMPLES[:-1])} or {_SAMPLES[-1]}, or one array only; "
                f"it holds {', '.join(names) or 'none'}"
            )
        labels = next((name for name in _LABELS if name in names), None)
        return _member(archive, samples), None if labels is None else _member(archive, labels)


def _check_members(path: Path) -> None:
    """Refuse an archive whose members are not what they claim, before any array is made.

    Raises:
        ValueError: an array of other than its bytes, more bytes than the file's size can vouch for, or a
            compression that NumPy does not write (whose decoders ask for memory at a file's word).
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        check_claim(sum(member.file_size for member in members), path.stat().st_size, "the archive")
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"its member {member.filename} is neither stored nor deflated")
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    _check_array(file, member.file_size)


def _check_array(file: IO[bytes], size: int) -> None:
    """Refuse a NumPy array that claims other than the bytes that follow its header."""
    if file.read(6) != b"\x93NUMPY":
        raise ValueError("it does not begin as a NumPy file")
    version = (*file.read(2),)
    if version not in _HEADERS:
        raise ValueError(f"expected a NumPy file of version 1.0 or 2.0, received {version}")
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("it holds objects (a pickle), which are not opened")
    claimed, held = math.prod(shape) * dtype.itemsize, size - file.tell()
    if min(shape, default=0) < 0 or claimed != held:
        raise ValueError(f"expected {claimed} bytes for shape {shape} of {dtype}, received {held}")


def _member(archive: Any, name: str) -> Any:
    array = archive[name]
    # NumPy hands out the bytes of a member that is no array.
    if not isinstance(array, np.ndarray):
        raise ValueError(f"its member {name} is not a NumPy array")
    return array


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
