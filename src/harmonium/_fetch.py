"""Rows of a matrix as they lie: in an array, a tensor, a sparse matrix or a file."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Index = NDArray[np.int64] | slice
Fetch = Callable[[Any, Index], Any]

_FAULTS = 64  # rows of a file after which pages are given back: each may map one of 2 MiB


def is_sparse(X: object) -> bool:
    """Returns whether X is a scipy sparse matrix, without importing scipy: its maker has imported it."""
    return "scipy.sparse" in sys.modules and bool(sys.modules["scipy.sparse"].issparse(X))


def as_tensor(X: Any) -> Tensor | None:
    """Returns a matrix in memory as a tensor that shares it; None where torch cannot."""
    if isinstance(X, Tensor):
        return X
    known = X.flags.writeable and X.dtype.isnative and X.dtype.kind in "bif" and X.dtype.itemsize <= 8
    if not known or min(X.strides) < 0:
        return None
    return torch.from_numpy(X)


def read_tensor(X: Tensor, index: Index) -> Tensor:
    if isinstance(index, slice):
        return X[index].clone()
    return X.index_select(0, torch.from_numpy(index).to(X.device))


def read_array(X: Any, index: Index) -> Any:
    return X[index].copy() if isinstance(index, slice) else X[index]


def read_file(X: Any, index: Index) -> Any:
    try:
        if isinstance(index, slice):
            return release(X, np.array(X[index]))
        # Files are read forwards, and h5py takes nothing but strictly increasing positions.
        if not isinstance(X, np.ndarray):
            positions, inverse = np.unique(index, return_inverse=True)
            return np.asarray(X[positions])[inverse]
        read = np.empty((len(index), X.shape[1]), X.dtype)
        order = np.argsort(index, kind="stable")
        for start in range(0, len(index), _FAULTS):
            piece = order[start : start + _FAULTS]
            read[piece] = release(X, X[index[piece]])
        return read
    except (OSError, RuntimeError) as error:  # HDF5 finds damage in a chunk when it is read, not before
        raise ValueError(f"{X.file.filename}: rows cannot be read, {error}") from error


def read_sparse(X: Any, index: Index) -> Any:
    return X[index].toarray()


def find_map(X: Any) -> np.memmap[Any, Any] | None:
    """The memory map that an array is a view of."""
    while isinstance(X, np.ndarray):
        if isinstance(X, np.memmap):
            return X
        X = X.base
    return None


def release(X: Any, read: NDArray[Any]) -> NDArray[Any]:
    """Returns ``read`` and releases the mapped pages that it came from, which would add up to the file.

    The system keeps their content in its page cache. A map that may be written to is left alone.
    """
    mapped = find_map(X)
    if mapped is not None and mapped.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        mapped._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
    return read
