"""A progress bar on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_REFRESH_SECONDS = 0.2


class ProgressDisplay:
    """The bar of one run.

    Args:
        total: updates of the run.
        step: updates already made.
        show: True shows the bar, False hides it, None shows it where stderr is a terminal.
    """

    def __init__(self, total: int, step: int, show: bool | None) -> None:
        self._bar: Progress | None = None
        self._last = 0.0
        if sys.stderr.isatty() if show is None else show:
            self._bar = Progress(
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[numbers]}"),
                console=Console(stderr=True, force_terminal=show),
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
            text = "  ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in numbers.items())
            self._bar.update(self._task, completed=step, numbers=text)
            self._bar.refresh()
