"""Fingerprints of runs, to check that a resumed run has the settings that it began with."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.data import Rows
from harmonium.machine import BoltzmannMachine
from harmonium.training.schedules import as_schedule, depends_on_total
from harmonium.training.settings import Settings


def fingerprint(
    settings: Settings,
    machine: BoltzmannMachine,
    data: Mapping[str, Any],
    optimizer: torch.optim.Optimizer,
    total: int,
    engine: str,
) -> dict[str, Any]:
    """Returns all that determines the bits of a run, as numbers and strings by the name of the argument.

    Data are identified by their shape and three rows, their weights by a digest of all, callables by their
    names: two lambdas look alike. A stream is identified by the name of its class.

    Args:
        settings: of the run.
        machine: the machine to train.
        data: the entries that identify the data.
        optimizer: of the run.
        total: updates.
        engine: what makes the updates.
    """
    content = settings.as_dict()
    del content["updates"], content["epochs"]
    if not isinstance(settings.optimizer, str):
        content["optimizer"] = f"{type(optimizer).__name__}({optimizer.defaults})"
    return {
        **content,
        **data,
        "machine": [str(layer) for layer in machine.layers] + _edges(machine),
        "requires_grad": [name for name, each in machine.named_parameters() if each.requires_grad],
        "dtype": str(machine.dtype),
        "device": device_name(machine.device),
        "updates": total,
        "engine": engine,
    }


def device_name(device: torch.device) -> str:
    """ "cpu", or which GPU it is."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _edges(machine: BoltzmannMachine) -> list[Any]:
    """Returns the edges and visible layers, where layers are not a chain of dense couplings; else nothing."""
    config = machine.config()
    return [config["edges"], config["visible"]] if "edges" in config else []


def digest(x: Tensor) -> int:
    """Of all numbers of a tensor."""
    return zlib.crc32(x.cpu().contiguous().numpy().tobytes())


def digest_of_rows(rows: Rows) -> int:
    """Of the first, the middle and the last row: enough to tell one data set from another."""
    return digest(rows.take(torch.tensor([0, len(rows) // 2, len(rows) - 1])).double())


def require_one_run(fingerprints: Sequence[Mapping[str, Any]]) -> None:
    """Refuse processes that were to train one machine and have different arguments.

    Raises:
        ValueError: naming the first that differs.
    """
    first = fingerprints[0]
    for process, each in enumerate(fingerprints):
        for name, value in first.items():
            if each[name] != value:
                raise ValueError(
                    f"distributed: expected the same {name} in all processes, received {value!r} in rank 0 "
                    f"and {each[name]!r} in rank {process}"
                )


def require_same(saved: Mapping[str, Any], now: Mapping[str, Any], step: int, schedule: Any) -> None:
    """Refuse to resume with other settings, but for the device and the engine, which make other bits.

    Warns:
        RuntimeWarning: another device or engine.

    Raises:
        ValueError: naming the first setting that differs.
    """
    saved = {"precision": "float32", "engine": "torch", **saved}  # as of runs before there were others
    for name, value in now.items():
        if name in ("device", "engine") and saved.get(name) != value:
            _checks.warn(
                f"{name}: the run to resume was on {saved.get(name)} and goes on, on {value}, in the same "
                "law but not in the same bits",
                RuntimeWarning,
            )
        elif name != "updates" and saved.get(name) != value:
            raise ValueError(
                f"{name}: the run to resume has {saved.get(name)!r}, received {value!r}; to go on from its "
                "machine in another way, train harmonium.load(FOLDER) in another folder (on the command line "
                "--from FOLDER)"
            )
    before, total = saved["updates"], now["updates"]
    if before != total and depends_on_total(as_schedule(schedule)):
        raise ValueError(
            f"updates: the schedule depends on the length of the run, {before} updates in the run to resume; "
            f"received {total}. Only under the constant and inverse_sqrt schedules may it change"
        )
    if total < step:
        raise ValueError(
            f"updates: expected at least the {step} that the run to resume has made, received {total}"
        )
