"""Metrics on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.data import Rows
from harmonium.machine import BoltzmannMachine
from harmonium.training.batch_source import check_rows
from harmonium.training.history import RESERVED

Metric = Callable[[BoltzmannMachine, Tensor], float | Tensor]


class Validation:
    """The metrics of a run and the rows that they see.

    Args:
        X: rows as ``train`` takes them, few enough to be held as floats; None with no metrics.
        weights: of the rows, (rows,), at least 0 and not all 0; None: all count alike.
        metrics: callables ``(machine, X)`` by name that return a value for every row, (rows,), of which the
            weighted mean is the metric, or, without weights, a number. X is a float tensor (rows, width) on
            the machine's device, with NaN where X has it, without the rows of weight 0.
        machine: gives width, dtype and device.

    Raises:
        TypeError: a metric that cannot be called.
        ValueError: rows without metrics or metrics without rows; weights without rows; a reserved name; rows
            or weights that do not fit.
    """

    def __init__(
        self, X: Any, weights: Any, metrics: Mapping[str, Metric] | None, machine: BoltzmannMachine
    ) -> None:
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
        if X is None:
            if weights is not None:
                raise ValueError("validation_weight: expected None without validation, received weights")
            return
        rows = Rows.of(X, dtype=machine.dtype, name="validation", missing=True)
        check_rows(machine, rows, "validation")
        weights = _checks.weights(weights, "validation_weight", len(rows))
        kept = torch.arange(len(rows)) if weights is None else weights.nonzero().flatten()
        self._X = rows.take(kept).to(machine.device)
        self._weights = None if weights is None else weights[kept]

    @torch.no_grad()
    def __call__(self, machine: BoltzmannMachine) -> dict[str, float]:
        """Every metric now, outside autograd.

        Raises:
            TypeError: a metric returned something else than numbers.
            ValueError: a metric returned neither a value for every row nor, without weights, a number.
        """
        return {
            name: self._mean(f"metrics[{name!r}]", metric(machine, self._X))
            for name, metric in self.metrics.items()
        }

    def _mean(self, name: str, value: Any) -> float:
        try:
            values = torch.as_tensor(
                value if hasattr(value, "__len__") else float(value), dtype=torch.float64
            )
        except (TypeError, ValueError, RuntimeError) as error:
            received = type(value).__name__
            raise TypeError(f"{name}: expected a number or one for each row, received {received}") from error
        rows, weights = len(self._X), self._weights
        if weights is None and values.numel() == 1:
            return float(values)
        if values.shape != (rows,):
            one = "a number or one" if weights is None else "one"
            received = f"shape {tuple(values.shape)}" if values.dim() else f"the number {float(values):g}"
            raise ValueError(f"{name}: expected {one} for each of {rows} rows, received {received}")
        values = values.cpu()
        return float(values.mean() if weights is None else (values @ weights) / weights.sum())
