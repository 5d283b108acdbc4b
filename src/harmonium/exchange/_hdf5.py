"""HDF5 files that may be damaged, or made to harm: nothing outside the file, nothing larger than it says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium.data.files import check_dataset, import_h5py, inside

_SIGNATURE = b"\x89HDF\r\n\x1a\n"


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Opens a file to read; ValueError: it is none of HDF5."""
    h5py = import_h5py()
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"damaged, or no HDF5 file ({error})") from error
    with file:
        yield file


def names_of(path: Path) -> set[str]:
    """Returns the names of the groups, arrays and attributes at the root of a file; none of other files."""
    with path.open("rb") as file:
        if file.read(len(_SIGNATURE)) != _SIGNATURE:
            return set()
    with opened(path) as file:
        return {*file, *file.attrs}


def group_of(group: Any, name: str) -> Any:
    """Returns a group in a group, or None; ValueError: something else."""
    inner = inside(group, name)
    if inner is not None and not isinstance(inner, import_h5py().Group):
        raise ValueError(f"{name}: expected a group")
    return inner


def array(group: Any, name: str) -> Tensor:
    """Returns an array of numbers in float64.

    Raises:
        ValueError: there is none, it is elsewhere, claims more than the file can hold, or is not finite.
    """
    dataset = inside(group, name)
    if dataset is None or not isinstance(dataset, import_h5py().Dataset):
        raise ValueError(f"{name}: expected an array in the file; it holds {', '.join(group) or 'none'}")
    check_dataset(dataset, name, Path(dataset.file.filename).stat().st_size)
    if dataset.dtype.kind not in "biuf":
        raise ValueError(f"{name}: expected numbers, received {dataset.dtype}")
    values = torch.from_numpy(np.asarray(dataset[()], dtype=np.float64).copy())
    if not bool(values.isfinite().all()):
        raise ValueError(f"{name}: expected finite numbers")
    return values


def text(group: Any, name: str) -> str | None:
    """Returns a short text, an attribute or in the group, or None."""
    value = group.attrs.get(name)
    if value is None:
        dataset = inside(group, name)
        if dataset is None:
            return None
        if not isinstance(dataset, import_h5py().Dataset) or dataset.shape != ():
            raise ValueError(f"{name}: expected a text")
        value = dataset[()]
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
