"""Checkpoint files: written whole or not at all, read without running code."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.machine import current_names
from harmonium.machine.storage import replace_file
from harmonium.training.archive import read_archive

FORMAT = "harmonium checkpoint"
VERSION = 1

_DEEPEST = 64
_NAMED = ("settings", "machine", "averaged", "callbacks")  # parts that call parameters by their names
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
    """Put a checkpoint at ``path`` in one step, so that it holds the earlier one or the whole new one.

    Args:
        path: the file; its folder exists.
        content: nested dicts, lists and tuples of tensors, numbers, strings and None.

    Raises:
        OSError: it could not be written, for instance because the disk is full; the earlier one is kept.
        TypeError: something in ``content`` that a checkpoint cannot keep.
    """
    for where, value in leaves(content):
        if isinstance(value, Tensor):
            if value.layout is not torch.strided or value.is_quantized:
                raise TypeError(f"checkpoint{where}: expected a dense tensor, received one of {value.layout}")
        elif type(value) not in (bool, int, float, str, type(None)):
            raise TypeError(
                f"checkpoint{where}: expected tensors, numbers, strings, None, or lists, tuples and "
                f"dicts of them, received {type(value).__name__}"
            )
    # Through memory: torch's own writer does not report a full disk as an OSError.
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, "version": VERSION, **mapped(_plain, content)}, buffer)
    replace_file(path, buffer.getvalue())


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, its tensors on the CPU.

    Raises:
        DamagedCheckpoint: a damaged file, or one that harmonium did not write as a checkpoint.
        ValueError: another version of the format.
        OSError: it cannot be opened.
    """
    with path.open("rb") as file:
        try:
            content = read_archive(file)
            for _ in leaves(content):  # which bounds their depth
                pass
        except Exception as error:  # the file is open: whatever happens now, it is what is wrong
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DamagedCheckpoint(f"{path}: damaged, or not a harmonium checkpoint ({reason})") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DamagedCheckpoint(f"{path}: not a harmonium checkpoint")
    if content.get("version") != VERSION:
        raise ValueError(
            f"{path}: checkpoint version {content.get('version')!r}; this harmonium reads {VERSION}"
        )
    for name in ("products", "data"):  # unknown to 0.1.0
        content.setdefault(name, None)
    try:
        _require_parts(content)
    except ValueError as error:
        raise DamagedCheckpoint(f"{path}: damaged ({error})") from error
    return {**content, **{part: current_names(content[part]) for part in _NAMED}}


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


def leaves(value: Any, where: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """What is neither dict, list nor tuple in a nested value, with its place.

    Raises:
        ValueError: the value is nested more than 64 levels deep.
    """
    if depth > _DEEPEST:
        raise ValueError(f"checkpoint: expected values nested at most {_DEEPEST} levels deep")
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{where}[{key!r}]", depth + 1)
    elif type(value) in (list, tuple):
        for i, item in enumerate(value):
            yield from leaves(item, f"{where}[{i}]", depth + 1)
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


def _plain(x: Tensor) -> Tensor:
    """A tensor on the CPU with memory for each of its elements; the reader refuses others."""
    x = x.cpu()
    return x.clone() if x.numel() * x.element_size() > x.untyped_storage().nbytes() else x
