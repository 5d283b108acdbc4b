"""One face over NumPy arrays and torch tensors for element-wise transforms: what comes in goes out."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
Values = TypeVar("Values", NDArray[Any], Tensor)


def check_uint8(X: Array | Tensor, name: str = "X") -> None:
    """Refuse any dtype but uint8."""
    if not is_uint8(X):
        raise TypeError(f"{name}: expected dtype uint8 (grey levels 0..255), received {X.dtype}")


def library(X: Array | Tensor) -> Any:
    """``torch`` or ``numpy``, for the names of dtypes."""
    return torch if isinstance(X, Tensor) else np


def is_uint8(X: Array | Tensor) -> bool:
    return bool(X.dtype == library(X).uint8)


def is_floating(X: Array | Tensor) -> bool:
    return X.dtype.is_floating_point if isinstance(X, Tensor) else X.dtype.kind == "f"


def cast(X: Any, dtype: Any) -> Any:
    """``X`` as a dtype of its own library, in native byte order, copied only where it has to be."""
    return X.to(dtype) if isinstance(X, Tensor) else X.astype(np.dtype(dtype).newbyteorder("="), copy=False)


def like(values: Any, X: Array | Tensor) -> Any:
    """Host values as an array of the library, dtype and device of ``X``."""
    if isinstance(X, Tensor):
        return torch.as_tensor(values, dtype=X.dtype, device=X.device)
    return np.asarray(values, dtype=X.dtype)


def refuse_where(bad: Any, X: Any, expected: str, name: str = "X") -> None:
    """Raise a ValueError that names the first element of ``X`` marked in ``bad``."""
    if not bool(bad.any()):
        return
    flat = int(bad.reshape(-1).argmax() if isinstance(bad, np.ndarray) else bad.reshape(-1).int().argmax())
    position = tuple(int(i) for i in np.unravel_index(flat, tuple(X.shape)))
    where = f"row {position[0]}, column {position[1]}" if len(position) == 2 else f"position {position}"
    raise ValueError(f"{name}: expected {expected}, received {X[position].item()} at {where}")
