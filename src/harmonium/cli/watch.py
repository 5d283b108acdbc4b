"""``harmonium train --watch``: a run as it goes, in a terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import final

import torch
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from harmonium.cli.curve import Curve
from harmonium.cli.fantasies import Fantasies
from harmonium.cli.half_blocks import half_blocks
from harmonium.machine import BoltzmannMachine
from harmonium.training import Update

_SECONDS = 0.5  # between two drawings
_SHARE = 20  # the time between two requests for samples, in times of what the last one took
_CURVE = 34  # columns of a curve
_FRAME = 7  # rows that are not curves or samples: the border, the line above and blank ones
_CURVE_ROWS = 3


@final
class Watch:
    """A callback that draws curves, rates and samples on stderr while a machine trains.

    Args:
        title: of the panel.
        fantasies: makes samples of the machine; None: they are no images.
        console: where to draw; None: stderr.
    """

    def __init__(self, title: str, fantasies: Fantasies | None, console: Console | None = None) -> None:
        self._title = title
        self._fantasies = fantasies
        self._console = console or Console(stderr=True)
        self._live: Live | None = None
        self._curves: dict[str, Curve] = {}
        self._first_names: dict[str, None] = {}
        self._samples = Text()
        self._begun = self._drawn = self._imagined = time.monotonic()
        self._first = self._took = 0.0

    def __call__(self, update: Update) -> None:
        """Note the numbers of an update; draw a few times a second."""
        now = time.monotonic()
        if self._live is None:
            self._begun, self._first = now, update.step - 1
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
            self._imagine(update)
        for name, value in _numbers(update).items():
            self._curves.setdefault(name, Curve()).add(value)
        self._first_names |= dict.fromkeys(update.metrics)
        if now - self._drawn >= _SECONDS or update.step == update.total:
            if now - self._imagined >= max(_SECONDS, _SHARE * self._took) or update.step == update.total:
                self._imagine(update)
            self._curves.setdefault("weight_norm", Curve()).add(_weight_norm(update.machine))
            self._live.update(self._panel(update, now - self._begun), refresh=True)
            self._drawn = time.monotonic()

    def close(self) -> None:
        """Leave the last drawing where it is."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _imagine(self, update: Update) -> None:
        if self._fantasies is None:
            return
        columns, rows = self._console.width - _CURVE - 8, self._console.height - _FRAME - 1
        begun = time.monotonic()
        self._samples = half_blocks(self._fantasies.images(update.machine), columns, rows)
        self._imagined = time.monotonic()
        self._took = self._imagined - begun

    def _panel(self, update: Update, seconds: float) -> Panel:
        speed = (update.step - self._first) / seconds if seconds > 0 else 0.0
        left = "-" if speed <= 0 else str(timedelta(seconds=round((update.total - update.step) / speed)))
        head = Text(
            f"update {update.step} of {update.total}   epoch {update.epoch}   {speed:.3g} updates/s   "
            f"{left} left   rate {update.learning_rate:.3g}",
            no_wrap=True,
            overflow="ellipsis",
        )
        body = Table.grid(padding=(0, 3))
        body.add_row(self._drawn_curves(), self._beside())
        outer = Table.grid(padding=(0, 0))
        for row in (head, Text(), body):
            outer.add_row(row)
        return Panel(outer, title=Text(self._title, no_wrap=True, overflow="ellipsis"), expand=False)

    def _drawn_curves(self) -> Text:
        room = max(1, (self._console.height - _FRAME) // (_CURVE_ROWS + 1))
        parts = []
        names = [*self._first_names, *(name for name in self._curves if name not in self._first_names)]
        for name in names[:room]:
            curve = self._curves[name]
            if math.isfinite(curve.last):
                head = f"{name.replace('_', ' ')} {curve.last:.4g}"
                parts.append(f"{head[:_CURVE]:{_CURVE}}\n" + "\n".join(curve.lines(_CURVE, _CURVE_ROWS)))
        return Text("\n".join(parts), no_wrap=True)

    def _beside(self) -> Text:
        if not self._samples.plain:
            return Text("")
        return Text.assemble("samples, means of the pixels\n", self._samples, no_wrap=True)


def _numbers(update: Update) -> Mapping[str, float]:
    return {**update.metrics, "gradient_norm": update.gradient_norm, **update.diagnostics}


@torch.no_grad()
def _weight_norm(machine: BoltzmannMachine) -> float:
    """Of all couplings together, as in the history."""
    return math.hypot(*(float(coupling.weight.norm()) for coupling in machine.couplings))


def can_watch() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr.isatty()
