"""NumPy, scipy sparse and HDF5 files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

_SAMPLES = ("samples", "images", "X", "data")
_LABELS = ("labels", "y")


def read_npy(path: Path) -> tuple[Any, Any]:
    """The array, mapped from its file and not read."""
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise ValueError("it does not begin as a NumPy file")
    return np.lib.format.open_memmap(path, mode="r"), None


def read_npz(path: Path) -> tuple[Any, Any]:
    """Samples and labels by their usual names, or the only array, or a matrix saved by ``scipy.sparse``."""
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not a complete zip archive")
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


def read_hdf5(path: Path) -> tuple[Any, Any]:
    """The dataset ``samples``, left in its file, and ``labels``, read."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            f'{path}: reading HDF5 needs h5py; install it with pip install "harmonium[hdf5]"'
        ) from error
    file = h5py.File(path, "r")
    try:
        samples, labels = file.get("samples"), file.get("labels")
        if not isinstance(samples, h5py.Dataset):
            raise ValueError(f"expected a dataset named samples; it holds {', '.join(file) or 'none'}")
        if not isinstance(labels, (h5py.Dataset, type(None))):
            raise ValueError("expected labels to be a dataset, received a group")
        return samples, None if labels is None else labels[()]
    except Exception:
        file.close()  # the samples, once returned, keep it open
        raise


def _member(archive: Any, name: str) -> Any:
    array = archive[name]
    # NumPy hands out the bytes of a member that is no array.
    if not isinstance(array, np.ndarray):
        raise ValueError(f"its member {name} is not a NumPy array")
    return array


def _read_sparse(path: Path) -> Any:
    matrix = sparse.load_npz(path)
    # scipy's compiled loops trust the indices, so damaged ones must not reach them.
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    return matrix
