"""HDF5 files that may be damaged, or made to harm: nothing outside the file, nothing larger than it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium.data.files import check_dataset, import_h5py, inside

_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def names_of(path: Path) -> set[str]:
    """Returns the names of the groups, arrays and attributes at the root of a file; none of other files."""
    with path.open("rb") as file:
        if file.read(len(_SIGNATURE)) != _SIGNATURE:
            return set()
    with import_h5py().File(path, "r") as file:
        return {*file, *file.attrs}


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
