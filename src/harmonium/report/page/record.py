"""The record in the folder of a run: settings, numbers, and their charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harmonium._storage import MACHINE
from harmonium.report.page.figures import Chart, chart
from harmonium.training import RESERVED, RUN_FILE, Record, read_lines, read_run_file

_ERROR = "_standard_error"
_NORMS = (("gradient", "gradient_norm"), ("weights", "weight_norm"))
# Numbers that belong into one chart, by the ends of their names; others get a chart each.
_FAMILIES = (
    ("Meeting times of coupled chains", "sweeps", ("meeting_time",)),
    ("Pairs of chains cut before they met", "fraction", ("capped",)),
    ("Sweeps of an update", "sweeps", ("sweeps", "longest_search")),
    ("Rows whose mean field converged", "fraction", ("converged", "unbounded")),
    ("Proposals accepted", "fraction", ("acceptance", "swap_rate")),
    ("Units that a sweep changes", "fraction", ("flip_rate",)),
)


@dataclass(frozen=True)
class RunRecord:
    """The record of a run.

    Attributes:
        name: The folder's name.
        config: What ``run.toml`` holds, its tables within; empty where there is none.
        history: the lines of ``history.jsonl``.
        date: when training began, or last went on: the time of ``run.toml``.
        finished: whether the run has written its machine.
    """

    name: str
    config: dict[str, Any]
    history: list[Record]
    date: str
    finished: bool

    @classmethod
    def read(cls, run: Path) -> RunRecord:
        """Reads the record in a folder; of a machine's file one that is empty.

        Raises:
            FileNotFoundError: no such folder or file, or a folder that holds no run.
            ValueError: a damaged file, which the message names.
        """
        if not run.exists():
            raise FileNotFoundError(f"RUN: there is no file or folder {run}")
        config, history = run / RUN_FILE, run / "history.jsonl"
        if run.is_file():
            return cls(run.stem, {}, [], _read_date(run), True)
        if not config.exists() and not (run / MACHINE).exists():
            raise FileNotFoundError(f"RUN: {run} holds no run: neither {RUN_FILE} nor {MACHINE}")
        try:
            settings = read_run_file(config) if config.exists() else {}
            for table in ("run", "made_with"):  # what the run came to wins over what was asked
                settings |= settings.pop(table, {})
        except (TypeError, ValueError) as error:
            raise ValueError(f"RUN: {config} is damaged ({error})") from error
        try:
            records = read_lines(history.read_bytes() if history.exists() else b"")
        except ValueError as error:
            raise ValueError(f"RUN: {history} is damaged ({error})") from error
        dated = config if config.exists() else run / MACHINE
        return cls(run.resolve().name, settings, records, _read_date(dated), (run / MACHINE).exists())

    @property
    def updates(self) -> int:
        """Updates that the last record was written after."""
        return int(self.history[-1]["step"]) if self.history else 0

    @property
    def seconds(self) -> float:
        """Seconds of the training until the last record."""
        return float(self.history[-1]["seconds"]) if self.history else 0.0

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics, which follow ``weight_norm`` in a record, but their standard errors."""
        names: dict[str, None] = {}
        for record in self.history:
            keys = list(record)
            if "weight_norm" in keys:
                names |= dict.fromkeys(keys[keys.index("weight_norm") + 1 :])
        return [name for name in names if not name.endswith(_ERROR)]

    def points(self, name: str) -> list[tuple[float, float]]:
        """Returns a number of the records over the updates."""
        return [(record["step"], record[name]) for record in self.history if name in record]

    def late(self, name: str) -> float | None:
        """Returns the mean of a number over the last third of training."""
        last = [y for x, y in self.points(name) if 3 * x >= 2 * self.updates]
        return sum(last) / len(last) if last else None

    def settings(self) -> dict[str, str]:
        """Returns everything of ``run.toml``, in words."""
        plain: dict[str, str] = {}
        for name, value in self.config.items():
            if name == "X" and isinstance(value, list):
                plain["rows"] = f"{value[0]} of {value[1]} columns"
            elif name == "machine" and isinstance(value, list):
                plain["layers"] = ", ".join(part for part in value if isinstance(part, str))
                edges = next((part for part in value if isinstance(part, list)), [])
                joins = (f"{'–'.join(map(str, edge['layers']))} {edge['kind']}" for edge in edges)
                plain["edges"] = ", ".join(joins) or "a chain, dense"
            else:
                plain[name] = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
        return {name.replace("_", " "): text for name, text in {**plain, "date": self.date}.items()}


def curves(runs: Sequence[RunRecord]) -> list[Chart]:
    """Returns the charts of the numbers that runs recorded, one line for each run and number."""
    names = list(dict.fromkeys(name for run in runs for record in run.history for name in record))
    metrics = list(dict.fromkeys(name for run in runs for name in run.metrics))
    rest = [name for name in names if name not in (*RESERVED, *metrics) and not name.endswith(_ERROR)]
    plan = [(spell(name), "nats" if "likelihood" in name else "value", [name]) for name in metrics]
    plan += [(f"Norm of the {what}", "norm", [name]) for what, name in _NORMS]
    for title, unit, ends in _FAMILIES:
        family = [name for name in rest if name.endswith(ends)]
        rest = [name for name in rest if name not in family]
        plan.append((title, unit, family))
    plan += [(spell(name), "value", [name]) for name in rest]
    if len({record.get("learning_rate") for run in runs for record in run.history}) > 1:
        plan.append(("Learning rate", "rate", ["learning_rate"]))
    charts = (_draw_curve(runs, title, unit, names) for title, unit, names in plan)
    return [curve for curve in charts if curve is not None]


def _draw_curve(runs: Sequence[RunRecord], title: str, unit: str, names: Sequence[str]) -> Chart | None:
    """Returns the chart of some numbers of runs."""
    several = len(runs) > 1
    lines, errors, colours, dashed = {}, {}, {}, []
    for number, run in enumerate(runs):
        for rank, name in enumerate(names):
            label = spell(name)
            if several:  # a run has its colour, and the numbers of a family its dashes
                label = f"{run.name} ({number + 1})" + (f": {label.lower()}" if len(names) > 1 else "")
                colours[label] = number
                dashed += [label] if rank else []
            lines[label], errors[label] = run.points(name), run.points(name + _ERROR)
    return chart(title, lines, "updates", unit, errors=errors, colours=colours, dashed=dashed)


def spell(name: str) -> str:
    """Returns the name of a number as it is written in a text, with a capital."""
    text = "score of held-out rows" if name == "validation_score" else name.replace("_", " ")
    return text[:1].upper() + text[1:]


def _read_date(path: Path) -> str:
    """Returns when a file was written."""
    return f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d %H:%M} UTC"
