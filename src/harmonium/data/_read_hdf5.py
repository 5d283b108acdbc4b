"""HDF5 files, and nothing outside them."""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

from harmonium.data._claims import check_claim

_CHECKSUM = 4  # bytes of fletcher32


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
    """Returns the object of this name, or None; refuses a link, which may lead to any other file."""
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
        _check_chunks(dataset, name, size)


def _check_chunks(dataset: Any, name: str, size: int) -> None:
    """Refuse chunks that hold other than their bytes, which costs a pass over those that are compressed.

    HDF5 (2.0.0) does not compare: it hands out what lies in memory behind a chunk that unpacks to less, makes
    room for any amount that unpacks to more, and crashes on one too short for its checksum.
    """
    import h5py

    plan = dataset.id.get_create_plist()
    filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
    known = [h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_FLETCHER32]
    if filters != [each for each in known if each in filters]:
        raise ValueError(
            f"{name}: expected no filters but shuffle, gzip and fletcher32, in this order, received "
            f"{', '.join(plan.get_filter(i)[3].decode(errors='replace') for i in range(len(filters)))}; "
            "h5repack -f GZIP=4 writes it so"
        )
    chunks: list[Any] = []
    dataset.id.chunk_iter(chunks.append)
    expected = math.prod(dataset.chunks) * dataset.id.get_type().get_size()
    for chunk in chunks:
        applied = [each for i, each in enumerate(filters) if not chunk.filter_mask >> i & 1]
        length = chunk.size - _CHECKSUM * (known[2] in applied)
        if known[1] in applied and 0 < length <= size:
            length = _unpacked(dataset.id.read_direct_chunk(chunk.chunk_offset)[1][:length], expected)
        if length != expected:
            place = ", ".join(map(str, chunk.chunk_offset))
            raise ValueError(f"{name}: the chunk at ({place}) is damaged, it does not hold {expected} bytes")


def _unpacked(content: bytes, expected: int) -> int:
    """Counts the bytes that the content unpacks to, up to one more than expected; -1 if it is damaged."""
    unpacker = zlib.decompressobj()
    try:
        count = len(unpacker.decompress(content, expected + 1))
    except zlib.error:
        return -1
    return count if unpacker.eof or count > expected else -1
