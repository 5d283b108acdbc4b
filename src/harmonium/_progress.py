"""A progress line on stderr or in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from io import StringIO
from typing import final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

_REFRESH_SECONDS = 0.2  # five times a second: numbers that change faster cannot be read
_LOG_SECONDS = 30.0  # between lines off a terminal: a log of a day has 3,000
_BARS = (10, 40)  # columns of the bar, at least and at most
_COMFORT = 70  # columns for the rest, before the bar grows
_REMAINING = 8  # columns of the time that is left
_NOTEBOOK = 100  # columns of a notebook's output


Readings = Callable[[], Mapping[str, float]]
"""Returns the numbers of a progress line by name; reading them may stall a GPU."""


@final
class ProgressLine:
    """Brings a line to a step and some numbers, which are asked for only where it is due.

    Args:
        total: steps of the run, at the last of which a line that stays is due at any time.
        every: seconds between two showings.
        show: shows a step and numbers.
        log: whether lines follow one another, the first after so many seconds, and the end shows none.

    Attributes:
        due: time of the next showing, by ``time.monotonic``.
    """

    def __init__(self, total: int, every: float, show: Callable[[int, Readings], None], log: bool) -> None:
        self.due = time.monotonic() + (every if log else 0.0)
        self._last, self._every, self._show = -1 if log else total, every, show

    def __call__(self, step: int, numbers: Readings) -> None:
        """Shows a step, where it is due."""
        now = time.monotonic()
        if now >= self.due or step == self._last:
            self.due = now + self._every
            self._show(step, numbers)


@contextmanager
def show_progress(
    total: int, step: int, show: bool | None, name: str = "training", *, whole: bool = True
) -> Iterator[ProgressLine | None]:
    """Shows a bar, steps, the time that is left, and as many numbers as the terminal holds.

    Args:
        total: steps of the run, such as updates.
        step: those already made.
        show: True shows the line, False hides it, None shows it in a terminal (stderr) and in a notebook, and
            elsewhere writes a plain line to stderr every half a minute.
        name: Name of the run.
        whole: whether all steps will be made; else the time that is left is unknown, and not shown.

    Yields:
        A function of a step and of numbers, which shows them a few times a second at most; None where the
        line is hidden.
    """
    if show is False:
        yield None
        return
    cell = in_notebook()
    if not (show or cell or sys.stderr.isatty()):
        yield ProgressLine(total, _LOG_SECONDS, _write_lines(total, step, whole), True)
        return
    if cell:  # rich's own way wants widgets, which few have
        console = Console(file=StringIO(), width=_NOTEBOOK, force_jupyter=False)
    else:
        console = Console(stderr=True, force_terminal=show)
    least, most = _BARS
    bar = min(max(console.width - _COMFORT, least), most)
    room = console.width - bar - len(f" {total}/{total} ") - _REMAINING - 1
    line = Progress(
        BarColumn(bar),
        MofNCompleteColumn(),
        *([TimeRemainingColumn()] if whole else []),
        TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
        console=console,
        # Drawn from the training loop: a thread of its own would compete with one-thread products.
        auto_refresh=False,
    )
    task = line.add_task(name, total=total, completed=step, numbers="")
    refresh = _open_cell(line) if cell else line.refresh

    def update(step: int, numbers: Readings) -> None:
        line.update(task, completed=step, numbers=fit_numbers(numbers(), room))
        refresh()

    with nullcontext() if cell else line:
        try:
            yield ProgressLine(total, _REFRESH_SECONDS, update, False)
        finally:
            refresh()


def _write_lines(total: int, first: int, whole: bool) -> Callable[[int, Readings], None]:
    """Returns a function that writes a line to stderr, for a log."""
    seen, began = first, time.monotonic()

    def update(step: int, numbers: Readings) -> None:
        nonlocal seen, began
        # Since the last line, as earlier updates may hold compilation; a first update alone gives no pace.
        pace, compiling = (time.monotonic() - began) / max(1, step - seen), step == first + 1
        left = "" if compiling or not whole else f", {timedelta(seconds=round(pace * (total - step)))} left"
        seen, began = step, time.monotonic()
        text = fit_numbers(numbers(), _NOTEBOOK)
        print(f"{step}/{total}{left}  {text}".rstrip(), file=sys.stderr, flush=True)

    return update


def in_notebook() -> bool:
    """Returns whether a kernel of Jupyter runs this."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


def _open_cell(line: Progress) -> Callable[[], None]:
    """Opens an output of the cell that runs; returns what brings it up to date."""
    from IPython.display import display

    def drawn() -> dict[str, str]:
        with line.console.capture() as taken:
            line.console.print(line.get_renderable())
        return {"text/plain": taken.get().rstrip()}

    output = display(drawn(), raw=True, display_id=True)
    return lambda: output.update(drawn(), raw=True)


def fit_numbers(numbers: Mapping[str, float], room: int) -> str:
    """Returns the first numbers with their names, as many as fit into so many columns."""
    text = ""
    for name, value in numbers.items():
        longer = f"{text}  {name.replace('_', ' ')} {value:.4g}".lstrip()
        if len(longer) > room:
            break
        text = longer
    return text
