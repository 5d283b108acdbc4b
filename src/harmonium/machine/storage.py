"""Machine files: safetensors with a JSON header."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from harmonium import _checks

FORMAT = "harmonium"
VERSION = 1
MACHINE, CHECKPOINT = "machine.safetensors", "checkpoint.pt"
"""What the folder of a run holds: the machine once it has ended, and what it resumes from."""
MAX_DEPTH = 64


def write(path: Path, tensors: dict[str, Tensor], header: dict[str, Any], *, overwrite: bool) -> None:
    """Writes tensors and header so that the path holds the old file or the whole new one, never a part."""
    if path.exists() and not overwrite:
        raise FileExistsError(f"path: {path} exists; pass overwrite=True to replace it")
    tensors = {name: x.detach().cpu().contiguous() for name, x in tensors.items()}
    for name, x in tensors.items():
        _checks.finite(x, name)
    try:
        header = parsed(json.dumps({"format": FORMAT, "version": VERSION, **header}))
    except TypeError as error:
        raise TypeError(f"metadata: expected values that JSON knows, {error}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"metadata: expected values that can be read back, {error}") from error
    header["checksum"] = checksum(header, tensors)
    replace_file(path, save(tensors, {FORMAT: json.dumps(header)}))


def checksum(header: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """SHA-256 of all that a machine file says: its header and its tensors with names, types and shapes."""
    digest = hashlib.sha256(json.dumps(header).encode())
    for name, x in sorted(tensors.items()):
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        digest.update(x.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a machine file, as they were written; ValueError names what is wrong with it.

    The tensors are no larger than the file. What the header says of layers is not looked at.
    """
    if not path.is_file():
        raise FileNotFoundError(f"path: {path} is not a file, nor the folder of a run")
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if FORMAT not in metadata:
                raise ValueError("a safetensors file, but not one that harmonium wrote")
            header = parsed(metadata[FORMAT])
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise ValueError("damaged, its header says nothing that harmonium wrote")
            if header.get("version") != VERSION:
                raise ValueError(
                    f"of format version {header.get('version')!r}, "
                    f"this version of harmonium reads version {VERSION}"
                )
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header.pop("checksum", None) != checksum(header, tensors):
            raise ValueError("damaged, its contents do not match its checksum")
    except SafetensorError as error:
        raise ValueError(f"path: {path} is not a harmonium file, or it is damaged ({error})") from error
    except ValueError as error:
        raise ValueError(f"path: {path} is {error}") from error
    return tensors, header


def parsed(text: str) -> Any:
    """What a JSON text says.

    Raises:
        ValueError: no JSON, or lists and mappings in each other more than ``MAX_DEPTH`` deep, on which what
            walks through them would fail.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"damaged, JSON nested more than {MAX_DEPTH} deep") from None
    except ValueError as error:
        raise ValueError(f"damaged, it holds no JSON ({error})") from error
    level = [value]
    for _ in range(MAX_DEPTH):
        parts = [part for part in level if isinstance(part, (dict, list))]
        level = [item for part in parts for item in (part.values() if isinstance(part, dict) else part)]
    if level:
        raise ValueError(f"damaged, JSON nested more than {MAX_DEPTH} deep")
    return value


def replace_file(path: Path, contents: bytes) -> None:
    """Puts contents at path in one step; on failure the path is as it was and nothing else is left behind."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"path: expected a file in a folder that is there, received {path}; make {path.parent} first"
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
