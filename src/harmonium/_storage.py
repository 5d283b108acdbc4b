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

FORMAT = "harmonium"
VERSION = 1  # of the format of machine files
MACHINE, CHECKPOINT = "machine.safetensors", "checkpoint.safetensors"
"""Files in the folder of a run: the machine once training has ended, and the checkpoints to resume from."""
LADDER = "ladder.safetensors"
"""The machines that a run has kept along its way."""


class OtherVersion(ValueError):
    """A file of a version of its format that this version of harmonium does not read."""


def check_free(path: Path, overwrite: bool) -> None:
    """Refuses to write where a file is, unless it may be replaced.

    Raises:
        FileExistsError: it may not.
    """
    if path.exists() and not overwrite:
        raise FileExistsError(f"path: {path} exists; overwrite replaces it")


def write(path: Path, tensors: dict[str, Tensor], header: dict[str, Any], *, overwrite: bool) -> None:
    """Writes tensors and header so that the path holds the old file or the whole new one, never a part."""
    check_free(path, overwrite)
    tensors = {name: x.detach().cpu().contiguous() for name, x in tensors.items()}
    try:
        contents = pack(tensors, {"format": FORMAT, "version": VERSION, **header})
    except TypeError as error:
        raise TypeError(f"metadata: expected values that JSON has, {error}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"metadata: expected values that can be read back, {error}") from error
    replace_file(path, contents)


def pack(tensors: dict[str, Tensor], header: dict[str, Any]) -> bytes:
    """Returns the bytes of a safetensors file with a JSON header and a checksum of both.

    Args:
        tensors: contiguous, on the CPU, none in the memory of another.
        header: values that JSON has.

    Raises:
        TypeError, ValueError, RecursionError: a header that could not be read back.
    """
    header = parsed(json.dumps(header))
    header["checksum"] = checksum(header, tensors)
    return save(tensors, {FORMAT: json.dumps(header)})


def checksum(header: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """Returns the SHA-256 of a machine file: its header, and its tensors with names, types and shapes."""
    digest = hashlib.sha256(json.dumps(header).encode())
    for name, x in sorted(tensors.items()):
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        digest.update(x.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns tensors and header of a machine file, as they were written.

    The tensors are no larger than the file. The layers in the header are not looked at.

    Raises:
        FileNotFoundError: no such file.
        ValueError: naming what is wrong with it.
    """
    if not path.is_file():
        raise FileNotFoundError(f"path: {path} is not a file, nor the folder of a run")
    try:
        return unpack(path, FORMAT, VERSION)
    except SafetensorError as error:
        raise ValueError(
            f"path: {path} is not a harmonium file, or it is damaged ({error}); harmonium.exchange.read or "
            "harmonium convert reads the machines of other programs"
        ) from error
    except ValueError as error:
        raise ValueError(f"path: {path} is {error}") from error


def is_machine_file(path: Path) -> bool:
    """Returns whether a file is a safetensors file, by its beginning."""
    with path.open("rb") as file:
        return file.read(10)[8:9] == b"{"


def unpack(path: Path, form: str, version: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns the tensors and the header of a file that ``pack`` made.

    Args:
        path: the file.
        form: expected as ``format`` in its header.
        version: expected as ``version`` in its header.

    Raises:
        SafetensorError: not a safetensors file, or one whose tensors are not as large as stated there.
        OtherVersion: The file has another format version.
        ValueError: The file has another format, or is damaged.
    """
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        if FORMAT not in metadata:
            raise ValueError("a safetensors file, but not one that harmonium wrote")
        header = parsed(metadata[FORMAT])
        if not isinstance(header, dict) or header.get("format") != form:
            raise ValueError(f"damaged, or no {form} file: its header is none that harmonium wrote")
        if header.get("version") != version:
            raise OtherVersion(
                f"of format version {header.get('version')!r}, "
                f"this version of harmonium reads version {version}"
            )
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if header.pop("checksum", None) != checksum(header, tensors):
        raise ValueError("damaged, its contents do not match its checksum")
    return tensors, header


def parsed(text: str) -> Any:
    """Parses a JSON text; ValueError where it is none, or nested too deep for Python."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"damaged, it holds no JSON ({error})") from error


def replace_file(path: Path, contents: bytes, previous: Path | None = None) -> None:
    """Puts contents at path in one step; on failure the path is as it was and nothing else is left behind.

    ``previous`` takes the file that was there before, just before that step; None: it goes.
    """
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
        umask = os.umask(0)  # which can only be read by setting it
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
