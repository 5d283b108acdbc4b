"""Ways to damage a file: blind ones for all, and ones that know a format and keep its checksums right."""

from __future__ import annotations

import copy
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import cache, reduce
from operator import xor
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as read_tensors, save as tensor_bytes

from harmonium import _storage

Edit = Callable[[Random, bytes], bytes]

DEEP = "@deep@"
JUNK: list[Any] = [
    *(None, True, 0, -1, 1, 3, 2**31, 2**63, 10**30, -(2**40), 40_000, 0.5, 1e300, -1e-300),
    *(float("nan"), float("inf"), "", "x", "1", "\ud800", "\x1b[31m", "gaussian", [], [1], [[1]], {}),
    *({"kind": "spin", "n_units": 10**9}, {"kind": "Standardise", "mean": "x", "scale": 1}, ["a"], DEEP),
]
WORDS = [b"nan", b"inf", b"1_0", b"1e999", b"0x1p3", b"-0", b"", b" ", b'"', b"\0", b"label", b"9" * 400]
WORDS += [b"007", b"9007199254740993", b"NA", b"2.50", b"2019"]
DESCR = [b"'|O'", b"'<f8'", b"'>i8'", b"'<c16'", b"'<U9'", b"'|V8'", b"'<f2'", b"'<M8[s]'", b"[('a','<f8')]"]
SHAPES = [b"()", b"(-2, -3)", b"(1000000000000,)", b"(0, 5)", b"(True, 7)", b"((1,),)", b"(" * 5000, b"None"]
METHODS = [
    zipfile.ZIP_STORED,
    zipfile.ZIP_DEFLATED,
    zipfile.ZIP_DEFLATED,
    zipfile.ZIP_BZIP2,
    zipfile.ZIP_LZMA,
]
HUGE = [0, 1, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1]
DTYPES = [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8]
DTYPES += [torch.float8_e4m3fn, torch.float8_e5m2]


# Blind ------------------------------------------------------------------------------------------------------


def blind(random: Random, content: bytes, other: bytes) -> bytes:
    """One to four damages of kinds that happen to files, or that a hex editor would do."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        random.choice((_flip, _flip, _set, _cut, _insert, _remove, _repeat, _number, _digits))(random, data)
    if random.random() < 0.1:
        data[random.randrange(len(data) + 1) :] = other[random.randrange(len(other)) :]
    return bytes(data)


def _place(random: Random, data: bytearray) -> int:
    """Anywhere, more often near the start and the end, where formats keep what they claim."""
    where = random.random()
    if where < 0.3:
        return random.randrange(min(len(data), 128) or 1)
    if where < 0.4:
        return max(0, len(data) - 1 - random.randrange(64))
    return random.randrange(len(data) or 1)


def _flip(random: Random, data: bytearray) -> None:
    if data:
        data[_place(random, data)] ^= 1 << random.randrange(8)


def _set(random: Random, data: bytearray) -> None:
    if data:
        data[_place(random, data)] = random.randrange(256)


def _cut(random: Random, data: bytearray) -> None:
    del data[_place(random, data) :]


def _insert(random: Random, data: bytearray) -> None:
    place = _place(random, data)
    data[place:place] = random.choice((random.randbytes(random.randrange(1, 20)), *WORDS))


def _remove(random: Random, data: bytearray) -> None:
    place = _place(random, data)
    del data[place : place + random.randrange(1, 40)]


def _repeat(random: Random, data: bytearray) -> None:
    place = _place(random, data)
    data[place:place] = data[place : place + random.randrange(1, 200)]


def _number(random: Random, data: bytearray) -> None:
    """A binary number of any width by an extreme one."""
    width, place = random.choice((2, 4, 8)), _place(random, data)
    value = random.choice(HUGE) % (1 << 8 * width)
    data[place : place + width] = value.to_bytes(width, random.choice(("little", "big")))


def _digits(random: Random, data: bytearray) -> None:
    """A written number by another one."""
    found = [match.span() for match in re.finditer(rb"\d+", data[:4096])]
    if found:
        start, end = random.choice(found)
        data[start:end] = random.choice((*(b"%d" % x for x in HUGE), b"-1", b"1e9", b"1.5", *WORDS))


# JSON -------------------------------------------------------------------------------------------------------


def _changed(random: Random, value: Any) -> Any:
    """A JSON value with one entry anywhere replaced, removed or added."""
    value = copy.deepcopy(value)
    holder: Any = [value]
    root, key = holder, 0
    while isinstance(holder[key], (dict, list)) and holder[key] and random.random() < 0.85:
        holder = holder[key]
        key = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    action = random.random()
    if action < 0.15 and holder is not root:
        del holder[key]
    elif action < 0.25 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(random.choice((*JUNK, holder[key]))))
    elif action < 0.3 and isinstance(holder, dict):
        holder[random.choice(("kind", "n_units", "low", "extra", "self"))] = random.choice(JUNK)
    else:
        holder[key] = copy.deepcopy(random.choice(JUNK))
    return root[0]


def _text(random: Random, value: Any) -> str:
    depth = random.choice((50, 70, 900, 100_000))
    opening, closing = random.choice((("[", "]"), ('{"a":', "}"), ('{"codec":"Table","all_columns":[', "]}")))
    return json.dumps(value).replace(json.dumps(DEEP), opening * depth + "0" + closing * depth)


def json_edit(random: Random, content: bytes) -> bytes:
    """A changed JSON file."""
    return _text(random, _changed(random, json.loads(content))).encode()


def lines_edit(random: Random, content: bytes) -> bytes:
    """A changed, repeated, removed or moved line of a file of JSON lines."""
    lines = content.splitlines()
    i = random.randrange(len(lines))
    action = random.randrange(4)
    if action == 0:
        lines[i] = json_edit(random, lines[i])
    elif action == 1:
        lines.insert(random.randrange(len(lines)), lines[i])
    elif action == 2:
        del lines[i]
    else:
        random.shuffle(lines)
    return b"\n".join(lines) + b"\n"


# Formats ----------------------------------------------------------------------------------------------------


def machine_edit(random: Random, content: bytes) -> bytes:
    """A machine file or a checkpoint with another header or other tensors, and their checksum."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][_storage.FORMAT])
    header.pop("checksum")
    tensors = read_tensors(content)
    if random.random() < 0.7:
        header = _changed(random, header)
    else:
        tensors = _other_tensors(random, tensors)
    if isinstance(header, dict):
        header["checksum"] = _storage.checksum(header, tensors)
    return tensor_bytes(tensors, {_storage.FORMAT: _text(random, header)})


def _other_tensors(random: Random, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    tensors = dict(tensors)
    name = random.choice(sorted(tensors))
    x = tensors[name]
    action = random.randrange(6)
    if action == 0:
        del tensors[name]
    elif action == 1:
        tensors[random.choice(("x", "couplings.9.weight", "layers.9.bias", ""))] = x.clone()
    elif action == 2:
        tensors = {each: y.to(random.choice(DTYPES)) for each, y in tensors.items()}
    else:
        tensors[name] = _other_tensor(random, x).contiguous()
    return tensors


def _other_tensor(random: Random, x: torch.Tensor) -> torch.Tensor:
    value = random.choice((float("nan"), float("inf"), 1e38)) if x.is_floating_point() else 0
    shape = random.choice(((), (0,), (1,), (7, 3), (0, 10**9), (1, *x.shape)))
    choices = [
        lambda: x.to(random.choice(DTYPES)),
        lambda: torch.full_like(x, value),
        lambda: torch.zeros(shape, dtype=x.dtype),
        lambda: x.flatten()[:-1],
    ]
    return random.choice(choices)()


def npy_edit(random: Random, content: bytes) -> bytes:
    """A NumPy file whose header says something else, padded as it should be."""
    length = struct.unpack("<H", content[8:10])[0]
    header = bytearray(content[10 : 10 + length].rstrip())
    for _ in range(random.randint(1, 2)):
        action = random.randrange(3)
        if action == 0:
            _digits(random, header)
        elif action == 1:
            header[:] = re.sub(rb"'descr': '[^']*'", b"'descr': " + random.choice(DESCR), bytes(header))
        else:
            header[:] = re.sub(rb"\([^)]*\)", random.choice(SHAPES), bytes(header))
    text = bytes(header) + b"\n"
    return content[:8] + struct.pack("<H", min(len(text), 65535)) + text + content[10 + length :]


def zip_edit(random: Random, content: bytes) -> bytes:
    """An archive with one member changed, renamed, dropped or doubled, and right checksums."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    i = random.randrange(len(members))
    name, data = members[i]
    action = random.randrange(5)
    if action < 2 and data[:6] == b"\x93NUMPY":
        members[i] = name, npy_edit(random, data)
    elif action == 2:
        members[i] = (
            random.choice(("labels.npy", "y.npy", "format.npy", "shape.npy", "samples", "\x1b.npy")),
            data,
        )
    elif action == 3:
        del members[i]
    else:
        members[i] = name, blind(random, data, data)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", random.choice(METHODS)) as archive:
        for name, data in dict(members).items():
            archive.writestr(name, data)
    return buffer.getvalue()


def sparse_edit(random: Random, content: bytes) -> bytes:
    """A sparse matrix with other numbers in one of its arrays, the shape first of all."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    name = random.choice(sorted({*arrays} - {"format"} | {"shape"}))
    values = arrays[name] = np.array(arrays[name])
    if values.size and values.dtype.kind in "iu":
        values.reshape(-1)[random.randrange(values.size)] = random.choice(HUGE) % (
            1 << 8 * values.itemsize - 1
        )
    elif random.random() < 0.5:
        arrays[name] = values.reshape(-1)[:-1]
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return zip_edit(random, buffer.getvalue()) if random.random() < 0.3 else buffer.getvalue()


def csv_edit(random: Random, content: bytes) -> bytes:
    """A table with another word in one cell."""
    cells = re.split(rb"([,\n])", content)
    for _ in range(random.randint(1, 3)):
        cells[2 * random.randrange(len(cells) // 2)] = random.choice(
            (*WORDS, "１".encode(), b"\xff\xfe", b"a,b", b"1;2")
        )
    return random.choice((b"", b"", b"\xef\xbb\xbf", b"\xff\xfe")) + b"".join(cells)


def gzip_edit(random: Random, content: bytes) -> bytes:
    """Compressed bytes changed before they were compressed."""
    plain = zlib.decompress(content, 31)
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(blind(random, plain, plain)) + packer.flush()


def png_edit(random: Random, content: bytes) -> bytes:
    """A PNG file whose header says something else, with its checksum."""
    header = bytearray(content[12:29])
    random.choice((_number, _set, _flip))(random, header)
    header = header[:17].ljust(17, b"\0")
    return content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:]


EDITS: dict[str, Edit] = {
    "machine": machine_edit,
    "resume lock.json": json_edit,
    "run checkpoint.safetensors": machine_edit,
    "resume checkpoint.safetensors": machine_edit,
    "resume history.jsonl": lines_edit,
    "npy": npy_edit,
    "npz": zip_edit,
    "sparse": sparse_edit,
    "csv": csv_edit,
    "table.csv": csv_edit,
    "kinds.json": json_edit,
    "table machine": machine_edit,
    "idx.gz": gzip_edit,
    "image b.png": png_edit,
}


@cache
def zeros(megabytes: int) -> bytes:
    """A deflated stream of zeros without its end, a thousandth of their size."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)) * megabytes


def unfolding(start: bytes, megabytes: int) -> tuple[bytes, int, int]:
    """``start`` and many zeros as a raw deflated stream, with the checksum and the size of what it holds."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = _after_zeros(zlib.crc32(start), megabytes)
    return first + zeros(megabytes) + packer.flush(), checksum, len(start) + (megabytes << 20)


def _after_zeros(checksum: int, megabytes: int) -> int:
    """The CRC-32 so many zeros later: affine in the bits of the one before, and so squared, not iterated."""
    piece = bytes(1 << 20)
    offset = zlib.crc32(piece, 0)
    columns = [zlib.crc32(piece, 1 << i) ^ offset for i in range(32)]

    def later(value: int) -> int:
        return reduce(xor, (column for i, column in enumerate(columns) if value >> i & 1), offset)

    while megabytes:
        if megabytes & 1:
            checksum = later(checksum)
        twice = later(offset)
        columns = [later(later(1 << i)) ^ twice for i in range(32)]
        offset, megabytes = twice, megabytes >> 1
    return checksum
