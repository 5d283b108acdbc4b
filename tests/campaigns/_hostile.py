"""Files made to do harm: small ones that unfold without end, and ones that point at other files."""

from __future__ import annotations

import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np
from scipy import sparse

from ._damage import unfolding, zeros
from ._exchanged import hostile_exchanged
from ._honest import idx, written

MEGABYTES = 1024


def hostile(name: str, honest: bytes) -> list[bytes]:
    """Hostile files of a kind; made anew, in up to a second each."""
    if name == "npz":
        return [_bomb("samples.npy", MEGABYTES), _liar()]
    if name == "sparse":
        return [_sparse_bomb(form, shape) for form, shape in _SHAPES]
    if name == "npy":
        return [_header((10**12, 5)), _header((1 << 31, 1 << 31)), _header((10**6, 1000)) + bytes(1000)]
    if name == "idx.gz":
        return [
            _gzip(idx(np.zeros((2, 2), np.uint8))),
            _gzip(b"\0\0\x08\x02" + struct.pack(">2I", MEGABYTES, 1 << 20)),
        ]
    if name == "idx":
        return [b"\0\0\x08\x03" + b"\xff" * 12, b"\0\0\x08\xff" + b"\1" * 2000]
    if name == "hdf5":
        return _hdf5()
    if name == "image b.png":
        return [_png(9_000), _png(16_000)]
    return hostile_exchanged(name)


_SHAPES = [
    ("csc", (4 * 10**9, 3)),
    ("coo", (10**12, 3)),
    ("csr", (3, 10**12)),
    ("coo", (3, 10**10)),
    ("dia", (10**10, 9)),
]


def _sparse_bomb(form: str, shape: tuple[int, int]) -> bytes:
    return written(
        lambda file: sparse.save_npz(file, sparse.coo_array(([1.0], ([1], [1])), shape).asformat(form))
    )


def _header(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    description = {"descr": dtype, "fortran_order": False, "shape": shape}
    return written(lambda file: np.lib.format.write_array_header_1_0(file, description))


def _archive(members: list[tuple[str, int, int, bytes, int]]) -> bytes:
    """A zip archive of (name, method, checksum, contents as packed, claimed size)."""
    body, directory = b"", b""
    for name, method, checksum, packed, size in members:
        fields = struct.pack("<HHHHHIIIHH", 20, 0, method, 0, 33, checksum, len(packed), size, len(name), 0)
        directory += b"PK\1\2\x14\0" + fields + struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + name.encode()
        body += b"PK\3\4" + fields + name.encode() + packed
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    return body + directory + b"PK\5\6" + end


def _bomb(name: str, megabytes: int) -> bytes:
    packed, checksum, size = unfolding(_header((megabytes, 1 << 20), "|u1"), megabytes)
    return _archive([(name, 8, checksum, packed, size)])


def _liar() -> bytes:
    """An array that is as long as its header says, and whose archive says otherwise."""
    packed, checksum, _ = unfolding(_header((MEGABYTES, 1 << 20), "|u1"), MEGABYTES)
    return _archive([("samples.npy", 8, checksum, packed, 1000)])


def _gzip(start: bytes) -> bytes:
    packed, checksum, size = unfolding(start, MEGABYTES)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + packed + struct.pack("<II", checksum, size % (1 << 32))


def _png(side: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    size = side * (side + 1)
    rest = zlib.compressobj(9, zlib.DEFLATED, -15)
    pixels = b"\x78\xda" + zeros(size >> 20) + rest.compress(bytes(size % (1 << 20))) + rest.flush()
    pixels += struct.pack(">I", size % 65521 << 16 | 1)  # the Adler-32 of so many zeros
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _hdf5() -> list[bytes]:
    try:
        import h5py
    except ImportError:
        return []
    contents = []
    with tempfile.TemporaryDirectory() as name:
        other = Path(name, "other.h5")
        with h5py.File(other, "w") as file:
            file["samples"] = np.ones((3, 2))

        def link(file: h5py.File) -> None:
            file["samples"] = h5py.ExternalLink(str(other), "samples")

        def soft(file: h5py.File) -> None:
            file["away"], file["samples"] = h5py.ExternalLink(str(other), "/"), h5py.SoftLink("/away/samples")

        def external(file: h5py.File) -> None:
            file.create_dataset("samples", (3, 2), "f8", external=[(str(other), 0, 48)])

        def virtual(file: h5py.File) -> None:
            layout = h5py.VirtualLayout((3, 2), "f8")
            layout[:] = h5py.VirtualSource(str(other), "samples", (3, 2))
            file.create_virtual_dataset("samples", layout)

        def unwritten(file: h5py.File) -> None:
            file.create_dataset("samples", (10**9, 784), "f8")

        def pictures(file: h5py.File) -> None:
            file.create_dataset("samples", (10**6, 100, 100), "u1", chunks=(1, 100, 100))

        def one_chunk(file: h5py.File) -> None:
            data = file.create_dataset("samples", (1, 1 << 29), "u1", chunks=(1, 1 << 29), compression="gzip")
            data.id.write_direct_chunk((0, 0), b"\x78\x9c" + unfolding(b"", 512)[0] + b"\2\0\0\1")

        def words(file: h5py.File) -> None:
            file["samples"], file["labels"] = np.ones((2, 2)), ["a" * 10_000] * 2

        for i, write in enumerate((link, soft, external, virtual, unwritten, pictures, one_chunk, words)):
            with h5py.File(Path(name, f"{i}.h5"), "w") as file:
                write(file)
            contents.append(Path(name, f"{i}.h5").read_bytes())
    return contents
