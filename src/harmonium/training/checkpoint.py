"""Checkpoint files: written whole or not at all, read without running code."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium._states import RECORDS, field_names, leaves
from harmonium._storage import OtherVersion, pack, replace_file, unpack

FORMAT = "harmonium checkpoint"
VERSION = 3  # of the layout of a checkpoint: raised where an older file could be misread


class DamagedCheckpoint(ValueError):
    """A checkpoint, or what belongs to it, that is not as it was written."""


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Puts a checkpoint at ``path`` in one step, so that it holds the earlier one or the whole new one.

    The file is a safetensors file: tensors by their place in ``content``, and ``content`` as JSON in its
    header, with ``{"$tensor": place}`` where a tensor stands, ``{"$tuple": [...]}`` for a tuple, and
    ``{"$items": [[key, value], ...]}`` for a dict with keys that JSON does not know, and ``{"$record": [name,
    {field: value, ...}]}`` for a record (``harmonium._states``).

    Args:
        path: the file; its folder exists.
        content: nested dicts, lists, tuples and records of dense tensors, numbers, strings and None.

    Raises:
        OSError: it could not be written, for instance because the disk is full; the earlier one is kept.
        TypeError, ValueError: something in ``content`` that a checkpoint cannot keep.
    """
    tensors: dict[str, Tensor] = {}
    header = _to_header({"format": FORMAT, "version": VERSION, **content}, "checkpoint", tensors)
    replace_file(path, pack(tensors, header))


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Returns the content of a checkpoint, its tensors on the CPU.

    Raises:
        DamagedCheckpoint: a damaged file, or one that harmonium did not write as a checkpoint.
        ValueError: another version of the format.
        OSError: it cannot be opened.
    """
    path.open("rb").close()  # whatever happens after it could be opened is what is wrong with it
    try:
        tensors, header = unpack(path, FORMAT, VERSION)
        content: dict[str, Any] = _from_header(header, tensors)
    except OtherVersion as error:
        raise ValueError(f"{path}: a checkpoint {error}") from error
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedCheckpoint(f"{path}: damaged, or not a harmonium checkpoint ({reason})") from error
    if content.keys() != _PARTS.keys():
        raise DamagedCheckpoint(f"{path}: damaged (expected {list(_PARTS)}, received {list(content)})")
    for name, (expected, fits) in _PARTS.items():
        if not fits(content[name]):
            received = reprlib.repr(content[name])
            raise DamagedCheckpoint(f"{path}: damaged ({name}: expected {expected}, received {received})")
    return content


def _to_header(value: Any, where: str, tensors: dict[str, Tensor]) -> Any:
    """Returns a nested value as JSON knows it; its tensors are put into ``tensors``."""
    if isinstance(value, Tensor):
        if value.layout is not torch.strided or value.is_quantized or value.is_complex():
            raise TypeError(f"{where}: expected a dense real tensor, received one of {value.layout}")
        tensors[where] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"$tensor": where}
    if type(value) in (bool, int, float, str, type(None)):
        return value
    if isinstance(value, dict):
        items = [(key, _to_header(item, f"{where}[{key!r}]", tensors)) for key, item in value.items()]
        if all(type(key) is str and not key.startswith("$") for key in value):
            return dict(items)
        return {"$items": [[_to_header(key, where, tensors), item] for key, item in items]}
    if type(value) in (list, tuple):
        entries = [_to_header(item, f"{where}[{i}]", tensors) for i, item in enumerate(value)]
        return entries if type(value) is list else {"$tuple": entries}
    if RECORDS.get(type(value).__name__) is type(value):
        parts = {name: getattr(value, name) for name in field_names(type(value))}
        return {"$record": [type(value).__name__, _to_header(parts, where, tensors)]}
    raise TypeError(
        f"{where}: expected tensors, numbers, strings, None, or lists, tuples, "
        f"dicts and records of them, received {type(value).__name__}"
    )


def _from_header(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Returns the nested value that ``_to_header`` wrote down.

    Raises:
        LookupError, TypeError, ValueError: it is not what ``_to_header`` writes.
    """
    if isinstance(value, list):
        return [_from_header(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if not any(key.startswith("$") for key in value):
        return {key: _from_header(item, tensors) for key, item in value.items()}
    ((kind, held),) = value.items()
    if kind == "$tensor":
        # In memory that torch allocated: results may depend on where a tensor begins.
        return tensors[held].clone()
    if kind == "$tuple":
        return tuple(_from_header(item, tensors) for item in held)
    if kind == "$items":
        return {_from_header(key, tensors): _from_header(item, tensors) for key, item in held}
    if kind == "$record":
        name, parts = held
        return RECORDS[name](**_from_header(parts, tensors))
    raise ValueError(f"it holds {kind!r}, which no checkpoint needs")


def _is_by_name(value: Any, kind: type) -> bool:
    return type(value) is dict and all(type(key) is str and type(x) is kind for key, x in value.items())


def _is_history(value: Any) -> bool:
    if type(value) is not dict or value.keys() != {"length", "sums", "counts"}:
        return False
    length, sums, counts = value["length"], value["sums"], value["counts"]
    if type(length) is not int or not (_is_by_name(sums, float) and _is_by_name(counts, int)):
        return False
    return length >= 0 and sums.keys() == counts.keys() and all(count > 0 for count in counts.values())


def _is_settings(value: Any) -> bool:
    held = [type(leaf) for _, leaf in leaves(value)]
    return type(value) is dict and type(value.get("updates")) is int and Tensor not in held


_PARTS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "format": ("text", lambda x: type(x) is str),
    "version": ("an int", lambda x: type(x) is int),
    "settings": ("settings by name, without tensors, with the length of the run", _is_settings),
    "step": ("an int of at least 0", lambda x: type(x) is int and x >= 0),
    "seconds": ("a finite float of at least 0", lambda x: type(x) is float and 0 <= x < math.inf),
    "stopped": ("a bool", lambda x: type(x) is bool),
    "metrics": ("floats by name", lambda x: _is_by_name(x, float)),
    "threads": ("an int", lambda x: type(x) is int),
    "products": ("a name or None", lambda x: x is None or type(x) is str),
    "history": ("a number of records, with sums and counts by name", _is_history),
    "generator": ("a tensor", lambda x: type(x) is Tensor),
    "description": ("a dict", lambda x: type(x) is dict),
    "machine": ("tensors by name", lambda x: _is_by_name(x, Tensor)),
    "averaged": ("tensors by name or None", lambda x: x is None or _is_by_name(x, Tensor)),
    "optimizer": ("a dict", lambda x: type(x) is dict),
    "rule": ("anything", lambda x: True),
    "callbacks": (
        "names with states",
        lambda x: type(x) is list and all(type(entry) is list and len(entry) == 2 for entry in x),
    ),
}
"""Parts of a checkpoint, each with what it is expected to be."""
