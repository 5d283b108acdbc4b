"""The time that the parts of a command take: measured before they run, and kept within a limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import final

from harmonium._progress import show_progress
from harmonium.cli.output import note, occupied

_WORTH_SAYING = 10.0  # seconds from which on the cost is announced: shorter waits need no warning
_LONG = 0.5  # seconds of a probe beside which what a start costs is little
_PROBES = 2, 6  # lengths whose difference in time is that of four steps, without what a start costs


@final
@dataclass(frozen=True)
class Part:
    """A part of a command that is made of steps, such as sweeps.

    Attributes:
        steps: Number of steps that are asked for.
        least: The fewest that are of use.
        seconds: Seconds of a step.
        unit: what a step is, in the plural.
    """

    steps: int
    least: int
    seconds: float
    unit: str = "sweeps"

    @property
    def cost(self) -> float:
        """Seconds of all steps."""
        return self.steps * self.seconds

    @property
    def least_cost(self) -> float:
        """Seconds of the fewest steps that are of use."""
        return min(self.steps, self.least) * self.seconds


def time_of_step(run: Callable[[int], object]) -> float:
    """Measures the seconds of a step of ``run(steps)``, once its first call has compiled what it needs.

    Where a few steps take long they are not repeated: what a start costs is then little beside them.
    """
    first, second = _PROBES
    run(first)
    times = []
    for steps in _PROBES:
        began = time.perf_counter()
        run(steps)
        times.append(time.perf_counter() - began)
        if times[-1] > _LONG:
            return times[-1] / steps
    return max(0.0, times[1] - times[0]) / (second - first)


def deal(seconds: float, parts: Mapping[str, Part]) -> dict[str, float]:
    """Deals out seconds: a part gets what it costs, or an equal share of what the cheaper ones leave.

    Parts for which that is too little to be of use are left out, the dearest first.
    """
    dealt, left = dict[str, float](), seconds
    by_cost = sorted(parts.items(), key=lambda item: item[1].cost)
    for number, (title, part) in enumerate(by_cost):
        dealt[title] = min(part.cost, left / (len(parts) - number))
        left -= dealt[title]
    useless = [title for title, part in by_cost if dealt[title] < part.least_cost]
    if not useless:
        return dealt
    return deal(seconds, {title: part for title, part in parts.items() if title != useless[-1]})


@final
@dataclass
class Budget:
    """The lengths of parts within a limit of seconds, and a line on stderr of how far they are.

    Attributes:
        seconds: The limit.
        parts: Parts by their titles.
        remarks: What was shortened or is left out, by title.
    """

    seconds: float
    parts: Mapping[str, Part]
    remarks: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._dealt = deal(self.seconds, self.parts)
        limit = f"{self.seconds:.3g} s for all such parts; --seconds gives more"
        for title, part in self.parts.items():
            if title not in self._dealt:
                fewest = min(part.steps, part.least)
                self.remarks[title] = (
                    f"left out, as {fewest} {part.unit} take {part.least_cost:.3g} of {limit}"
                )
            elif (steps := self.steps(title)) < part.steps:
                self.remarks[title] = f"{steps} of {part.steps} {part.unit}, to keep within {limit}"

    def steps(self, title: str, otherwise: int = 0) -> int:
        """Returns the steps that a part may make, 0 if it is left out; ``otherwise`` if there is none."""
        if title not in self.parts:
            return otherwise
        part = self.parts[title]
        if title not in self._dealt:
            return 0
        dealt = self._dealt[title]
        return part.steps if dealt >= part.cost else max(1, int(dealt / part.seconds))

    @contextmanager
    def working(self, command: str) -> Iterator[Callable[[str], None]]:
        """Announces the cost and shows a line; yields what is called as a part begins."""
        times = {title: self.steps(title) * part.seconds for title, part in self.parts.items()}
        total = sum(times.values())
        if total >= _WORTH_SAYING:
            listed = ", ".join(f"{title} {seconds:.0f}" for title, seconds in times.items() if seconds >= 1)
            note(f"{command}: up to {total:.0f} s ({listed}); --seconds sets the limit")
        done, begun = 0.0, ""
        with show_progress(max(1, ceil(total)), 0, None) as show, occupied(show is not None):

            def begin(title: str) -> None:
                nonlocal done, begun
                done, begun = done + times.pop(begun, 0.0), title
                if show is not None:
                    show(int(done), lambda: {f"{title}, seconds": times.get(title, 0.0)}, at_once=True)

            yield begin
            if show is not None:
                show(max(1, ceil(total)), dict)
