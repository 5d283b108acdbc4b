"""HDF5 files, and nothing outside them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from harmonium.data._claims import check_claim


def read_hdf5(path: Path) -> tuple[Any, Any]:
    """The dataset ``samples``, left in its file, and ``labels``, read."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            f'{path}: reading HDF5 needs h5py; install it with pip install "harmonium[hdf5]"'
        ) from error
    file = h5py.File(path, "r")
    try:
        samples, labels = _inside(file, "samples"), _inside(file, "labels")
        if not isinstance(samples, h5py.Dataset):
            raise ValueError(f"expected a dataset named samples; it holds {', '.join(file) or 'none'}")
        if not isinstance(labels, (h5py.Dataset, type(None))):
            raise ValueError("expected labels to be a dataset, received a group")
        size = path.stat().st_size
        _check(samples, "samples", size)
        if labels is None:
            return samples, None
        _check(labels, "labels", size)
        return samples, labels[()]
    except Exception:
        file.close()  # the samples, once returned, keep it open
        raise


def _inside(file: Any, name: str) -> Any:
    """What has this name, or None; a link, which may lead to any other file, is refused and not followed."""
    import h5py

    links, key = file.id.links, name.encode()
    if not links.exists(key):
        return None
    if links.get_info(key).type != h5py.h5l.TYPE_HARD:
        raise ValueError(f"{name}: expected data in the file itself, received a link")
    return file[name]


def _check(dataset: Any, name: str, size: int) -> None:
    """Refuse data that lie in other files, have no fixed size, or are more than the file can vouch for."""
    if dataset.external or dataset.is_virtual:
        raise ValueError(f"{name}: expected data in the file itself, received a reference to other files")
    if dataset.shape is None or dataset.dtype.hasobject:
        raise ValueError(f"{name}: expected numbers, or text of a fixed length, received {dataset.dtype}")
    # What was never written, and what is compressed, takes next to no place in the file.
    check_claim(math.prod(dataset.shape) * dataset.dtype.itemsize, size, name)
    if dataset.chunks:
        check_claim(math.prod(dataset.chunks) * dataset.dtype.itemsize, size, f"a chunk of {name}")
