"""A progress line on stderr: a bar in a terminal or a notebook, plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import final

_REFRESH_SECONDS = 0.2  # five times a second: numbers that change faster cannot be read
_LOG_SECONDS = 30.0  # between lines off a terminal: a log of a day has 3,000
_BAR = 20  # columns
_WIDTH = 100  # columns where there is no terminal


@final
class ProgressLine:
    """Shows a step, the time that is left and numbers by name, which may stall a GPU, only where it is due.

    Args:
        total: steps of the run, at the last of which a bar is due at any time.
        made: those already made.
        whole: whether all steps will be made; else the time that is left is unknown, and not shown.
        bar: whether one line is drawn over itself; else lines follow one another.
    """

    def __init__(self, total: int, earlier: int, whole: bool, bar: bool) -> None:
        self._total, self._earlier, self._whole, self._bar = total, earlier, whole, bar
        self._due = time.monotonic() + (0.0 if bar else _LOG_SECONDS)
        self._began: tuple[int, float] | None = None

    def __call__(self, step: int, numbers: Callable[[], Mapping[str, float]]) -> None:
        """Shows a step, where it is due."""
        now, left = time.monotonic(), ""
        if self._began is None and step > self._earlier:  # the first step may hold compilation
            self._began = step, now
        if now < self._due and not (self._bar and step == self._total):
            return
        self._due = now + (_REFRESH_SECONDS if self._bar else _LOG_SECONDS)
        if self._whole and self._began and step > self._began[0]:
            first, began = self._began
            seconds = (now - began) / (step - first) * (self._total - step)
            left = f", {timedelta(seconds=round(seconds))} left"
        text, width = f"{step}/{self._total}{left}  ", _WIDTH
        if self._bar:
            from rich.console import Console  # takes part of a second to import

            done = _BAR * step // max(1, self._total)
            text, width = f"{'━' * done}{'─' * (_BAR - done)} {text}", Console(stderr=True).width
        text = (text + fit_numbers(numbers(), width - len(text) - 1)).rstrip()
        line = f"\r{text:<{width - 1}}" if self._bar else f"{text}\n"
        print(line, end="", file=sys.stderr, flush=True)


@contextmanager
def show_progress(
    total: int, step: int, show: bool | None, *, whole: bool = True
) -> Iterator[ProgressLine | None]:
    """Shows a bar, steps, the time that is left, and as many numbers as the terminal holds.

    Args:
        total: steps of the run, such as updates.
        step: those already made.
        show: True shows the line, False hides it, None shows it in a terminal (stderr) and in a notebook, and
            elsewhere writes a plain line to stderr every half a minute.
        whole: whether all steps will be made; else the time that is left is unknown, and not shown.

    Yields:
        A function of a step and of numbers, which shows them a few times a second at most; None where the
        line is hidden.
    """
    if show is False:
        yield None
        return
    ipython = sys.modules.get("IPython")
    notebook = ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None
    bar = bool(show) or notebook or sys.stderr.isatty()
    line = ProgressLine(total, step, whole, bar)
    if bar:
        line(step, dict)
    try:
        yield line
    finally:
        if bar:
            print(file=sys.stderr)


def fit_numbers(numbers: Mapping[str, float], room: int) -> str:
    """Returns the first numbers with their names, as many as fit into so many columns."""
    text = ""
    for name, value in numbers.items():
        longer = f"{text}  {name.replace('_', ' ')} {value:.4g}".lstrip()
        if len(longer) > room:
            break
        text = longer
    return text
