"""Checkpoint files: written whole or not at all, read without running code."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.machine.storage import replace_file

FORMAT = "harmonium checkpoint"
VERSION = 1


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
        if not isinstance(value, Tensor) and type(value) not in (bool, int, float, str, type(None)):
            raise TypeError(
                f"checkpoint{where}: expected tensors, numbers, strings, None, or lists, tuples and "
                f"dicts of them, received {type(value).__name__}"
            )
    # Through memory: torch's own writer does not report a full disk as an OSError.
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, "version": VERSION, **content}, buffer)
    replace_file(path, buffer.getvalue())


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, its tensors on the CPU.

    Raises:
        ValueError: a damaged file, or one that harmonium did not write as a checkpoint of this version.
    """
    file = io.BytesIO(path.read_bytes())
    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()  # torch itself does not compare checksums
        if damaged is not None:
            raise ValueError(f"the checksum of {damaged} is wrong")
        file.seek(0)
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # the bytes are in memory: whatever happens to them, the file is what is wrong
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path}: damaged, or not a harmonium checkpoint ({reason})") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path}: not a harmonium checkpoint")
    if content.get("version") != VERSION:
        raise ValueError(
            f"{path}: checkpoint version {content.get('version')!r}; this harmonium reads {VERSION}"
        )
    return content


def leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """What is neither dict, list nor tuple in a nested value, with its place."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for i, item in enumerate(value):
            yield from leaves(item, f"{where}[{i}]")
    else:
        yield where, value
