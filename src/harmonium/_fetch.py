"""Rows of a matrix as they lie: in an array, a tensor, a sparse matrix or a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Index = NDArray[np.int64] | slice
Fetch = Callable[[Any, Index], Any]


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
            return np.array(X[index])
        # Files are read forwards, and h5py takes nothing but strictly increasing positions.
        positions, inverse = np.unique(index, return_inverse=True)
        return np.asarray(X[positions])[inverse]
    except (OSError, RuntimeError) as error:  # HDF5 finds damage in a chunk when it is read, not before
        raise ValueError(f"{X.file.filename}: rows cannot be read, {error}") from error


def read_sparse(X: Any, index: Index) -> Any:
    return X[index].toarray()


def is_mapped(X: Any) -> bool:
    """Returns whether an array is a view of a memory map."""
    while isinstance(X, np.ndarray):
        if isinstance(X, np.memmap):
            return True
        X = X.base
    return False
