"""The IDX format of MNIST and its relatives."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import IO, Any

import numpy as np

from harmonium.data._claims import check_claim

_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PIECE = 1 << 20
_MAPPED = 1 << 28  # bytes from which a file is mapped and not read, where its numbers are single bytes


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
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rb") as file:
        return _read(file, path.stat().st_size, compressed=opened is gzip.open)


def _read(file: IO[bytes], size: int, compressed: bool) -> Any:
    """The array that the header claims, if the file holds that and no more."""
    first = file.read(4)
    if len(first) < 4 or first[:2] != b"\0\0" or first[2] not in _DTYPES:
        raise ValueError("it does not begin as an IDX file")
    dtype, dimensions = np.dtype(_DTYPES[first[2]]), first[3]
    sides = file.read(4 * dimensions)
    shape = tuple(int(side) for side in np.frombuffer(sides, dtype=">u4"))
    start, claimed = 4 + len(sides), math.prod(shape) * dtype.itemsize
    if compressed:
        check_claim(claimed, size, f"the shape {shape}")
    if len(shape) != dimensions or not (compressed or size == start + claimed):
        raise ValueError(f"expected {start + claimed} bytes for shape {shape}, received {size}")
    if not compressed and claimed >= _MAPPED and dtype.itemsize == 1:
        return np.memmap(file, dtype, "r", start, shape)
    content = bytearray()
    # One byte beyond the claim is asked for, and with it, under gzip, the comparison of the checksum.
    while piece := file.read(min(_PIECE, claimed + 1 - len(content))):
        content += piece
    if len(content) != claimed:
        received = "more" if len(content) > claimed else start + len(content)
        raise ValueError(f"expected {start + claimed} bytes for shape {shape}, received {received}")
    array = np.frombuffer(content, dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)
