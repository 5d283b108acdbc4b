"""NPZ files: a machine of any kind as NumPy arrays, for programs without a reader of safetensors."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from harmonium._storage import parsed
from harmonium.data._read_arrays import check_members
from harmonium.exchange.exchange import Exchanged, Format
from harmonium.machine import BoltzmannMachine, rebuild

_CONFIG = "config.json"


@final
class Arrays(Format):
    """A member for each parameter, by the name that ``named_parameters`` has, and the layers as JSON."""

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
            config = parsed(archive.read(_CONFIG).decode())
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
            archive.writestr(_CONFIG, json.dumps(machine.config() | {"metadata": machine.metadata}))
            for name, x in machine.state_dict().items():
                member = io.BytesIO()
                np.save(member, x.detach().cpu().numpy(), allow_pickle=False)
                archive.writestr(f"{name}.npy", member.getvalue())
        return buffer.getvalue()
