"""What ``python -m benchmarks quality`` found: one JSON file for a processor, written after every run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from math import exp, log
from pathlib import Path
from typing import Any, final

from benchmarks.quality_contestants import Option
from benchmarks.records import as_json
from benchmarks.system import Processor

FOLDER = Path(__file__).parent / "results"


@final
@dataclass(frozen=True)
class Run:
    """A machine trained and evaluated.

    Attributes:
        contestant: its name.
        command: the date of the command that made it.
        schedule, rate, centred: from the grid; None where the library chose.
        passes, updates: the length of the run; None where the library chose.
        seconds: of CPU time of training.
        test: mean log-likelihood of the rows held out, in nats, by the estimate of ln Z.
        low, high: the same by the upper and the lower bound of ln Z.
        ess: effective sample size of annealing; None where ln Z is exact.
        failed: what went wrong, in place of a likelihood.
    """

    contestant: str
    command: str
    schedule: str | None = None
    rate: float | None = None
    centred: bool | None = None
    passes: int | None = None
    updates: int | None = None
    seconds: float | None = None
    test: float | None = None
    low: float | None = None
    high: float | None = None
    ess: float | None = None
    failed: str | None = None

    @property
    def option(self) -> Option | None:
        """What it was given from the grid."""
        if self.schedule is None or self.rate is None or self.centred is None:
            return None
        return Option(self.schedule, self.rate, self.centred)


@final
@dataclass
class Results:
    """The runs on one data set.

    Attributes:
        title: of the data and the machine.
        notes: lines below the table.
        targets: nats; the time to each is reported.
        runs: in the order in which they were made.
    """

    title: str
    notes: list[str]
    targets: list[float]
    runs: list[Run] = field(default_factory=list)

    def find(self, contestant: str, option: Option | None, passes: int | None) -> Run | None:
        """Returns the run of these settings, if there is one."""
        wanted = (contestant, option, passes)
        return next((run for run in self.runs if (run.contestant, run.option, run.passes) == wanted), None)

    def ranked(self, contestant: str, passes: int | None) -> list[Run]:
        """Returns the runs of one length that ended well, the best first, by their lower bound."""
        found = [run for run in self.runs if (run.contestant, run.passes) == (contestant, passes)]
        return sorted((run for run in found if run.low is not None), key=lambda run: -(run.low or 0.0))

    def frontier(self, contestant: str) -> list[Run]:
        """Returns the best run of every length, from short to long."""
        lengths = {run.passes for run in self.runs if run.contestant == contestant}
        best = [ranked[0] for each in lengths if (ranked := self.ranked(contestant, each))]
        return sorted(best, key=lambda run: run.seconds or 0.0)

    def seconds_to(self, contestant: str, nats: float) -> float | None:
        """Returns the CPU seconds to a lower bound of so many nats, None where no run has it.

        Between two lengths the bound is taken to be linear in the logarithm of the time.
        """
        before: tuple[float, float] | None = None
        for run in self.frontier(contestant):
            assert run.seconds is not None and run.low is not None
            if run.low >= nats:
                if before is None:
                    return run.seconds
                part = (nats - before[1]) / (run.low - before[1])
                return exp(log(before[0]) + part * (log(run.seconds) - log(before[0])))
            before = (run.seconds, run.low)
        return None


@final
@dataclass
class Record:
    """All results of a processor.

    Attributes:
        processor: which.
        cores: how many the machine has.
        commands: what was measured with, by the date of the command: commit, versions, load.
        results: by the name of the data set.
    """

    processor: Processor
    cores: int | None
    commands: dict[str, dict[str, Any]] = field(default_factory=dict)
    results: dict[str, Results] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        return f"quality-{self.processor.slug}.json"

    def write(self, folder: Path) -> Path:
        """Writes the record in one step, and returns its path; forgets commands that no run is left of."""
        used = {run.command for each in self.results.values() for run in each.runs}
        self.commands = {date: told for date, told in self.commands.items() if date in used}
        content = {
            "processor": asdict(self.processor),
            "cores": self.cores,
            "commands": self.commands,
            "results": {name: _plain(found) for name, found in self.results.items()},
        }
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.file_name
        fresh = path.with_suffix(".new")
        fresh.write_text(as_json(content) + "\n", encoding="utf-8")
        fresh.replace(path)
        return path


def _plain(found: Results) -> dict[str, Any]:
    """Returns the runs on a data set without what they do not have."""
    runs = [{key: value for key, value in asdict(run).items() if value is not None} for run in found.runs]
    return {**asdict(found), "runs": runs}


def read(path: Path) -> Record:
    """Returns the record in a file."""
    content = json.loads(path.read_text("utf-8"))
    told = content["processor"]
    processor = Processor(**{**told, "flags": tuple(told["flags"])})
    results = {
        name: Results(each["title"], each["notes"], each["targets"], [Run(**run) for run in each["runs"]])
        for name, each in content["results"].items()
    }
    return Record(processor, content["cores"], content["commands"], results)


def kept(folder: Path, fresh: Record) -> Record:
    """Returns the processor's record as it stands in a folder, or the fresh one where there is none.

    Raises:
        ValueError: the file of that name is another processor's.
    """
    path = folder / fresh.file_name
    if not path.exists():
        return fresh
    before = read(path)
    if before.processor != fresh.processor:
        raise ValueError(
            f"results: expected {path.name} to be of {fresh.processor}, received {before.processor}; "
            "move that file away"
        )
    return before


def read_all(folder: Path = FOLDER) -> list[Record]:
    """Returns all records, in the order of their names."""
    return [read(path) for path in sorted(folder.glob("quality-*.json"))]
