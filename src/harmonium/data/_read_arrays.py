"""Files of arrays: NumPy and scipy sparse, HDF5, IDX (MNIST and its relatives), and folders of pictures."""

from __future__ import annotations

import gzip
import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from harmonium._size_limit import check_claim

_NUMPY = b"\x93NUMPY"  # what every NumPy file begins with
_SAMPLES = ("samples", "images", "X", "data")
_LABELS = ("labels", "y")
# Version 3.0 is written for names of fields beyond Latin-1 alone, and arrays of records are not data.
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npy(path: Path) -> tuple[Any, Any]:
    """The array, mapped from its file and not read."""
    with path.open("rb") as file:
        _check_array(file, path.stat().st_size)
    return np.lib.format.open_memmap(path, mode="r"), None


def read_npz(path: Path) -> tuple[Any, Any]:
    """Samples and labels by their usual names, or the only array, or a matrix saved by ``scipy.sparse``."""
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not a complete zip archive")
    check_members(path)
    with np.load(path, allow_pickle=False) as archive:
        names = archive.files
        if {"format", "shape"} <= set(names):
            return _read_sparse(path), None
        samples = next((name for name in _SAMPLES if name in names), None)
        others = [name for name in names if name not in _LABELS]
        if samples is None and len(others) == 1:
            samples = others[0]
        if samples is None:
            raise ValueError(
                f"expected an array named {', '.join(_SAMPLES[:-1])} or {_SAMPLES[-1]}, or one array only; "
                f"it holds {', '.join(names) or 'none'}"
            )
        labels = next((name for name in _LABELS if name in names), None)
        return _member(archive, samples), None if labels is None else _member(archive, labels)


def check_members(path: Path) -> None:
    """Refuse an archive whose members are not what they claim, before any array is made.

    Raises:
        ValueError: an array of other than its bytes, more bytes than the file's size allows, or a
            compression that NumPy does not write (whose decoders ask for memory at a file's word).
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        check_claim(sum(member.file_size for member in members), path.stat().st_size, "the archive")
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"its member {member.filename} is neither stored nor deflated")
            with archive.open(member) as file:
                # NumPy goes by the content: a member without the suffix is an array as well.
                is_array = file.read(len(_NUMPY)) == _NUMPY
            if is_array or member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    _check_array(file, member.file_size)


def _check_array(file: IO[bytes], size: int) -> None:
    """Refuse a NumPy array that claims other than the bytes that follow its header."""
    if file.read(len(_NUMPY)) != _NUMPY:
        raise ValueError("it does not begin as a NumPy file")
    version = (*file.read(2),)
    if version not in _HEADERS:
        raise ValueError(f"expected a NumPy file of version 1.0 or 2.0, received {version}")
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("it holds objects (a pickle), which are not opened")
    claimed, held = math.prod(shape) * dtype.itemsize, size - file.tell()
    if min(shape, default=0) < 0 or claimed != held:
        raise ValueError(f"expected {claimed} bytes for shape {shape} of {dtype}, received {held}")


def _member(archive: Any, name: str) -> Any:
    array = archive[name]
    # NumPy hands out the bytes of a member that is no array.
    if not isinstance(array, np.ndarray):
        raise ValueError(f"its member {name} is not a NumPy array")
    return array


def _read_sparse(path: Path) -> Any:
    from scipy import sparse  # slow to import, and only needed here

    matrix = sparse.load_npz(path)
    # scipy's compiled loops trust the indices, so damaged ones must not reach them.
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
        if (np.diff(matrix.indptr) < 0).any():  # which scipy does not look at where the last one is 0
            raise ValueError("expected an indptr that never falls")
    # A shape is a mere claim here: CSR keeps an index for every row, and a batch is dense in its columns.
    check_claim(8 * max(matrix.shape), path.stat().st_size, f"the shape {matrix.shape}")
    return matrix


_CHECKSUM = 4  # bytes of fletcher32


def import_h5py(reader: str = "") -> Any:
    """Returns h5py; ImportError: it is not there, for ``reader``."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            f'{reader}reading HDF5 needs h5py; install it with pip install "harmonium[hdf5]"'
        ) from error
    return h5py


def read_hdf5(path: Path) -> tuple[Any, Any]:
    """The dataset ``samples``, left in its file, and ``labels``, read."""
    h5py = import_h5py(f"{path}: ")
    file = h5py.File(path, "r")
    try:
        samples, labels = inside(file, "samples"), inside(file, "labels")
        if not isinstance(samples, h5py.Dataset):
            raise ValueError(f"expected a dataset named samples; it holds {', '.join(file) or 'none'}")
        if not isinstance(labels, (h5py.Dataset, type(None))):
            raise ValueError("expected labels to be a dataset, received a group")
        size = path.stat().st_size
        check_dataset(samples, "samples", size)
        if labels is None:
            return samples, None
        check_dataset(labels, "labels", size)
        return samples, labels[()]
    except Exception:
        file.close()  # the samples, once returned, keep it open
        raise


def inside(file: Any, name: str) -> Any:
    """Returns the object of this name, or None; refuses a link, which may lead to any other file."""
    import h5py

    links, key = file.id.links, name.encode()
    if not links.exists(key):
        return None
    if links.get_info(key).type != h5py.h5l.TYPE_HARD:
        raise ValueError(f"{name}: expected data in the file itself, received a link")
    return file[name]


def check_dataset(dataset: Any, name: str, size: int) -> None:
    """Refuse data that lie in other files, have no fixed size, or are more than the file's size allows."""
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
    if filters != [number for number in known if number in filters]:
        raise ValueError(
            f"{name}: expected no filters but shuffle, gzip and fletcher32, in this order, received "
            f"{', '.join(plan.get_filter(i)[3].decode(errors='replace') for i in range(len(filters)))}; "
            "h5repack -f GZIP=4 writes it so"
        )
    chunks: list[Any] = []
    dataset.id.chunk_iter(chunks.append)
    expected = math.prod(dataset.chunks) * dataset.id.get_type().get_size()
    for chunk in chunks:
        applied = [number for i, number in enumerate(filters) if not chunk.filter_mask >> i & 1]
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


# The third byte of an IDX file (LeCun, Cortes & Burges, MNIST); numbers are big-endian.
_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PIECE = 1 << 20  # bytes that are read at once, so that a false claim costs no more memory than the file has
_MAPPED = 1 << 28  # bytes from which a file is mapped and not read, where its numbers are single bytes


def read_idx(path: Path) -> tuple[Any, Any]:
    """The array, and labels from the file beside it whose name has ``labels`` for ``images``."""
    labels = next((other for other in _label_files(path) if other.is_file()), None)
    if labels is None:
        return _read_array(path), None
    try:
        return _read_array(path), _read_array(labels)
    except ValueError as error:
        raise ValueError(f"{error} (with labels from {labels})") from error


def _label_files(path: Path) -> list[Path]:
    name = path.name.replace("images", "labels").replace("idx3", "idx1")
    if name == path.name:
        return []
    plain = name.removesuffix(".gz")
    return [path.with_name(name), path.with_name(plain), path.with_name(plain + ".gz")]


def _read_array(path: Path) -> Any:
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rb") as file:
        return _read_body(file, path.stat().st_size, compressed=opened is gzip.open)


def _read_body(file: IO[bytes], size: int, compressed: bool) -> Any:
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


_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
# Pillow knows many more, and starts other programs for some: what a file is called must be what it is.
_PILLOW = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
# Pillow's modes that are kept, and those that turn into one of them without loss.
_KEPT = {"L": 1, "RGB": 3, "I;16": 2, "I": 4, "F": 4}  # bytes of a pixel
_CONVERTED = {"1": "L", "P": "RGB"}
_LINE = 8  # bytes that Pillow keeps for every line, which in narrow pictures are most


def read_images(folder: Path) -> tuple[Any, Any]:
    """All pictures in the order of their names; every other file is passed over."""
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    if not paths:
        raise ValueError(f"it holds no image ({', '.join(sorted(_SUFFIXES))})")
    first = _pixels(paths[0])
    size = sum(path.stat().st_size for path in paths)
    check_claim(len(paths) * first.nbytes, size, f"{len(paths)} images of shape {first.shape}")
    samples = np.empty((len(paths), *first.shape), dtype=first.dtype)
    for i, path in enumerate(paths):
        pixels = _pixels(path)
        if (pixels.shape, pixels.dtype) != (first.shape, first.dtype):
            raise ValueError(
                f"{path.name}: expected shape {first.shape} and dtype {first.dtype} like {paths[0].name}, "
                f"received {pixels.shape} and {pixels.dtype}"
            )
        samples[i] = pixels
    return samples, None


def _pixels(path: Path) -> Any:
    from PIL import Image  # slow to import, and only needed here

    try:
        with Image.open(path, formats=_PILLOW) as image:
            mode = _CONVERTED.get(image.mode, image.mode)
            if mode not in _KEPT:
                raise ValueError(
                    f"expected grey levels or RGB without transparency, received mode {image.mode}"
                )
            claimed = image.height * (image.width * _KEPT[mode] + _LINE)
            check_claim(claimed, path.stat().st_size, f"the size {image.width}x{image.height}")
            return np.asarray(image if image.mode == mode else image.convert(mode))
    except Exception as error:  # decoders of damaged files raise almost anything
        raise ValueError(f"{path.name}: {error or type(error).__name__}") from error
