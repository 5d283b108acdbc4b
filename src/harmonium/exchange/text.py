"""Machines of any kind as plain text, for programs without a reader of safetensors.

The first line is ``# harmonium machine`` and the layers as JSON; every other one a parameter: its name, its
shape as ``3x2``, and its numbers, the last index fastest.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from harmonium._storage import parsed
from harmonium.exchange._format import Exchanged, Format
from harmonium.machine import BoltzmannMachine, rebuild

_FIRST = "# harmonium machine "


def _recognises(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_FIRST)) == _FIRST.encode()


def _read(path: Path) -> Exchanged:
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
    return Exchanged(rebuild(parsed(lines[0].removeprefix(_FIRST)), tensors), None, "text")


def _write(machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
    lines = [_FIRST + json.dumps(machine.config() | {"metadata": machine.metadata})]
    for name, x in machine.state_dict().items():
        numbers = " ".join(f"{value:.17g}" for value in x.double().flatten().tolist())
        lines.append(f"{name} {'x'.join(map(str, x.shape))} {numbers}")
    return ("\n".join(lines) + "\n").encode()


TEXT = Format("text", ".txt", "plain text of harmonium", _recognises, _read, _write, whole=True)
"""Plain text of ``write``."""
