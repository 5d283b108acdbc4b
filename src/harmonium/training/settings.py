"""The settings of a run, checked once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.learning import Rule
from harmonium.machine import BoltzmannMachine
from harmonium.products import PRECISIONS
from harmonium.training.optimizers import OPTIMIZERS, OptimizerFactory
from harmonium.training.schedules import Schedule, as_schedule

Transform = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that determine a run, beside the machine and its data; ``train`` documents each.

    Raises:
        TypeError, ValueError: a setting of the wrong type or out of range; the message names it.
    """

    rule: Rule
    updates: int | None
    epochs: int | None
    batch_size: int
    optimizer: str | OptimizerFactory
    learning_rate: float
    schedule: str | Schedule
    momentum: float
    clip_norm: float | None
    weight_decay: float
    l1: float
    averaging: float | None
    transform: Transform | None
    seed: int
    precision: str = "float32"
    shards: int | None = None

    def __post_init__(self) -> None:
        if not callable(getattr(self.rule, "gradient", None)):
            raise TypeError(
                "rule: expected a rule such as harmonium.rules.pcd(), or its name, "
                f"received {type(self.rule).__name__}"
            )
        if (self.updates is None) == (self.epochs is None):
            raise ValueError("updates, epochs: expected exactly one of them")
        for name in ("updates", "epochs"):
            if getattr(self, name) is not None:
                _checks.positive_int(getattr(self, name), name)
        _checks.positive_int(self.batch_size, "batch_size")
        if isinstance(self.optimizer, str):
            _checks.one_of(self.optimizer, "optimizer", OPTIMIZERS)
        elif not callable(self.optimizer):
            raise TypeError(
                f"optimizer: expected a name or a callable, received {type(self.optimizer).__name__}"
            )
        _checks.real(self.learning_rate, "learning_rate", low=0.0)
        as_schedule(self.schedule)
        if not 0 <= _checks.real(self.momentum, "momentum") < 1:
            raise ValueError(f"momentum: expected a number in [0, 1), received {self.momentum}")
        if self.momentum > 0 and self.optimizer != "sgd":
            raise ValueError('momentum: only optimizer="sgd" takes it; expected 0 with any other')
        if self.clip_norm is not None and _checks.real(self.clip_norm, "clip_norm") <= 0:
            raise ValueError(f"clip_norm: expected a number above 0 or None, received {self.clip_norm}")
        _checks.real(self.weight_decay, "weight_decay", low=0.0)
        _checks.real(self.l1, "l1", low=0.0)
        if self.averaging is not None and not 0 < _checks.real(self.averaging, "averaging") < 1:
            raise ValueError(f"averaging: expected a decay in (0, 1) or None, received {self.averaging}")
        if self.transform is not None and not callable(self.transform):
            raise TypeError(
                f"transform: expected a callable or None, received {type(self.transform).__name__}"
            )
        _checks.one_of(self.precision, "precision", PRECISIONS)
        if _checks.positive_int(self.seed, "seed", minimum=0) >= 1 << 63:
            raise ValueError(f"seed: expected an int in [0, 2**63), received {self.seed}")

    def as_dict(self) -> dict[str, Any]:
        """The settings as numbers and strings, for ``config.json`` and to recognise them on resuming."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if hasattr(value, "__index__"):
        return int(value)
    if hasattr(value, "__float__"):
        return float(value)
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    # The address that a default repr ends in changes from process to process.
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def move(machine: BoltzmannMachine, device: str | torch.device | None) -> None:
    """Moves a machine to a device; None leaves it where it is.

    Raises:
        TypeError: no machine.
        ValueError: a device that cannot be used.
    """
    if not isinstance(machine, BoltzmannMachine):
        raise TypeError(f"machine: expected a BoltzmannMachine, received {type(machine).__name__}")
    if device is not None:
        try:
            if torch.device(device).type == "meta":
                raise RuntimeError("it holds no numbers, and the machine would lose its own")
            machine.to(torch.device(device))
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device: {device} cannot be used ({str(error).splitlines()[0]})") from error
