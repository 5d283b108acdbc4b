"""The numbers of a run, record by record, and its metrics on held-out rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium.data import Rows
from harmonium.machine import BoltzmannMachine
from harmonium.training.batch_source import check_rows

Metric = Callable[[BoltzmannMachine, Tensor], float | Tensor]
CLIPPED = "clipped"
RESERVED = ("step", "seconds", "learning_rate", "gradient_norm", "weight_norm", CLIPPED)

Record = dict[str, Any]


class History:
    """Records of a run: flat dicts of step, seconds, learning rate, means since the last record, and what is
    measured when it is made: the norm of the weights, and metrics.

    Attributes:
        records: what was recorded, in order.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, gradient_norm: float, diagnostics: Mapping[str, float], updates: int = 1) -> None:
        """Notes the numbers of one update, or their sums over several."""
        for name, value in (("gradient_norm", gradient_norm), *diagnostics.items()):
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + updates

    def record(self, step: int, seconds: float, learning_rate: float, metrics: Mapping[str, float]) -> None:
        """Closes a record: means of what was added since the last one, and the metrics evaluated now.

        Raises:
            ValueError: a diagnostic of the rule has the name of a column or of a metric.
        """
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        columns = {"step": step, "seconds": seconds, "learning_rate": learning_rate}
        for name in means:
            if name in columns or name in metrics:
                raise ValueError(
                    f"metrics, diagnostics: expected names of their own, beside {', '.join(RESERVED)}, "
                    f"received {name!r} twice"
                )
        self.records.append({**columns, **means, **metrics})
        self._sums, self._counts = {}, {}

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that a checkpoint keeps: records as lines of JSON, sums since the last."""
        lines = np.frombuffer(write_lines(self.records), np.uint8)
        return {"records": torch.tensor(lines), "sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a checkpoint."""
        self.records = read_lines(state["records"].numpy().tobytes())
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])


def write_lines(records: Sequence[Record]) -> bytes:
    """Returns records as lines of ``history.jsonl``."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def read_lines(lines: bytes) -> list[Record]:
    """Returns the records in lines of ``history.jsonl``, but for a last one that was not written to its end.

    Raises:
        ValueError: a line that holds no numbers by name, with ``step`` and ``seconds`` among them.
    """
    try:
        records = [json.loads(line) for line in lines.splitlines(keepends=True) if line.endswith(b"\n")]
        kinds = {type(value) for x in records for value in (x["step"], x["seconds"], *x.values())}
        if kinds <= {int, float}:
            return records
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"a line holds no record ({error})") from error
    raise ValueError("a line holds no numbers by name")


class Validation:
    """The metrics of a run and the rows that they see, as ``train`` takes them.

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
            missing, present = ("validation", "metrics") if X is None else ("metrics", "validation")
            raise ValueError(f"{missing}: expected with {present}, received none")
        for name, metric in self.metrics.items():
            if not callable(metric):
                raise TypeError(f"metrics[{name!r}]: expected a callable, received {type(metric).__name__}")
            if name in RESERVED:
                raise ValueError(
                    f"metrics: expected names other than {', '.join(RESERVED)}, received {name!r}"
                )
        if X is None:
            if weights is not None:
                raise ValueError("validation_weights: expected None without validation, received weights")
            return
        rows = Rows.of(X, dtype=machine.dtype, name="validation", missing=True)
        check_rows(machine, rows, "validation")
        weights = _checks.weights(weights, "validation_weights", len(rows))
        weighted_rows = torch.arange(len(rows)) if weights is None else weights.nonzero().flatten()
        self._X = rows.take(weighted_rows).to(machine.device)
        self._weights = None if weights is None else weights[weighted_rows]

    @torch.no_grad()
    def __call__(self, machine: BoltzmannMachine) -> dict[str, float]:
        """Returns every metric now; TypeError, ValueError: one returned neither numbers of rows nor one."""
        return {
            name: self._average(f"metrics[{name!r}]", metric(machine, self._X))
            for name, metric in self.metrics.items()
        }

    def _average(self, name: str, value: Any) -> float:
        try:
            values = torch.as_tensor(value, dtype=torch.float64)
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
