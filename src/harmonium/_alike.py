"""Checks that a value from a file has the structure of the value that it is to replace."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def require_alike(received: Any, expected: Any, name: str) -> None:
    """Refuse a value of another build: keys, lengths and types; shapes and dtypes of tensors.

    Tensors must be finite besides. Devices and the values of numbers and strings may differ.

    Raises:
        ValueError: naming the first place that differs.
    """
    if isinstance(expected, Tensor):
        require_tensor(received, expected.shape, expected.dtype, name)
    elif type(received) is not type(expected):
        raise ValueError(f"{name}: expected {type(expected).__name__}, received {type(received).__name__}")
    elif isinstance(expected, dict):
        if received.keys() != expected.keys():
            raise ValueError(f"{name}: expected {list(expected)}, received {list(received)}")
        for key, value in expected.items():
            require_alike(received[key], value, f"{name}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        if len(received) != len(expected):
            raise ValueError(f"{name}: expected {len(expected)} entries, received {len(received)}")
        for i, value in enumerate(expected):
            require_alike(received[i], value, f"{name}[{i}]")


def require_tensor(received: Any, shape: torch.Size, dtype: torch.dtype, name: str) -> None:
    """Refuse anything but a finite tensor of a shape and dtype."""
    if not isinstance(received, Tensor):
        raise ValueError(f"{name}: expected a tensor, received {type(received).__name__}")
    if received.shape != shape or received.dtype != dtype:
        raise ValueError(
            f"{name}: expected {dtype} of shape {tuple(shape)}, "
            f"received {received.dtype} of shape {tuple(received.shape)}"
        )
    if not bool(torch.isfinite(received).all()):
        raise ValueError(f"{name}: holds values that are not finite")
