"""Checks that what an optimiser remembered belongs to its parameters."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from harmonium._checks import require_alike
from harmonium.training.checkpoint import leaves


def checked_state(optimizer: torch.optim.Optimizer, saved: Any) -> dict[str, Any]:
    """Returns the state of a checkpoint, for ``optimizer.load_state_dict``.

    torch's compiled optimisers trust the shapes of their state and write beyond it where it is too small. So
    every entry must have the type, shape and dtype of what the optimiser itself makes in a step, here one
    without a gradient; numbers must be finite.

    Args:
        optimizer: as it was built. Its parameters are as before on return, its state is not.
        saved: ``optimizer.state_dict()`` as it was read.

    Raises:
        ValueError: naming the entry that does not fit.
    """
    made = _after_a_step(optimizer)
    if isinstance(saved, dict) and saved.get("state") == {}:  # as before the first update
        made["state"] = {}
    require_alike(saved, made, "optimizer")
    for where, value in leaves(saved, "optimizer"):
        if type(value) is float and not math.isfinite(value):
            raise ValueError(f"{where}: expected a finite number, received {value!r}")
    groups = list(zip(saved["param_groups"], made["param_groups"], strict=True))
    for i, (group, own) in enumerate(groups):
        if group["params"] != own["params"]:
            raise ValueError(f"optimizer['param_groups'][{i}]: expected {own['params']}, received others")
    # Settings are those of this run, numbers what the optimiser counts; every update sets the learning rate.
    return {
        "state": saved["state"],
        "param_groups": [
            {key: group[key] if type(own[key]) in (int, float) and key != "lr" else own[key] for key in own}
            for group, own in groups
        ],
    }


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
