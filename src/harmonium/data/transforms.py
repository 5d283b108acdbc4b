"""Transforms of arrays and tensors alike, and binary views of grey levels: threshold, draws, bit-planes.

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
_BYTES = (np.uint8, torch.uint8)


def check_uint8(X: Array | Tensor) -> None:
    """Refuse any dtype but uint8."""
    if X.dtype not in _BYTES:
        raise TypeError(f"X: expected dtype uint8 (grey levels 0..255), received {X.dtype}")


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
    if X.dtype not in _BYTES:
        refuse_where(~((X >= 0) & (X <= 1)), X, "intensities in [0, 1] (or uint8)")
    full_intensity(X)


def draw_bits(intensities: Tensor, generator: torch.Generator) -> Tensor:
    """Draws 1 with a probability in [0, 1], else 0, in the shape and dtype of it; nothing is checked."""
    noise = uniform(tuple(intensities.shape), generator, intensities.dtype)
    return torch.gt(intensities, noise, out=torch.empty_like(intensities))


def to_bit_planes(X: Values, gray: bool = False) -> Values:
    """The eight binary digits of every grey level, as eight binary pictures side by side.

    Planes follow each other from the most to the least significant: with d columns in ``X``, column
    ``p * d + j`` of the result is bit ``7 - p`` of ``X[:, j]``. The first d columns are thus the picture cut
    between 127 and 128.

    Args:
        X: (rows, d) uint8.
        gray: whether the digits are those of the reflected binary (Gray) code, in which neighbouring levels
            differ in one bit: 127 and 128, which differ in all eight otherwise, among them.

    Returns:
        (rows, 8 * d) uint8 of 0 and 1.

    Raises:
        TypeError: not a NumPy array or torch tensor of dtype uint8.
        ValueError: not two-dimensional.
    """
    _checks.numeric(X, "X")
    check_uint8(X)
    values: Any = X ^ (X >> 1) if gray else X
    bits = (_two_dimensional(values)[:, None, :] >> _shifts(X)) & 1
    planes: Values = bits.reshape(X.shape[0], 8 * X.shape[1])
    return planes


def from_bit_planes(planes: Values, gray: bool = False) -> Values:
    """The grey levels whose bit-planes are given; the exact inverse of :func:`to_bit_planes`.

    Args:
        planes: (rows, 8 * d) of 0 and 1, any dtype.
        gray: whether they are digits of the Gray code, as in :func:`to_bit_planes`.

    Returns:
        (rows, d) uint8.

    Raises:
        TypeError: not a NumPy array or torch tensor of numbers.
        ValueError: another shape, or a value that is neither 0 nor 1.
    """
    _checks.numeric(planes, "planes")
    values = _two_dimensional(planes, "planes")
    rows, width = values.shape
    if width % 8:
        raise ValueError(f"planes: expected a multiple of 8 columns, received {width}")
    refuse_where((values != 0) & (values != 1), values, "values in {0, 1}", "planes")
    uint8 = library(planes).uint8
    bits = cast(values, uint8).reshape(rows, 8, width // 8)
    levels: Any = (bits << _shifts(bits)).sum(1, dtype=uint8)
    for shift in (4, 2, 1) if gray else ():  # each bit is the parity of those above it
        levels = levels ^ (levels >> shift)
    result: Values = levels
    return result


def full_intensity(X: Any) -> float:
    """Returns the value of full intensity: 255 for uint8, else 1; refuses uint8 data of 0 and 1 alone."""
    if X.dtype not in _BYTES:
        return 1.0
    # Read as 0..255, a set of bytes 0 and 1 would turn all black without a word.
    if 0 not in X.shape and int(X.max()) == 1:
        raise ValueError("X: expected uint8 intensities 0..255, received only 0 and 1; it is binary already")
    return 255.0


def _shifts(X: Any) -> Any:
    return like(np.arange(7, -1, -1, dtype=np.uint8)[:, None], X)


def _two_dimensional(X: Any, name: str = "X") -> Any:
    if X.ndim != 2:
        raise ValueError(f"{name}: expected shape (rows, columns), received {tuple(X.shape)}")
    return X
