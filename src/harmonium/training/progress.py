"""A progress line on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

_REFRESH_SECONDS = 0.2
_BARS = (10, 40)  # columns of the bar, at least and at most
_COMFORT = 70  # columns for the rest, before the bar grows
_REMAINING = 8  # columns of the time that is left


class ProgressDisplay:
    """The line of one run: a bar, updates, the time that is left, and as many numbers as the terminal holds.

    Args:
        total: updates of the run.
        step: updates already made.
        show: True shows the bar, False hides it, None shows it where stderr is a terminal.

    Attributes:
        shown: whether there is a line.
    """

    def __init__(self, total: int, step: int, show: bool | None) -> None:
        self._bar: Progress | None = None
        self._last = 0.0
        self.shown = sys.stderr.isatty() if show is None else show
        if self.shown:
            console = Console(stderr=True, force_terminal=show)
            least, most = _BARS
            bar = min(max(console.width - _COMFORT, least), most)
            self._room = console.width - bar - len(f" {total}/{total} ") - _REMAINING - 1
            self._bar = Progress(
                BarColumn(bar),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
                console=console,
                # Drawn from the training loop: a thread of its own would compete with one-thread products.
                auto_refresh=False,
            )
            self._task = self._bar.add_task("training", total=total, completed=step, numbers="")

    def __enter__(self) -> ProgressDisplay:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.refresh()
            self._bar.stop()

    def update(self, step: int, numbers: Mapping[str, float]) -> None:
        """Show the step and some numbers, a few times a second at most."""
        if self._bar is None:
            return
        now = time.monotonic()
        if now - self._last >= _REFRESH_SECONDS or step == self._bar.tasks[0].total:
            self._last = now
            self._bar.update(self._task, completed=step, numbers=fitting(numbers, self._room))
            self._bar.refresh()


def fitting(numbers: Mapping[str, float], room: int) -> str:
    """The first numbers with their names, as many as fit into so many columns."""
    text = ""
    for name, value in numbers.items():
        longer = f"{text}  {name.replace('_', ' ')} {value:.4g}".lstrip()
        if len(longer) > room:
            break
        text = longer
    return text
