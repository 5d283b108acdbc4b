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


def write(path: Path, tensors: dict[str, Tensor], header: dict[str, Any], *, overwrite: bool) -> None:
    """Writes tensors and header so that the path holds the old file or the whole new one, never a part."""
    if path.exists() and not overwrite:
        raise FileExistsError(f"path: {path} exists; pass overwrite=True to replace it")
    tensors = {name: x.detach().cpu().contiguous() for name, x in tensors.items()}
    for name, x in tensors.items():
        _checks.finite(x, name)
    try:
        header = json.loads(json.dumps({"format": FORMAT, "version": VERSION, **header}))
    except TypeError as error:
        raise TypeError(f"metadata: expected values that JSON knows, {error}") from error
    header["checksum"] = checksum(header, tensors)
    replace_file(path, save(tensors, {FORMAT: json.dumps(header)}))


def checksum(header: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """SHA-256 of all that a machine file says: its header and its tensors with names, types and shapes."""
    digest = hashlib.sha256(json.dumps(header).encode())
    for name, x in sorted(tensors.items()):
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        digest.update(x.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a machine file; ValueError names what is wrong with it."""
    if not path.is_file():
        raise FileNotFoundError(f"path: {path} is not a file")
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if FORMAT not in metadata:
                raise ValueError(f"path: {path} is a safetensors file, but not one that harmonium wrote")
            header = json.loads(metadata[FORMAT])
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise ValueError(f"path: {path} is damaged, its header says nothing that harmonium wrote")
            if header.get("version") != VERSION:
                raise ValueError(
                    f"path: {path} has format version {header.get('version')!r}, "
                    f"this version of harmonium reads version {VERSION}"
                )
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"path: {path} is not a harmonium file, or it is damaged ({error})") from error
    if header.pop("checksum", None) != checksum(header, tensors):
        raise ValueError(f"path: {path} is damaged, its contents do not match its checksum")
    for name, x in tensors.items():
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"path: {path} is damaged, {name} holds values that are not finite")
    return tensors, header


def replace_file(path: Path, contents: bytes) -> None:
    """Puts contents at path in one step; on failure the path is as it was and nothing else is left behind."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
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
