"""The IDX format of MNIST and its relatives."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np

_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path) -> tuple[Any, Any]:
    """The array, and labels from the file beside it whose name has ``labels`` for ``images``."""
    labels = next((other for other in _label_files(path) if other.is_file()), None)
    if labels is None:
        return _array(path), None
    try:
        return _array(path), _array(labels)
    except ValueError as error:
        raise ValueError(f"{error} (with labels from {labels})") from error


def _label_files(path: Path) -> list[Path]:
    name = path.name.replace("images", "labels").replace("idx3", "idx1")
    if name == path.name:
        return []
    plain = name.removesuffix(".gz")
    return [path.with_name(name), path.with_name(plain), path.with_name(plain + ".gz")]


def _array(path: Path) -> Any:
    content = path.read_bytes()
    if path.suffix.lower() == ".gz":
        content = gzip.decompress(content)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _DTYPES:
        raise ValueError("it does not begin as an IDX file")
    dtype, dimensions = np.dtype(_DTYPES[content[2]]), content[3]
    start = 4 + 4 * dimensions
    shape = tuple(int(side) for side in np.frombuffer(content[4:start], dtype=">u4"))
    expected = start + math.prod(shape) * dtype.itemsize
    if len(shape) != dimensions or len(content) != expected:
        raise ValueError(f"expected {expected} bytes for shape {shape}, received {len(content)}")
    array = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("="))
