"""The numbers of a run, record by record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

RESERVED = ("step", "seconds", "learning_rate", "gradient_norm", "weight_norm")

Record = dict[str, Any]


def as_line(record: Record) -> bytes:
    """A record as a line of ``history.jsonl``."""
    return json.dumps(record).encode() + b"\n"


def from_lines(lines: list[bytes], step: int) -> list[Record]:
    """Records from lines of ``history.jsonl``, of a run that has made so many updates.

    Raises:
        ValueError: a line that is no record, or steps that do not rise to at most ``step``.
    """
    records: list[Record] = []
    last = 0
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number} is no JSON ({error})") from error
        if not isinstance(record, dict) or any(type(value) not in (int, float) for value in record.values()):
            raise ValueError(f"line {number} holds no numbers by name")
        if type(record.get("step")) is not int or not last < record["step"] <= step:
            raise ValueError(
                f"line {number} has step {record.get('step')!r}; expected one above {last} and at most "
                f"{step}: more than one run may have written here"
            )
        last = record["step"]
        records.append(record)
    return records


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

    def add(self, gradient_norm: float, diagnostics: Mapping[str, float]) -> None:
        """Note the numbers of one update."""
        for name, value in (("gradient_norm", gradient_norm), *diagnostics.items()):
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def record(self, step: int, seconds: float, learning_rate: float, metrics: Mapping[str, float]) -> Record:
        """Close a record: means of what was added since the last one, and the metrics evaluated now.

        Raises:
            ValueError: a metric has the name of a diagnostic of the rule, or a diagnostic that of a column.
        """
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        columns = {"step": step, "seconds": seconds, "learning_rate": learning_rate}
        taken = sorted(means.keys() & columns.keys())
        if taken:
            raise ValueError(
                f"diagnostics: expected other names than {', '.join(RESERVED)}, received {taken}; rename "
                "what the rule, or its kernel, reports"
            )
        taken = sorted(means.keys() & metrics.keys())
        if taken:
            raise ValueError(
                f"metrics: expected names that the rule's diagnostics do not use, received {taken}"
            )
        record = {**columns, **means, **metrics}
        self.records.append(record)
        self._sums, self._counts = {}, {}
        return record

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that a checkpoint keeps: the number of records, and sums since the last one."""
        return {"length": len(self.records), "sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state_dict(self, state: Mapping[str, Any], records: list[Record]) -> None:
        """Continue from a checkpoint and the records written before it."""
        self.records = records
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])
