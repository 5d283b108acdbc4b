"""Contestants that do equal work, timed in turns, and the table that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from time import perf_counter, process_time
from typing import Any, final

import torch

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


@final
@dataclass(frozen=True)
class Row:
    """What one contestant did.

    Attributes:
        contestant: its name.
        median_ms: milliseconds, median over rounds; None for what was not timed.
        quartiles_ms: the two quartiles.
        fastest_ms: the fastest round.
        rounds: how many.
        ratio: its time over that of the contestant it is held against, the median over rounds of the ratio
            in one round.
        figures: other numbers, by what they are.
    """

    contestant: str
    median_ms: float | None = None
    quartiles_ms: tuple[float, float] | None = None
    fastest_ms: float | None = None
    rounds: int = 0
    ratio: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


@final
@dataclass
class Table:
    """What one benchmark found.

    Attributes:
        name: of the benchmark, as ``--only`` takes it.
        title: what was measured, on what.
        ratio: what a row's ratio is.
        rows: one for every contestant.
        notes: lines below the table.
    """

    name: str
    title: str
    ratio: str = "÷ harmonium"
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def repeat(work: Callable[[], object], times: int) -> Contestant:
    """A contestant that does the same work several times."""

    def contestant() -> float:
        start = now()
        for _ in range(times):
            work()
        return (now() - start) / times

    return contestant


def on_one_thread(contestant: Contestant) -> Contestant:
    """The same where torch has one thread."""

    def alone() -> float:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return contestant()
        finally:
            torch.set_num_threads(threads)

    return alone


def share(work: Callable[[], object], parts: int) -> Contestant:
    """A contestant that does the work once, and returns the time of one of its equal parts."""
    whole = repeat(work, 1)
    return lambda: whole() / parts


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


def compare(
    table: Table,
    contestants: Mapping[str, Contestant],
    rounds: int,
    *,
    group: str = "",
    figures: Callable[[float], Mapping[str, float]] | None = None,
) -> Table:
    """Adds the rows of a race to a table.

    Args:
        table: what to fill.
        contestants: the first is the one that the others are held against.
        rounds: at least 2.
        group: goes before the names, where a table has several races.
        figures: other numbers that follow from the median of the seconds.
    """
    seconds = race(contestants, rounds)
    own = next(iter(seconds.values()))
    for name, taken in seconds.items():
        lower, middle, upper = quantiles(taken, n=4, method="inclusive")
        table.rows.append(
            Row(
                f"{group}: {name}" if group else name,
                1e3 * middle,
                (1e3 * lower, 1e3 * upper),
                1e3 * min(taken),
                rounds,
                median(a / b for a, b in zip(taken, own, strict=True)),
                figures(middle) if figures else {},
            )
        )
    return table


def aligned(heading: list[str], rows: Iterable[list[str]]) -> str:
    """Text in columns, the first to the left and the others to the right."""
    cells = [heading, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heading))]

    def line(row: list[str]) -> str:
        padded = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        return "  ".join([row[0].ljust(widths[0]), *padded]).rstrip()

    return "\n".join([line(heading), "  ".join("-" * width for width in widths), *map(line, cells[1:])])


def markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of a page."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join("| " + " | ".join(cell or " " for cell in line) + " |\n" for line in lines)


def number(value: Any) -> str:
    """A measured number as it is printed: three digits, and whole from a hundred on."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"
