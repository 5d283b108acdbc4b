"""The settings of a run, each described once: for ``train``, the command, ``run.toml`` and the estimators."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, final

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._settings import COUNT, AtLeast0, Checked, Count, Interval, Setting, Share
from harmonium.backends import PRECISIONS
from harmonium.learning import Rule
from harmonium.machine import BoltzmannMachine
from harmonium.training.optimizers import OPTIMIZERS, OptimizerFactory, read_rates
from harmonium.training.penalties import L1, L2, Penalty, read_penalties
from harmonium.training.schedules import SCHEDULES, Schedule

Transform = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True, kw_only=True)
class Steps(Checked):
    """The length of a run and its steps: what the command, ``run.toml`` and ``train`` share.

    What is None the command chooses by the data (``training.recipe``).

    Attributes:
        updates: length of the run, where epochs are not given.
        epochs: passes over the data; where no length is given, it follows from the number of rows.
        batch_size: rows of every update.
        learning_rate: at the start; if not given by how columns vary together, the rows and the kinds of
            units.
        rates: factors of the learning rate for parameters by name, such as log_variance=0.01 beside Gaussian
            units; repeatable.
        schedule: schedule of the learning rate; linear if not given.
        optimizer: optimiser, sgd or adam, or lbfgs to a tolerance on all rows for rules without noise; sgd if
            not given, adam with a label or for grey images in Gaussian units.
        momentum: momentum of sgd, in [0, 1).
        weight_decay: L2 penalty on the couplings.
        l1: L1 penalty on the couplings.
        penalties: others on the couplings, such as group=0.01, which lets whole pairs of units go, or
            l1squared=0.1; fields=0.02 is for biases; repeatable.
        clip_norm: largest norm of the gradient; if not given 1 beside units without a bound, such as
            Gaussian ones (10 for grey images), and any beside others.
        radius: largest norm of all parameters together, to which every update projects them.
        averaging: decay of a running average of the parameters, such as 0.999; 0.99 with a label if not
            given.
        ladder: keep running averages along the way as the rungs of a ladder.
    """

    PANEL: ClassVar[str] = "Length and steps"
    METHOD: ClassVar[str] = "chains"
    updates: Annotated[int | None, Setting(COUNT, belongs_to=("epochs",))] = None
    epochs: Annotated[int | None, Setting(COUNT, belongs_to=("updates",))] = None
    batch_size: Count = 100
    learning_rate: AtLeast0 | None = None
    rates: Annotated[list[str] | None, Setting(option="--rate", metavar="NAME=FACTOR")] = None
    schedule: Annotated[str | Schedule | None, Setting(SCHEDULES)] = None
    optimizer: Annotated[str | OptimizerFactory | None, Setting(OPTIMIZERS)] = None
    momentum: Annotated[float, Setting(Interval(0.0, 1.0, "left"), belongs_to=("optimizer",))] = 0.0
    weight_decay: AtLeast0 = 0.0
    l1: AtLeast0 = 0.0
    penalties: Annotated[list[str] | None, Setting(option="--penalty", metavar="KIND=STRENGTH")] = None
    clip_norm: Annotated[float | None, Setting(Interval(0.0, closed="neither"))] = None
    radius: Annotated[float | None, Setting(Interval(0.0, closed="neither"))] = None
    averaging: Share | None = None
    ladder: Annotated[bool, Setting(option="--ladder")] = False


@final
@dataclass(frozen=True, kw_only=True)
class Settings(Steps):
    """The settings that determine a run, beside the machine and its data; ``train`` documents each."""

    rule: Rule
    transform: Transform | None
    seed: int
    schedule: Annotated[str | Schedule, Setting(SCHEDULES)] = "constant"
    rates: Any = None
    penalties: Any = None
    precision: Annotated[str, Setting(PRECISIONS)] = "float32"
    shards: int | None = None

    def __post_init__(self) -> None:
        if not callable(getattr(self.rule, "gradient", None)):
            raise TypeError(
                "rule: expected a rule such as harmonium.rules.pcd(), or its name, "
                f"received {type(self.rule).__name__}"
            )
        if (self.updates is None) == (self.epochs is None):
            raise ValueError("updates, epochs: expected exactly one of them")
        super().__post_init__()
        object.__setattr__(self, "penalties", read_penalties(self.penalties) or None)
        object.__setattr__(self, "rates", read_rates(self.rates) or None)
        if self.rates and self.optimizer not in ("sgd", "adam"):
            raise ValueError(
                'rates: expected with optimizer="sgd" or "adam", as any other sets its own, '
                f"received {self.rates} with {_plain(self.optimizer)}"
            )
        for name in ("learning_rate", "schedule", "optimizer"):
            if getattr(self, name) is None:
                raise TypeError(f"{name}: expected a value, received None")
        if self.momentum > 0 and self.optimizer != "sgd":
            raise ValueError('momentum: only optimizer="sgd" takes it; expected 0 with any other')
        if self.transform is not None and not callable(self.transform):
            raise TypeError(
                f"transform: expected a callable or None, received {type(self.transform).__name__}"
            )
        if _checks.positive_int(self.seed, "seed", minimum=0) >= 1 << 63:
            raise ValueError(f"seed: expected an int in [0, 2**63), received {self.seed}")

    def pulls(self) -> tuple[Penalty, ...]:
        """Returns all penalties, also those that ``weight_decay`` and ``l1`` are short for."""
        short = (L2(self.weight_decay), L1(self.l1))
        return (*(each for each in short if each.strength), *(self.penalties or ()))

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
