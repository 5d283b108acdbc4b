"""Callbacks of ``harmonium.train``.

A callback is called with an ``Update`` after each update; one that returns ``STOP`` ends the run cleanly. An
object may also have any of these methods:

- ``begin(judged, metrics)``: the run is about to start; ``judged`` is the machine that its metrics judge, the
  running average where the run keeps one, and ``metrics`` are their names;
- ``needs_update(step, total)``: whether it has to be called after so many updates; else after all;
- ``finish(judged)``: the run was completed or stopped (not: interrupted) and its checkpoint is written;
- ``close()``: the run is over, however it ended;
- ``state_dict()`` and ``load_state_dict(state)``: what a checkpoint keeps of the callback; nested lists,
  tuples and dicts of tensors, numbers, strings and None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from torch import Tensor

from harmonium import _checks
from harmonium.machine import BoltzmannMachine

__all__ = ["STOP", "Callback", "EarlyStopping", "Signal", "Update"]


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
        learning_rate: Rate of the first parameter group in this update.
        gradient_norm: Euclidean norm over all parameters, with decay terms, before clipping.
        diagnostics: Diagnostics of the rule for this update.
        metrics: evaluated after this update; empty where none were.
        averaged: a machine with the running average of the parameters; None without ``averaging``.
    """

    step: int
    total: int
    epoch: int
    machine: BoltzmannMachine
    learning_rate: float
    gradient_norm: float
    diagnostics: Mapping[str, float]
    metrics: Mapping[str, float]
    averaged: BoltzmannMachine | None = None

    @property
    def judged(self) -> BoltzmannMachine:
        """The machine that the metrics judge: the running average where there is one."""
        return self.machine if self.averaged is None else self.averaged


Callback = Callable[[Update], Signal | None]


def needs_update(callback: Callback, step: int, total: int) -> bool:
    """Returns whether a callback has to be called after so many updates, of so many in all.

    One with a method ``needs_update(step, total)`` is asked, and may be called after others too; all others
    always are. Updates that no callback needs may be made many in one compiled call.
    """
    return bool(callback.needs_update(step, total)) if hasattr(callback, "needs_update") else True


def notify(callback: Callback, method: str, *arguments: Any) -> None:
    """Calls a method that a callback may have."""
    if hasattr(callback, method):
        getattr(callback, method)(*arguments)


class EarlyStopping:
    """Stops a run when a metric has not improved for a number of evaluations, or has reached a target.

    A run that ends, stopped or completed, gets the parameters of the best evaluation back: with ``averaging``
    those of the average, which metrics judge then. The checkpoint keeps the last ones, from which a longer
    run continues.

    Args:
        metric: name of the metric to follow, one of those given to ``train``.
        patience: evaluations without an improvement after which the run stops, >= 1.
        minimum_change: a change counts as an improvement when it exceeds this, >= 0, in the metric's unit.
        larger_is_better: False for errors and other metrics that should fall.
        target: the run stops as soon as the metric is as good as this; None: no value ends it.

    Attributes:
        best: the best value so far, None before the first evaluation.
        best_step: the update it was reached at.

    Raises:
        ValueError: ``patience`` or ``minimum_change`` out of range, or, when the run starts, an unknown
            metric.
    """

    _KEPT: ClassVar = ("best", "best_step", "_waited", "_best_state")  # by a checkpoint

    def __init__(
        self,
        metric: str,
        patience: int,
        minimum_change: float = 0.0,
        larger_is_better: bool = True,
        target: float | None = None,
    ) -> None:
        _checks.positive_int(patience, "patience")
        if not 0 <= minimum_change < math.inf:
            raise ValueError(f"minimum_change: expected a finite number >= 0, received {minimum_change}")
        self.metric = metric
        self.patience = patience
        self.minimum_change = minimum_change
        self.larger_is_better = larger_is_better
        self.target = None if target is None else _checks.real(target, "target")
        self.best: float | None = None
        self.best_step: int | None = None
        self._waited = 0
        self._best_state: dict[str, Tensor] | None = None

    def begin(self, judged: BoltzmannMachine, metrics: Sequence[str]) -> None:
        """Starts afresh, so that one object may serve several runs."""
        if self.metric not in metrics:
            raise ValueError(
                f"EarlyStopping: expected metric to be one of {list(metrics)}, received {self.metric!r}"
            )
        self.best = self.best_step = self._best_state = None
        self._waited = 0

    def needs_update(self, step: int, total: int) -> bool:
        """Returns False: it looks at metrics alone, and all callbacks see the updates that have them."""
        return False

    def __call__(self, update: Update) -> Signal | None:
        """Notes the metric where it was evaluated; STOP when patience has run out."""
        if self.metric not in update.metrics:
            return None
        value, sign = update.metrics[self.metric], 1 if self.larger_is_better else -1
        rise = math.inf if self.best is None else sign * (value - self.best)
        if rise > self.minimum_change and not math.isnan(value):
            self.best, self.best_step, self._waited = value, update.step, 0
            state = update.judged.state_dict()
            self._best_state = {name: tensor.clone() for name, tensor in state.items()}
        else:
            self._waited += 1
        reached = self.target is not None and sign * (value - self.target) >= 0
        return STOP if reached or self._waited >= self.patience else None

    def finish(self, judged: BoltzmannMachine) -> None:
        """Puts the best parameters back."""
        if self._best_state is not None:
            judged.load_state_dict(self._best_state)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that a checkpoint keeps."""
        return {name: getattr(self, name) for name in self._KEPT}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a checkpoint."""
        for name in self._KEPT:
            setattr(self, name, state[name])
