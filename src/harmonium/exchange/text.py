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
from harmonium.exchange._format import Exchanged, Format, begins_with, parse_lines
from harmonium.machine import BoltzmannMachine, rebuild

_FIRST = "# harmonium machine "


def _read(path: Path) -> Exchanged:
    lines = path.read_text("utf-8").splitlines()
    if not lines or not lines[0].startswith(_FIRST):
        raise ValueError(f"line 1: expected {_FIRST!r} and JSON")
    tensors = dict(parse_lines(enumerate(lines[1:], 2), _parse_tensor, "a name, a shape and its numbers"))
    return Exchanged(rebuild(parsed(lines[0].removeprefix(_FIRST)), tensors), None, "text")


def _parse_tensor(words: list[str]) -> tuple[str, Tensor]:
    name, shape, *cells = words
    sides = [int(side) for side in shape.split("x")]
    if min(sides) < 1 or prod(sides) != len(cells):
        raise ValueError
    return name, torch.tensor([float(cell) for cell in cells], dtype=torch.float64).view(sides)


def _write(machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
    lines = [_FIRST + json.dumps(machine.config() | {"metadata": machine.metadata})]
    for name, x in machine.state_dict().items():
        numbers = " ".join(f"{value:.17g}" for value in x.double().flatten().tolist())
        lines.append(f"{name} {'x'.join(map(str, x.shape))} {numbers}")
    return ("\n".join(lines) + "\n").encode()


TEXT = Format(
    "text", ".txt", "plain text of harmonium", begins_with(_FIRST.encode()), _read, _write, whole=True
)
"""Plain text of ``write``."""
