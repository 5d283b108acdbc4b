"""Checkpoint files: written whole or not at all, read without running code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.machine.storage import OtherVersion, pack, replace_file, unpack

FORMAT = "harmonium checkpoint"
VERSION = 2

_PARTS: dict[str, tuple[type, ...]] = {
    "format": (str,),
    "version": (int,),
    "settings": (dict,),
    "step": (int,),
    "seconds": (float,),
    "stopped": (bool,),
    "metrics": (dict,),
    "threads": (int,),
    "products": (str, type(None)),
    "history": (dict,),
    "generator": (Tensor,),
    "machine": (dict,),
    "averaged": (dict, type(None)),
    "optimizer": (dict,),
    "rule": (object,),
    "data": (dict, type(None)),
    "callbacks": (list,),
}


class DamagedCheckpoint(ValueError):
    """A checkpoint, or what belongs to it, that is not as it was written."""


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Puts a checkpoint at ``path`` in one step, so that it holds the earlier one or the whole new one.

    The file is a safetensors file: tensors by their place in ``content``, and ``content`` as JSON in its
    header, with ``{"$tensor": place}`` where a tensor stands, ``{"$tuple": [...]}`` for a tuple, and
    ``{"$items": [[key, value], ...]}`` for a dict with keys that JSON does not know.

    Args:
        path: the file; its folder exists.
        content: nested dicts, lists and tuples of dense tensors, numbers, strings and None.

    Raises:
        OSError: it could not be written, for instance because the disk is full; the earlier one is kept.
        TypeError, ValueError: something in ``content`` that a checkpoint cannot keep.
    """
    tensors: dict[str, Tensor] = {}
    header = _header({"format": FORMAT, "version": VERSION, **content}, "checkpoint", tensors)
    replace_file(path, pack(tensors, header))


def _header(value: Any, where: str, tensors: dict[str, Tensor]) -> Any:
    """Returns a nested value as JSON knows it; its tensors are put into ``tensors``."""
    if isinstance(value, Tensor):
        if value.layout is not torch.strided or value.is_quantized or value.is_complex():
            raise TypeError(f"{where}: expected a dense real tensor, received one of {value.layout}")
        tensors[where] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"$tensor": where}
    if type(value) in (bool, int, float, str, type(None)):
        return value
    if isinstance(value, dict):
        items = [(key, _header(item, f"{where}[{key!r}]", tensors)) for key, item in value.items()]
        if all(type(key) is str and not key.startswith("$") for key in value):
            return dict(items)
        return {"$items": [[_header(key, where, tensors), item] for key, item in items]}
    if type(value) in (list, tuple):
        entries = [_header(item, f"{where}[{i}]", tensors) for i, item in enumerate(value)]
        return entries if type(value) is list else {"$tuple": entries}
    raise TypeError(
        f"{where}: expected tensors, numbers, strings, None, or lists, tuples and "
        f"dicts of them, received {type(value).__name__}"
    )


def _content(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Returns the nested value that ``_header`` wrote down.

    Raises:
        LookupError, TypeError, ValueError: it is not what ``_header`` writes.
    """
    if isinstance(value, list):
        return [_content(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if not any(key.startswith("$") for key in value):
        return {key: _content(item, tensors) for key, item in value.items()}
    ((kind, held),) = value.items()
    if kind == "$tensor":
        # In memory that torch allocated: results may depend on where a tensor begins.
        return tensors[held].clone()
    if kind == "$tuple":
        return tuple(_content(item, tensors) for item in held)
    if kind == "$items":
        return {_content(key, tensors): _content(item, tensors) for key, item in held}
    raise ValueError(f"it holds {kind!r}, which no checkpoint needs")


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
        content: dict[str, Any] = _content(header, tensors)
    except OtherVersion as error:
        raise ValueError(f"{path}: a checkpoint {error}") from error
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedCheckpoint(f"{path}: damaged, or not a harmonium checkpoint ({reason})") from error
    try:
        _require_parts(content)
    except ValueError as error:
        raise DamagedCheckpoint(f"{path}: damaged ({error})") from error
    return content


def _require_parts(content: dict[str, Any]) -> None:
    if content.keys() != _PARTS.keys():
        raise ValueError(f"expected {list(_PARTS)}, received {list(content)}")
    for name, kinds in _PARTS.items():
        if type(content[name]) not in kinds and object not in kinds:
            raise ValueError(f"{name}: expected {kinds[0].__name__}, received {type(content[name]).__name__}")
    for name in ("step", "seconds"):
        if not 0 <= content[name] < math.inf:
            raise ValueError(f"{name}: expected a number of at least 0, received {content[name]}")
    for name in ("machine", "averaged"):
        for key, value in (content[name] or {}).items():
            if type(key) is not str or not isinstance(value, Tensor):
                raise ValueError(
                    f"{name}: expected tensors by name, received {key!r}: {type(value).__name__}"
                )
    if any(isinstance(value, Tensor) for _, value in leaves(content["settings"])):
        raise ValueError("settings: expected no tensors")
    if type(content["settings"].get("updates")) is not int:
        raise ValueError("settings: expected the length of the run under updates")
    length = content["history"].get("length")
    if type(length) is not int or length < 0:
        raise ValueError(f"history: expected the number of its records, received {length!r}")
    if any(type(entry) is not list or len(entry) != 2 for entry in content["callbacks"]):
        raise ValueError("callbacks: expected names with states")


def leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yields what is neither dict, list nor tuple in a nested value, with its place."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for i, item in enumerate(value):
            yield from leaves(item, f"{where}[{i}]")
    else:
        yield where, value


def mapped(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """A nested value with a function applied to its tensors."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: mapped(function, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(function, item) for item in value)
    return value
