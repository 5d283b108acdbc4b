"""Stop when a validation metric no longer improves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from harmonium import _checks
from harmonium._alike import require_alike
from harmonium.machine import BoltzmannMachine
from harmonium.training.callbacks.update import STOP, Signal, Update


class EarlyStopping:
    """Stops a run when a metric has not improved for a number of evaluations.

    Args:
        metric: name of the metric to follow, one of those given to ``train``.
        patience: evaluations without an improvement after which the run stops, >= 1.
        minimum_change: a change counts as an improvement when it exceeds this, >= 0, in the metric's unit.
        restore_best: when the run ends, stopped or completed, put back the parameters of the best evaluation.
            The checkpoint keeps the last ones, so that a longer run continues from there.
        larger_is_better: False for errors and other metrics that should fall.

    Attributes:
        best: the best value so far, None before the first evaluation.
        best_step: the update it was reached at.

    Raises:
        ValueError: ``patience`` or ``minimum_change`` out of range, or, when the run starts, an unknown
            metric.
    """

    def __init__(
        self,
        metric: str,
        patience: int,
        minimum_change: float = 0.0,
        restore_best: bool = True,
        larger_is_better: bool = True,
    ) -> None:
        _checks.positive_int(patience, "patience")
        if not 0 <= minimum_change < math.inf:
            raise ValueError(f"minimum_change: expected a finite number >= 0, received {minimum_change}")
        self.metric = metric
        self.patience = patience
        self.minimum_change = minimum_change
        self.restore_best = restore_best
        self.larger_is_better = larger_is_better
        self.best: float | None = None
        self.best_step: int | None = None
        self._waited = 0
        self._best_state: dict[str, Tensor] | None = None
        self._current: dict[str, Tensor] = {}

    def begin(self, machine: BoltzmannMachine, metrics: Sequence[str]) -> None:
        """Start afresh, so that one object may serve several runs."""
        if self.metric not in metrics:
            raise ValueError(
                f"EarlyStopping: expected metric to be one of {list(metrics)}, received {self.metric!r}"
            )
        self.best = self.best_step = self._best_state = None
        self._waited = 0
        self._current = machine.state_dict()

    def wants(self, step: int, total: int) -> bool:
        """Returns False: it looks at metrics alone, and all callbacks see the updates that have them."""
        return False

    def __call__(self, update: Update) -> Signal | None:
        """Note the metric where it was evaluated; STOP when patience has run out."""
        if self.metric not in update.metrics:
            return None
        value = update.metrics[self.metric]
        if self._improves(value):
            self.best, self.best_step, self._waited = value, update.step, 0
            if self.restore_best:
                state = update.machine.state_dict()
                self._best_state = {name: tensor.clone() for name, tensor in state.items()}
        else:
            self._waited += 1
        return STOP if self._waited >= self.patience else None

    def finish(self, machine: BoltzmannMachine) -> None:
        """Put the best parameters back."""
        if self._best_state is not None:
            machine.load_state_dict(self._best_state)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that a checkpoint keeps."""
        return {
            "best": self.best,
            "best_step": self.best_step,
            "waited": self._waited,
            "best_state": self._best_state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint.

        Raises:
            ValueError: not what ``state_dict`` returns for the machine of this run.
        """
        kinds = {"best": (float, type(None)), "best_step": (int, type(None)), "waited": (int,)}
        if state.keys() != {*kinds, "best_state"} or any(type(state[k]) not in kinds[k] for k in kinds):
            raise ValueError(f"EarlyStopping: expected a state of {self.state_dict()}, received {state}")
        if state["best_state"] is not None:
            require_alike(state["best_state"], dict(self._current), "EarlyStopping: best_state")
        self.best, self.best_step, self._waited = state["best"], state["best_step"], state["waited"]
        self._best_state = state["best_state"]

    def _improves(self, value: float) -> bool:
        if self.best is None:
            return not math.isnan(value)
        return (value - self.best if self.larger_is_better else self.best - value) > self.minimum_change
