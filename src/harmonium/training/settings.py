"""The settings of a run, each described once: for ``train``, the command, ``run.toml`` and the estimators."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from inspect import cleandoc, get_annotations
from math import inf
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, final, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.learning import Rule
from harmonium.machine import BoltzmannMachine
from harmonium.matmul import PRECISIONS
from harmonium.training.optimizers import OPTIMIZERS, OptimizerFactory
from harmonium.training.schedules import SCHEDULES, Schedule

Transform = Callable[[Tensor, torch.Generator], Tensor]


@final
@dataclass(frozen=True)
class Interval:
    """Describes the numbers that a setting takes.

    Attributes:
        low: the lower end.
        high: the upper end.
        closed: the ends that belong to it.
        whole: whether numbers have to be ints; then ``low`` belongs to it, and ``high`` is not read.
    """

    low: float = -inf
    high: float = inf
    closed: Literal["both", "left", "neither"] = "both"
    whole: bool = False

    def check(self, value: Any, name: str, suffix: str = "") -> None:
        """Refuses a value outside.

        Args:
            value: of a setting.
            name: what to call it in the message.
            suffix: else expected.

        Raises:
            TypeError, ValueError: no number, or another one.
        """
        if self.whole:
            _checks.positive_int(value, name, minimum=int(self.low))
        elif self.closed == "both":
            _checks.real(value, name, self.low, self.high)
        else:
            number = _checks.real(value, name)
            if not (self.low < number < self.high or (self.closed == "left" and number == self.low)):
                ends = f"in {'[' if self.closed == 'left' else '('}{self.low:g}, {self.high:g})"
                within = f"above {self.low:g}" if self.high == inf else ends
                raise ValueError(f"{name}: expected a number {within}{suffix}, received {value}")


@final
@dataclass(frozen=True, eq=False)
class Setting:
    """Describes a setting: a field of a dataclass, or a parameter of a command.

    Options and help of the command, the lines of ``run.toml`` and the checks are made from it. Type and
    default are those of the field, the help is its line in the docstring, and what else there is to be said
    stands in its annotation: ``Annotated[int, Setting(COUNT)]``.

    Attributes:
        takes: the numbers or the words that are allowed, beside callables where its type has them; None:
            whatever its type allows.
        option: the option's name, such as ``--from``, where it is not that of the setting.
        metavar: stands for the value in the help.
        argument: whether it is given by its place on the command line.
        complete: for the shell, ``(incomplete) -> words`` or ``(context, incomplete) -> words``; None: it
            completes the words that are allowed.
        belongs_to: settings whose new value replaces what a file has for this one.
        kind: its type.
        help: a line, for the command and ``run.toml``, where the docstring has none.
        panel: under which the help shows it, the ``PANEL`` of the dataclass.
    """

    takes: Interval | Collection[str] | None = None
    option: str | None = None
    metavar: str | None = None
    argument: bool = False
    complete: Callable[..., list[str]] | None = None
    belongs_to: tuple[str, ...] = ()
    kind: Any = object
    help: str = ""
    panel: str | None = None

    @property
    def words(self) -> Collection[str] | None:
        """The words that are allowed; None where it takes others."""
        return None if isinstance(self.takes, Interval) else self.takes

    def check(self, value: Any, name: str) -> None:
        """Refuses a value that is not allowed; None passes where the type has it.

        Args:
            value: of the setting.
            name: what to call it in the message.

        Raises:
            TypeError, ValueError: it is not allowed.
        """
        kinds = get_args(self.kind)
        if self.takes is None or (NoneType in kinds and value is None):
            return
        if isinstance(self.takes, Interval):
            self.takes.check(value, name, " or None" if NoneType in kinds else "")
        elif isinstance(value, str) or not any(get_origin(each) is Callable for each in kinds):
            _checks.one_of(value, name, self.takes)
        elif not callable(value):
            raise TypeError(f"{name}: expected a name or a callable, received {type(value).__name__}")


@cache
def settings_of(owner: Any) -> dict[str, Setting]:
    """Returns the description of every setting by its name, in their order.

    Args:
        owner: a dataclass, or a function whose parameters are settings.
    """
    hints, kinds = get_type_hints(owner, include_extras=True), get_type_hints(owner)
    found: dict[str, Setting] = {}
    for each in reversed(owner.__mro__) if isinstance(owner, type) else (owner,):
        documented, panel = _documented(each), each.__dict__.get("PANEL")
        for name in get_annotations(each):
            if name == "return" or is_dataclass(kinds[name]) or get_origin(kinds[name]) is ClassVar:
                continue
            parts = (hints[name], *get_args(hints[name]))
            told = [x for part in parts for x in getattr(part, "__metadata__", ()) if isinstance(x, Setting)]
            setting = replace(told[0] if told else Setting(), kind=kinds[name], panel=panel)
            if choices := [x for part in parts if get_origin(part) is Literal for x in get_args(part)]:
                setting = replace(setting, takes=choices)
            found[name] = replace(
                setting, help=_with_words(documented.get(name, setting.help), setting.words)
            )
    return found


def _documented(owner: Any) -> dict[str, str]:
    """Returns what a docstring says of each of its arguments or attributes."""
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)*)", cleandoc(owner.__doc__ or ""), re.M)
    entries = re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", section[1] if section else "", re.M)
    return {name: " ".join((text[:1].upper() + text[1:]).split()) for name, text in entries}


def _with_words(text: str, words: Collection[str] | None) -> str:
    """Returns a line of help with the words of a setting behind its first clause, where it lacks some."""
    if words is None or all(word in text for word in words):
        return text
    head, mark, rest = re.split(r"([;.]|$)", text, maxsplit=1)
    return f"{head}: {', '.join(words)}{mark}{rest}"


COUNT = Interval(1, whole=True)
Count = Annotated[int, Setting(COUNT)]
From0 = Annotated[int, Setting(Interval(0, whole=True))]
Share = Annotated[float, Setting(Interval(0.0, 1.0, "neither"))]
AtLeast0 = Annotated[float, Setting(Interval(0.0))]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Settings that are checked when they are made.

    Raises:
        TypeError, ValueError: a setting of the wrong type or out of range; the message names it.
    """

    def __post_init__(self) -> None:
        owner: Any = type(self)
        for name, setting in settings_of(owner).items():
            setting.check(getattr(self, name), name)


@dataclass(frozen=True, kw_only=True)
class Steps(Checked):
    """The length of a run and its steps: what the command, ``run.toml``, estimators and ``train`` share.

    Where ``learning_rate``, ``schedule`` or ``optimizer`` is None, the command chooses by the data.

    Attributes:
        updates: length of the run, or use --epochs.
        epochs: passes over the data; where --updates is not given either at least 10 and 2000 updates, with
            --label 20 and 1000.
        batch_size: rows of every update.
        learning_rate: at the start; 0.05 if not given, and with a label what hm.RBMClassifier takes.
        schedule: of the learning rate; constant if not given, linear with --label and for real columns.
        optimizer: optimiser, sgd or adam; sgd if not given, adam with --label.
        momentum: of sgd, in [0, 1).
        weight_decay: L2 penalty on the couplings.
        l1: L1 penalty on the couplings.
        clip_norm: largest norm of the gradient; 1 beside Gaussian units or a label if not given.
        averaging: decay of a running average of the parameters, such as 0.999.
    """

    PANEL: ClassVar[str] = "Length and steps"
    updates: Annotated[int | None, Setting(COUNT, belongs_to=("epochs",))] = None
    epochs: Annotated[int | None, Setting(COUNT, belongs_to=("updates",))] = None
    batch_size: Count = 100
    learning_rate: AtLeast0 | None = None
    schedule: Annotated[str | Schedule | None, Setting(SCHEDULES)] = None
    optimizer: Annotated[str | OptimizerFactory | None, Setting(OPTIMIZERS)] = None
    momentum: Annotated[float, Setting(Interval(0.0, 1.0, "left"), belongs_to=("optimizer",))] = 0.0
    weight_decay: AtLeast0 = 0.0
    l1: AtLeast0 = 0.0
    clip_norm: Annotated[float | None, Setting(Interval(0.0, closed="neither"))] = None
    averaging: Share | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Settings(Steps):
    """The settings that determine a run, beside the machine and its data; ``train`` documents each."""

    rule: Rule
    transform: Transform | None
    seed: int
    schedule: Annotated[str | Schedule, Setting(SCHEDULES)] = "constant"
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
