"""Contestants that do equal work, timed in turns, and the table that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, process_time
from typing import Any

Contestant = Callable[[], float]
"""Does a piece of work and returns its seconds for one unit of it, such as an update."""

CLOCKS = {"wall": perf_counter, "cpu": process_time}

WARM_UPS = 2

_clock = perf_counter


def set_clock(name: str) -> None:
    """Chooses what every contestant is timed with, one of ``CLOCKS``."""
    global _clock
    _clock = CLOCKS[name]


def now() -> float:
    """Seconds on that clock."""
    return _clock()


@dataclass
class Table:
    """What one benchmark found.

    Attributes:
        name: of the benchmark, as ``--only`` takes it.
        title: what was measured, on what.
        columns: headings.
        rows: cells in the order of the columns, as they are printed.
        notes: lines below the table.
        data: the numbers behind the cells, for ``--json``.
    """

    name: str
    title: str
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        cells = [self.columns, *self.rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]

        def line(row: list[str]) -> str:
            padded = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            return "  ".join([row[0].ljust(widths[0]), *padded]).rstrip()

        rule = "  ".join("-" * width for width in widths)
        return "\n".join([self.title, "", line(self.columns), rule, *map(line, self.rows), *self.notes])


def repeat(work: Callable[[], object], times: int) -> Contestant:
    """A contestant that does the same work several times."""

    def contestant() -> float:
        start = now()
        for _ in range(times):
            work()
        return (now() - start) / times

    return contestant


def race(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """Seconds of every contestant in every round.

    Each round runs all of them one after the other, so that a busy neighbour or a clock that slows down hits
    all alike, and each round starts with another one.
    """
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-WARM_UPS, rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            taken = contestants[name]()
            if number >= 0:
                seconds[name].append(taken)
    return seconds


def ratio(seconds: Mapping[str, list[float]], name: str, to: str) -> float:
    """The median over rounds of one contestant's time over another's in the same round."""
    return median(a / b for a, b in zip(seconds[name], seconds[to], strict=True))


def compare(
    table: Table,
    contestants: Mapping[str, Contestant],
    rounds: int,
    targets: Mapping[str, float] | None = None,
    missing: Mapping[str, str] | None = None,
) -> Table:
    """Fills a table with a race against the first contestant.

    Args:
        table: what to fill; its columns are set here.
        contestants: the first is the one that the others are held against.
        rounds: at least 1.
        targets: the least ratio, to the first, that a contestant's time should have.
        missing: contestants that could not start, and why.
    """
    targets = targets or {}
    seconds = race(contestants, rounds)
    own = next(iter(contestants))
    table.columns = ["", "median ms", "fastest", f"÷ {own}", "target", ""]
    for name, taken in seconds.items():
        times = ratio(seconds, name, own)
        target = targets.get(name)
        met = "" if target is None else "met" if times >= target else "missed"
        wanted = "" if target is None else f"≥ {target:.2f}"
        cells = [f"{1e3 * median(taken):.3f}", f"{1e3 * min(taken):.3f}", f"{times:.2f}", wanted, met]
        table.rows.append([name, *cells])
        table.data[name] = {
            "median_seconds": median(taken),
            "fastest_seconds": min(taken),
            "ratio": times,
            "target_ratio": target,
        }
    for name, reason in (missing or {}).items():
        table.rows.append([name, *[""] * 5])
        table.notes.append(f"{name}: {reason}")
    return table
