"""Transforms of arrays and tensors alike, and binary views of grey levels: threshold and draws.

All take NumPy arrays and torch tensors and return the kind they were given, on the same device.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium import _checks
from harmonium._random import as_generator, uniform

Array = NDArray[Any]
Values = TypeVar("Values", NDArray[Any], Tensor)
BYTES = (np.uint8, torch.uint8)


def library(X: Array | Tensor) -> Any:
    """``torch`` or ``numpy``, for the names of dtypes."""
    return torch if isinstance(X, Tensor) else np


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


def threshold(X: Values, at: float = 0.5) -> Values:
    """1 where ``X > at``, else 0.

    Args:
        X: numbers of any shape. uint8 is read as intensity 0..255, so that ``at=0.5`` cuts between 127 and
            128; every other dtype is compared in its own units.
        at: the cut; a value equal to it becomes 0.

    Returns:
        0 and 1 in the shape and dtype of ``X``.

    Raises:
        TypeError: not a NumPy array or torch tensor of numbers.
        ValueError: NaN in ``X``, a cut that is not finite, or uint8 that holds nothing but 0 and 1 and so is
            binary already.
    """
    _checks.numeric(X, "X")
    at = _checks.real(at, "at")
    values: Any = X
    refuse_where(values != values, X, "numbers")
    binary: Values = cast(values > at * full_intensity(X), X.dtype)
    return binary


def bernoulli_binarise(X: Values, seed: int | torch.Generator = 0) -> Values:
    """1 with probability ``X``, else 0, each element on its own.

    Args:
        X: intensities in [0, 1], any shape. uint8 is read as 0..255.
        seed: an int, or a ``torch.Generator`` to advance. The same one gives the same draws for
            a NumPy array and a torch tensor.

    Returns:
        0 and 1 in the shape and dtype of ``X``.

    Raises:
        TypeError: not a NumPy array or torch tensor of numbers, or not a seed.
        ValueError: an intensity outside [0, 1], or uint8 that holds nothing but 0 and 1 and so is binary
            already.
    """
    check_intensities(X)
    noise: Any = uniform(tuple(X.shape), as_generator(seed)) * full_intensity(X)
    noise = noise.to(X.device) if isinstance(X, Tensor) else noise.cpu().numpy()
    binary: Values = cast(noise < X, X.dtype)
    return binary


def check_intensities(X: Array | Tensor) -> None:
    """Refuses what ``bernoulli_binarise`` does."""
    _checks.numeric(X, "X")
    if X.dtype not in BYTES:
        refuse_where(~((X >= 0) & (X <= 1)), X, "intensities in [0, 1] (or uint8)")
    full_intensity(X)


def draw_bits(intensities: Tensor, generator: torch.Generator) -> Tensor:
    """Draws 1 with a probability in [0, 1], else 0, in the shape and dtype of it; nothing is checked."""
    noise = uniform(tuple(intensities.shape), generator, intensities.dtype)
    return torch.gt(intensities, noise, out=torch.empty_like(intensities))


def full_intensity(X: Any) -> float:
    """Returns the value of full intensity: 255 for uint8, else 1; refuses uint8 data of 0 and 1 alone."""
    if X.dtype not in BYTES:
        return 1.0
    # Read as 0..255, a set of bytes 0 and 1 would turn all black without a word.
    if 0 not in X.shape and int(X.max()) == 1:
        raise ValueError("X: expected uint8 intensities 0..255, received only 0 and 1; it is binary already")
    return 255.0
