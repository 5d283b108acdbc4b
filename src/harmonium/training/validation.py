"""Metrics on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from harmonium.data import Rows
from harmonium.machine import BoltzmannMachine
from harmonium.training.history import RESERVED
from harmonium.training.support import check_rows

Metric = Callable[[BoltzmannMachine, Tensor], float]


class Validation:
    """The metrics of a run and the rows that they see.

    Args:
        X: rows as ``train`` takes them, few enough to be held as floats; None with no metrics.
        metrics: callables ``(machine, X) -> float`` by name; X is a float tensor (rows, width) on the
            machine's device, with NaN where X has it: they get the rows as they are, and no weights.
        machine: gives width, dtype and device.

    Raises:
        TypeError: a metric that cannot be called.
        ValueError: rows without metrics or metrics without rows; a reserved name; rows that do not fit the
            machine.
    """

    def __init__(self, X: Any, metrics: Mapping[str, Metric] | None, machine: BoltzmannMachine) -> None:
        self.metrics = dict(metrics or {})
        if (X is None) != (not self.metrics):
            missing = "validation" if X is None else "metrics"
            raise ValueError(
                f"{missing}: expected with {'metrics' if X is None else 'validation'}, received none"
            )
        for name, metric in self.metrics.items():
            if not callable(metric):
                raise TypeError(f"metrics[{name!r}]: expected a callable, received {type(metric).__name__}")
            if name in RESERVED:
                raise ValueError(
                    f"metrics: expected names other than {', '.join(RESERVED)}, received {name!r}"
                )
        if X is not None:
            rows = Rows.of(X, dtype=machine.dtype, name="validation", missing=True)
            check_rows(machine, rows, "validation")
            self._X = rows.take(torch.arange(len(rows))).to(machine.device)

    @torch.no_grad()
    def __call__(self, machine: BoltzmannMachine) -> dict[str, float]:
        """Every metric now, outside autograd."""
        return {name: float(metric(machine, self._X)) for name, metric in self.metrics.items()}
