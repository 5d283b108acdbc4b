"""Reading what ``torch.save`` wrote, believing nothing that it claims.

``torch.load`` takes the number of bytes behind a tensor from the file's own word, and reads beyond its memory
where that is too large. Here every claim is compared with what is there.
"""

from __future__ import annotations

import math
import pickletools
import sys
import zipfile
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

_ELEMENTS = {
    "torch FloatStorage": torch.float32,
    "torch DoubleStorage": torch.float64,
    "torch HalfStorage": torch.float16,
    "torch BFloat16Storage": torch.bfloat16,
    "torch LongStorage": torch.int64,
    "torch IntStorage": torch.int32,
    "torch ShortStorage": torch.int16,
    "torch CharStorage": torch.int8,
    "torch ByteStorage": torch.uint8,
    "torch BoolStorage": torch.bool,
    "torch ComplexFloatStorage": torch.complex64,
    "torch ComplexDoubleStorage": torch.complex128,
}


def read_archive(file: IO[bytes]) -> Any:
    """The nested dicts, lists and tuples of tensors, numbers, strings and None in a file of ``torch.save``.

    Nothing is compressed in such a file, so reading it takes about as much memory as it has bytes.

    Raises:
        Exception: of whatever type its damage leads to.
    """
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        records = {record.filename: record for record in archive.infolist()}
        if any(record.compress_type != zipfile.ZIP_STORED for record in records.values()):
            raise ValueError("its records are compressed, which those of torch.save never are")
        if sum(record.file_size for record in records.values()) > size:
            raise ValueError(f"its records claim more than the {size} bytes of the file")
        damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"the checksum of {damaged} is wrong")
        (pickled,) = (name for name in records if name.count("/") == 1 and name.endswith("/data.pkl"))
        folder = pickled.removesuffix("data.pkl")
        if f"{folder}byteorder" in records:
            order = archive.read(f"{folder}byteorder").decode()
            if order != sys.byteorder:
                raise ValueError(f"its bytes are in {order}-endian order, those of this computer are not")
        storages: dict[str, Tensor] = {}

        def storage(key: str) -> Tensor:
            if key not in storages:
                content = np.frombuffer(archive.read(f"{folder}data/{key}"), np.uint8)
                # In memory that torch allocated: results may depend on where a tensor begins.
                storages[key] = torch.empty(len(content), dtype=torch.uint8, device="cpu")
                storages[key].numpy()[:] = content
            return storages[key]

        return _build(archive.read(pickled), storage)


def _nested(value: Any) -> bool:
    """Whether a value is a container that may hold others."""
    return type(value) in (dict, list) or (type(value) is tuple and any(map(_nested, value)))


class _Global(NamedTuple):
    """The name of a class or function, which is not looked up."""

    name: str


class _Storage(NamedTuple):
    """The bytes behind tensors, and the type of their elements where the file says it of all of them."""

    content: Tensor
    dtype: torch.dtype | None


def _build(pickled: bytes, storage: Callable[[str], Tensor]) -> Any:
    """The value of a pickle made of the instructions that ``torch.save`` uses for such values."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def marked() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    argument: Any
    for instruction, argument, _ in pickletools.genops(pickled):
        match instruction.name:
            case "PROTO" | "FRAME":
                pass
            case "STOP":
                break
            case "MARK":
                marks.append(len(stack))
            case "NONE":
                stack.append(None)
            case "NEWTRUE" | "NEWFALSE":
                stack.append(instruction.name == "NEWTRUE")
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                stack.append(argument)
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE":
                stack.append(tuple(marked()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                length = int(instruction.name[-1])
                stack[-length:] = [tuple(stack[-length:])]
            case "APPEND" | "APPENDS":
                items = [stack.pop()] if instruction.name == "APPEND" else marked()
                stack[-1].extend(items)
            case "SETITEM" | "SETITEMS":
                items = [stack.pop(-2), stack.pop()] if instruction.name == "SETITEM" else marked()
                stack[-1].update(zip(items[::2], items[1::2], strict=True))
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                if _nested(memo[argument]):  # a few of these, each twice in the next, would never end
                    raise ValueError("it holds the same list or dict in two places")
                stack.append(memo[argument])
            case "GLOBAL":
                stack.append(_Global(argument))
            case "BINPERSID":
                stack.append(_storage(*stack.pop(), storage=storage))
            case "REDUCE":
                arguments = stack.pop()
                stack.append(_made(stack.pop(), arguments))
            case "BUILD":  # of attributes of an OrderedDict
                stack.pop()
            case other:
                raise ValueError(f"it holds the instruction {other}, which no checkpoint needs")
    (value,) = stack
    return value


def _storage(word: str, kind: _Global, key: str, device: str, count: int, *, storage: Any) -> _Storage:
    content = storage(key)
    if kind.name == "torch.storage UntypedStorage":
        dtype, width = None, 1
    else:
        dtype = _ELEMENTS[kind.name]
        width = dtype.itemsize
    if type(count) is not int or count * width != len(content):
        raise ValueError(
            f"record {key}: claims {count} elements of {width} bytes, holds {len(content)} bytes"
        )
    return _Storage(content, dtype)


def _made(function: _Global, arguments: Any) -> Any:
    match function.name:
        case "collections OrderedDict":
            return {}
        case "torch._utils _rebuild_parameter":
            return arguments[0]
        case "torch._utils _rebuild_tensor_v2":
            return _tensor(arguments[0], arguments[0].dtype, *arguments[1:4])
        case "torch._utils _rebuild_tensor_v3":
            dtype = getattr(torch, arguments[6].name.removeprefix("torch "))
            return _tensor(arguments[0], dtype, *arguments[1:4])
        case name:
            raise ValueError(f"it asks for {name.replace(' ', '.')}, which no checkpoint needs")


def _tensor(storage: _Storage, dtype: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"it holds a tensor of {dtype}")
    if any(type(number) is not int or number < 0 for number in (offset, *size, *stride)):
        raise ValueError(f"it holds a tensor of shape {size}, strides {stride} and offset {offset}")
    held = len(storage.content) // dtype.itemsize
    last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    elements = math.prod(size)
    if elements > held or (elements and last >= held):
        raise ValueError(f"a tensor of shape {size} and strides {stride} is larger than its {held} elements")
    return storage.content[: held * dtype.itemsize].view(dtype).as_strided(size, stride, offset)
