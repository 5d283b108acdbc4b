"""The numbers of a run, record by record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RESERVED = ("step", "seconds", "learning_rate", "gradient_norm")

Record = dict[str, Any]


class History:
    """Records of a run: flat dicts of step, seconds, learning rate, means since the last record, and metrics.

    Attributes:
        records: what was recorded, in order.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, gradient_norm: float, diagnostics: Mapping[str, float]) -> None:
        """Note the numbers of one update."""
        self._add("gradient_norm", gradient_norm)
        for name, value in diagnostics.items():
            self._add(name, value)

    def record(self, step: int, seconds: float, learning_rate: float, metrics: Mapping[str, float]) -> Record:
        """Close a record: means of what was added since the last one, and the metrics evaluated now.

        Raises:
            ValueError: a metric has the name of a diagnostic of the rule.
        """
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        taken = sorted(means.keys() & metrics.keys())
        if taken:
            raise ValueError(
                f"metrics: expected names that the rule's diagnostics do not use, received {taken}"
            )
        record = {"step": step, "seconds": seconds, "learning_rate": learning_rate, **means, **metrics}
        self.records.append(record)
        self._sums, self._counts = {}, {}
        return record

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: the number of records and the sums since the last one."""
        return {"length": len(self.records), "sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state_dict(self, state: Mapping[str, Any], records: list[Record]) -> None:
        """Continue from a checkpoint and the records written before it."""
        self.records = records
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])

    def _add(self, name: str, value: float) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + value
        self._counts[name] = self._counts.get(name, 0) + 1
