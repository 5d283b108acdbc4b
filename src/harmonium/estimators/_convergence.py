"""A warning if a machine was still learning when its training ended."""

from __future__ import annotations

from collections.abc import Callable

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from harmonium import _checks
from harmonium.machine import BoltzmannMachine
from harmonium.training import Update

RowScore = Callable[[BoltzmannMachine, Tensor], Tensor]

_SHARE = 0.1  # of all that was gained, by the second half of the updates
_SURE = 2.0  # standard errors over the rows


class Rise:
    """A callback that follows the score of some training rows: before, halfway and at the end.

    Args:
        score: of every row, higher is better.
        rows: states, (rows, width).
        machine: as it is before the first update.
    """

    def __init__(self, score: RowScore, rows: Tensor, machine: BoltzmannMachine) -> None:
        self._score, self._rows = score, rows
        self._seen = [score(machine, rows).cpu()]

    def wants(self, step: int, total: int) -> bool:
        """Returns whether the score is read after so many updates."""
        return step in (total // 2, total)

    def __call__(self, update: Update) -> None:
        if self.wants(update.step, update.total):
            self._seen.append(self._score(update.machine, self._rows).cpu())

    def warn(self, name: str, updates: int) -> None:
        """Says so where the second half of the updates gained more than a tenth of it all."""
        if len(self._seen) < 3:
            return
        first, half, last = self._seen
        late, gain = last - half, float((last - torch.minimum(first.mean(), half.mean())).mean())
        error = float(late.std()) / len(late) ** 0.5 if len(late) > 1 else 0.0
        share = float(late.mean()) / gain if gain > 0 else 0.0
        if share > _SHARE and float(late.mean()) > _SURE * error:
            _checks.warn(
                f"{name}: what the machine knows of its training rows was still rising when training ended: "
                f"{share:.0%} of all that it gained came in the second half of {updates} updates; more "
                "epochs, a larger max_updates or a higher learning_rate take it further",
                ConvergenceWarning,
            )
