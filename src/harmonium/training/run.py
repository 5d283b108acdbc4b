"""The result of training."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harmonium import _html
from harmonium.ladder import Ladder
from harmonium.machine import BoltzmannMachine
from harmonium.training.history import Record

Status = Literal["completed", "stopped", "interrupted"]


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """The outcome of ``train``.

    Attributes:
        machine: the trained machine, the object that was passed in.
        averaged_machine: a machine with the running average of the parameters; None without ``averaging``.
        history: records in order, dicts with ``step``, ``seconds``, ``learning_rate``, the means since the
            record before of ``gradient_norm`` and of the rule's diagnostics, ``weight_norm`` (of all
            couplings together), and the metrics where they were evaluated.
        status: "completed"; "stopped" by a callback; "interrupted" by Ctrl-C or SIGTERM.
        updates: updates made, those before a resume included.
        seconds: time in training, likewise.
        run_dir: the folder of the run, None where there is none.
        rule_state: what the rule keeps between updates, such as persistent chains with the number of their
            sweeps, ``{"chains", "sweeps"}``; pass it to ``rule.gradient`` or to another ``train``.
        metrics: the last value of each metric.
        signal: the number of the signal that interrupted the run, None otherwise.
        ladder: from independent units to the machine along the training; None without ``ladder``, or where
            the run was interrupted.
    """

    machine: BoltzmannMachine
    averaged_machine: BoltzmannMachine | None
    history: list[Record] = field(repr=False)
    status: Status
    updates: int
    seconds: float
    run_dir: Path | None
    rule_state: Any = field(repr=False)
    metrics: dict[str, float]
    signal: int | None = None
    ladder: Ladder | None = field(default=None, repr=False)

    def whole(self) -> TrainingRun:
        """This run, where no signal cut it short: what a script of several runs has to know.

        A first Ctrl-C or SIGTERM ends a training between two updates, and a loop over seeds would go on with
        the next one, half a run among its results: ``run = hm.train(...).whole()``.

        Raises:
            KeyboardInterrupt: after a Ctrl-C.
            SystemExit: after a SIGTERM, with the status of a process that it ended, 143.
        """
        if self.status != "interrupted":
            return self
        if self.signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [
            ("updates", f"{self.updates:,}"),
            ("seconds", f"{self.seconds:.1f}"),
        ]
        rows += [(name, f"{value:.4g}") for name, value in self.metrics.items()]
        rows += [("folder", self.run_dir)] if self.run_dir else []
        return _html.table(f"Run, {self.status}", rows)
