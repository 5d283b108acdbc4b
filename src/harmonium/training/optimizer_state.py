"""Whether what an optimiser remembered belongs to its parameters."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from harmonium.training.alike import require_alike


def checked_state(optimizer: torch.optim.Optimizer, saved: Any) -> dict[str, Any]:
    """The state of a checkpoint, for ``optimizer.load_state_dict``.

    torch's compiled optimisers trust the shapes of their state and write beyond it where it is too small. So
    every entry must have the type, shape and dtype of what the optimiser itself makes in a step, here one
    without a gradient; a setting must be the optimiser's own, a number in its place finite.

    Args:
        optimizer: as it was built. Its parameters are as before on return, its state is not.
        saved: ``optimizer.state_dict()`` as it was read.

    Raises:
        ValueError: naming the entry that does not fit.
    """
    made = _after_a_step(optimizer)
    if not isinstance(saved, dict) or saved.keys() != made.keys():
        raise ValueError(f"optimizer: expected {list(made)}")
    _require_kind(saved["state"], dict, "optimizer['state']")
    for index, entries in saved["state"].items():
        if index not in made["state"]:
            raise ValueError(f"optimizer['state']: expected none of parameter {index!r}")
        require_alike(entries, made["state"][index], f"optimizer['state'][{index}]")
    groups = _require_kind(saved["param_groups"], list, "optimizer['param_groups']")
    if len(groups) != len(made["param_groups"]):
        raise ValueError(
            f"optimizer['param_groups']: expected {len(made['param_groups'])}, received {len(groups)}"
        )
    together = []
    for i, (group, own) in enumerate(zip(groups, made["param_groups"], strict=True)):
        _require_group(group, own, f"optimizer['param_groups'][{i}]")
        together.append({**own, **group, "lr": own["lr"]})  # every update sets the learning rate anew
    return {"state": saved["state"], "param_groups": together}


def _after_a_step(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    parameters: list[Tensor] = [each for group in optimizer.param_groups for each in group["params"]]
    kept = [each.detach().clone() for each in parameters]
    for each in parameters:
        each.grad = torch.zeros_like(each)
    try:
        optimizer.step()
    finally:
        with torch.no_grad():
            for each, values in zip(parameters, kept, strict=True):
                each.copy_(values)
                each.grad = None
    return optimizer.state_dict()


def _require_group(group: Any, own: dict[str, Any], name: str) -> None:
    _require_kind(group, dict, name)
    if group.get("params") != own["params"]:
        raise ValueError(f"{name}: expected parameters {own['params']}, received {group.get('params')}")
    for key in (group.keys() & own.keys()) - {"lr"}:
        received, expected = group[key], own[key]
        if isinstance(expected, Tensor):
            require_alike(received, expected, f"{name}[{key!r}]")
        elif type(expected) in (int, float):  # some optimisers count here
            if type(received) not in (int, float) or not math.isfinite(received):
                raise ValueError(f"{name}[{key!r}]: expected a finite number, received {received!r}")
        elif type(received) is not type(expected) or received != expected:
            raise ValueError(f"{name}[{key!r}]: expected {expected!r}, received {received!r}")


def _require_kind(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{name}: expected a {kind.__name__}, received {type(value).__name__}")
    return value
