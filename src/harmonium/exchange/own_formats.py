"""Machines of any kind for programs without a reader of safetensors: as NumPy arrays, and as plain text.

An NPZ file has an array for each parameter and the layers as JSON in one of text, ``config``. Of a text file
the first line is ``# harmonium machine`` and the layers as JSON; every other one a parameter: its name, its
shape as ``3x2``, and its numbers, the last index fastest.
"""

from __future__ import annotations

import io
import json
import zipfile
from math import prod
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from harmonium._storage import parsed
from harmonium.data._read_arrays import check_members
from harmonium.exchange.exchange import Exchanged, Format
from harmonium.machine import BoltzmannMachine, rebuild

_CONFIG, _FIRST = "config.npy", "# harmonium machine "


def _outline(machine: BoltzmannMachine) -> str:
    """Returns layers, edges and metadata of a machine as JSON."""
    return json.dumps(machine.config() | {"metadata": machine.metadata})


@final
class Arrays(Format):
    """An array for each parameter, by the name that ``named_parameters`` has, and the layers as JSON."""

    form: ClassVar[str] = "npz"
    suffix: ClassVar[str] = ".npz"
    program: ClassVar[str] = "NumPy arrays of harmonium"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        if not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            return _CONFIG in archive.namelist()

    @classmethod
    def read(cls, path: Path, update: int | None) -> Exchanged:
        check_members(path)
        with zipfile.ZipFile(path) as archive:
            with archive.open(_CONFIG) as file:
                config = parsed(str(np.lib.format.read_array(file, allow_pickle=False)))
            tensors = {}
            for name in archive.namelist():
                if name == _CONFIG:
                    continue
                with archive.open(name) as file:
                    values = np.lib.format.read_array(file, allow_pickle=False)
                if values.dtype.kind != "f":
                    raise ValueError(f"{name}: expected real numbers, received {values.dtype}")
                tensors[name.removesuffix(".npy")] = torch.from_numpy(values.copy())
        return Exchanged(rebuild(config, tensors), None, cls.form)

    @classmethod
    def pack(cls, machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            numbers = {f"{name}.npy": x.detach().cpu().numpy() for name, x in machine.state_dict().items()}
            for name, values in {_CONFIG: np.array(_outline(machine)), **numbers}.items():
                member = io.BytesIO()
                np.save(member, values, allow_pickle=False)
                archive.writestr(name, member.getvalue())
        return buffer.getvalue()


@final
class Text(Format):
    """Plain text of ``write``."""

    form: ClassVar[str] = "text"
    suffix: ClassVar[str] = ".txt"
    program: ClassVar[str] = "plain text of harmonium"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(_FIRST)) == _FIRST.encode()

    @classmethod
    def read(cls, path: Path, update: int | None) -> Exchanged:
        lines = path.read_text("utf-8").splitlines()
        if not lines or not lines[0].startswith(_FIRST):
            raise ValueError(f"line 1: expected {_FIRST!r} and JSON")
        tensors = {}
        for number, line in enumerate(lines[1:], 2):
            if not line.strip():
                continue
            name, *cells = line.split()
            try:
                shape = [int(side) for side in cells[0].split("x")]
                values = torch.tensor([float(cell) for cell in cells[1:]], dtype=torch.float64)
            except (IndexError, ValueError):
                raise ValueError(f"line {number}: expected a name, a shape and numbers") from None
            if min(shape) < 1 or prod(shape) != len(values):
                raise ValueError(
                    f"line {number}: expected the numbers of shape {cells[0]}, received {len(values)}"
                )
            tensors[name] = values.view(shape)
        return Exchanged(rebuild(parsed(lines[0].removeprefix(_FIRST)), tensors), None, cls.form)

    @classmethod
    def pack(cls, machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
        lines = [_FIRST + _outline(machine)]
        for name, x in machine.state_dict().items():
            numbers = " ".join(f"{value:.17g}" for value in x.double().flatten().tolist())
            lines.append(f"{name} {'x'.join(map(str, x.shape))} {numbers}")
        return ("\n".join(lines) + "\n").encode()
