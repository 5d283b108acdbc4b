"""Checkpoint files: written whole or not at all, read without running code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium._states import RECORDS, field_names
from harmonium._storage import CHECKPOINT, OtherVersion, pack, replace_file, unpack

PREVIOUS = "checkpoint-previous.safetensors"
FORMAT = "harmonium checkpoint"
VERSION = 6  # of the layout of a checkpoint: raised where an older file could be misread


class DamagedCheckpoint(ValueError):
    """A checkpoint, or what belongs to it, that is not as it was written."""


def write_checkpoint(path: Path, content: dict[str, Any], previous: Path | None = None) -> None:
    """Puts a checkpoint at ``path`` in one step, so that it holds the earlier one or the whole new one.

    The file is a safetensors file: tensors by their place in ``content``, and ``content`` as JSON in its
    header, with ``{"$tensor": place}`` where a tensor stands, ``{"$tuple": [...]}`` for a tuple, and
    ``{"$items": [[key, value], ...]}`` for a dict with keys that JSON does not know, and ``{"$record": [name,
    {field: value, ...}]}`` for a record (``harmonium._states``).

    Args:
        path: the file; its folder exists.
        content: nested dicts, lists, tuples and records of dense tensors, numbers, strings and None.
        previous: takes the file that was at ``path``; None: it goes.

    Raises:
        OSError: it could not be written, for instance because the disk is full; the earlier one is kept.
        TypeError, ValueError: something in ``content`` that a checkpoint cannot keep.
    """
    tensors: dict[str, Tensor] = {}
    header = _to_header({"format": FORMAT, "version": VERSION, **content}, "checkpoint", tensors)
    replace_file(path, pack(tensors, header), previous)


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
        return content
    except OtherVersion as error:
        raise ValueError(f"{path}: a checkpoint {error}") from error
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedCheckpoint(f"{path}: damaged, or not a harmonium checkpoint ({reason})") from error


def read_last(folder: Path) -> tuple[dict[str, Any] | None, Path, DamagedCheckpoint | None]:
    """Reads the last good checkpoint of a run.

    Returns:
        Its content, None where the folder holds no checkpoint; its file; what is wrong with a later one.

    Raises:
        DamagedCheckpoint: all that are there are damaged.
        ValueError, OSError: as ``read_checkpoint``.
    """
    damage: DamagedCheckpoint | None = None
    for path in (folder / CHECKPOINT, folder / PREVIOUS):
        try:
            return read_checkpoint(path), path, damage
        except FileNotFoundError:
            continue
        except DamagedCheckpoint as error:
            damage = DamagedCheckpoint(f"{damage}; {error}") if damage else error
    if damage:
        raise DamagedCheckpoint(f"{damage}. There is no other checkpoint; overwrite begins again")
    return None, path, None


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
