"""What was measured on each processor: one JSON file for a processor and a number of threads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, final

from benchmarks import targets
from benchmarks.race import Row, Table
from benchmarks.system import Processor

FOLDER = Path(__file__).parent / "records"


@final
@dataclass
class Record:
    """The last results of a processor with a number of threads.

    Attributes:
        processor: which.
        cores: how many the machine has.
        threads: how many every library was given.
        runs: of the command, by their date: commit, versions, load and the like.
        tables: of the benchmarks, by their name.
        measured: the date of the run that each comes from.
    """

    processor: Processor
    cores: int | None
    threads: int
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    measured: dict[str, str] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        return f"{self.processor.slug}-{self.threads}-thread.json"

    def add(self, run: dict[str, Any], tables: Iterable[Table]) -> None:
        """Puts a run's results in the place of earlier ones; forgets runs of which nothing is left."""
        self.runs[run["date"]] = run
        for table in tables:
            self.tables[table.name] = table
            self.measured[table.name] = run["date"]
        self.runs = {date: self.runs[date] for date in sorted(self.runs) if date in self.measured.values()}

    def write(self, folder: Path) -> Path:
        """Writes the record to its file, and returns that."""
        content = {
            "processor": asdict(self.processor),
            "cores": self.cores,
            "threads": self.threads,
            "runs": [self.runs[date] for date in sorted(self.runs)],
            "benchmarks": {
                name: {
                    "title": table.title,
                    "run": self.measured[name],
                    "ratio": table.ratio,
                    "rows": [_row(table.name, row, self.processor.vendor) for row in table.rows],
                    "notes": table.notes,
                }
                for name, table in self.tables.items()
            },
        }
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.file_name
        path.write_text(as_json(content) + "\n", encoding="utf-8")
        return path


def read(path: Path) -> Record:
    """The record in a file."""
    content = json.loads(path.read_text("utf-8"))
    told = content["processor"]
    record = Record(
        Processor(**{**told, "flags": tuple(told["flags"])}),
        content["cores"],
        content["threads"],
        {run["date"]: run for run in content["runs"]},
    )
    known = {each.name for each in fields(Row)}
    for name, found in content["benchmarks"].items():
        rows = [Row(**{key: value for key, value in row.items() if key in known}) for row in found["rows"]]
        record.tables[name] = Table(name, found["title"], found["ratio"], rows, found["notes"])
        record.measured[name] = found["run"]
    return record


def read_all(folder: Path = FOLDER) -> list[Record]:
    """All records, those of one vendor together, in a fixed order."""
    found = [read(path) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda record: (record.processor.vendor, record.processor.slug, record.threads))


def kept(folder: Path, fresh: Record) -> Record | None:
    """The record that a new one of the same processor and threads is going to change, if there is one.

    Raises:
        ValueError: the file of that name is another processor's.
    """
    path = folder / fresh.file_name
    if not path.exists():
        return None
    before = read(path)
    if (before.processor, before.threads) != (fresh.processor, fresh.threads):
        raise ValueError(
            f"records: expected {path.name} to be of {fresh.processor} with {fresh.threads} threads, "
            f"received {before.processor} with {before.threads}; move that file away"
        )
    return before


def _row(benchmark: str, row: Row, vendor: str) -> dict[str, Any]:
    """A row with the targets that it was held against."""
    verdicts = [
        target.verdict(row, vendor)
        for target in targets.of(benchmark, vendor)
        if target.contestant == row.contestant
    ]
    content = {key: _rounded(value) for key, value in asdict(row).items() if value not in (None, {})}
    if verdicts:
        content["targets"] = [{"target": each.wanted, "met": each.met} for each in verdicts]
    return content


def as_json(value: Any, depth: int = 0) -> str:
    """JSON with a line for each row of a table."""
    whole = json.dumps(value, ensure_ascii=False)
    if depth == 4 or len(whole) <= 100 or not isinstance(value, dict | list):
        return whole
    space = "\n" + "  " * (depth + 1)
    if isinstance(value, list):
        return "[" + space + f",{space}".join(as_json(each, depth + 1) for each in value) + f"{space[:-2]}]"
    lines = (f"{json.dumps(key)}: {as_json(each, depth + 1)}" for key, each in value.items())
    return "{" + space + f",{space}".join(lines) + f"{space[:-2]}}}"


def _rounded(value: Any) -> Any:
    """Numbers with five digits: what says more is noise, and a diff of records should be short."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
