"""The argument of a callback after an update, and its return value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from harmonium.machine import BoltzmannMachine


class Signal(Enum):
    """A signal that a callback may return."""

    STOP = "stop"


STOP = Signal.STOP
"""Returned by a callback, ends the run cleanly after the current update, with status "stopped"."""


@dataclass(frozen=True, slots=True)
class Update:
    """One finished update, as callbacks see it.

    Attributes:
        step: updates made so far, >= 1.
        total: updates of the whole run.
        epoch: passes over the data completed.
        machine: the machine in training, after the update; to be read, not changed.
        learning_rate: of the first parameter group in this update.
        gradient_norm: Euclidean norm over all parameters, with decay terms, before clipping.
        diagnostics: of the rule, for this update.
        metrics: evaluated after this update; empty where none were.
    """

    step: int
    total: int
    epoch: int
    machine: BoltzmannMachine
    learning_rate: float
    gradient_norm: float
    diagnostics: Mapping[str, float]
    metrics: Mapping[str, float]


Callback = Callable[[Update], Signal | None]


def wants(callback: Callback, step: int, total: int) -> bool:
    """Returns whether a callback has to be called after so many updates, of so many in all.

    One with a method ``wants(step, total)`` says so, and may be called after others too; all others always
    are. Updates that nobody wants to see may be made many in one compiled call.
    """
    return bool(callback.wants(step, total)) if hasattr(callback, "wants") else True


def offer(callback: Callback, method: str, *arguments: Any) -> None:
    """Calls a method that a callback may have."""
    if hasattr(callback, method):
        getattr(callback, method)(*arguments)
