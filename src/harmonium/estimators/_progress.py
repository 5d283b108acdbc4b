"""Progress of training: what one call passes to the next, rates that fall where it diverges, and warnings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, final

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from harmonium import _checks
from harmonium.learning import Rule
from harmonium.machine import BoltzmannMachine
from harmonium.training import OPTIMIZERS, OptimizerFactory, TrainingDiverged, TrainingRun, Update

_SHARE = 0.1  # of all that was gained, by the second half of the updates: the machine is still learning
_SURE = 2.0  # standard errors over the rows
_SLOWER, _TIMES = 1 / 3, 4  # of the learning rate after a training that diverged, so many times at most

RowScore = Callable[[BoltzmannMachine, Tensor], Tensor]


class Progress(NamedTuple):
    """Chains and optimiser at the end of a run.

    Attributes:
        rule: the name of the rule, with its settings, that the chains belong to.
        chains: ``TrainingRun.rule_state``.
        optimizer: with what it remembers; None: plain gradient ascent, which remembers nothing.
    """

    rule: str
    chains: Any
    optimizer: torch.optim.Optimizer | None

    def chains_of(self, rule: Rule) -> Any:
        """Returns a copy of the chains for a rule to go on with, where they are its own; else None."""
        return deepcopy(self.chains) if rule.name == self.rule else None

    def remind(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives an optimiser of the same kind a copy of the memory of this one."""
        if self.optimizer is not None and isinstance(optimizer, type(self.optimizer)):
            memory = deepcopy(self.optimizer.state_dict()["state"])  # else the tensors would be shared
            optimizer.load_state_dict({**optimizer.state_dict(), "state": memory})


@final
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

    def warn(self, name: str, updates: int, held_out: Sequence[float]) -> None:
        """Warns where the second half of the updates gained more than a tenth of it all.

        Nothing is said where one of the scores of rows that were held out, in order, is above the last: more
        updates would do harm.
        """
        if len(self._seen) < 3 or (held_out and max(held_out) > held_out[-1]):
            return
        first, half, last = self._seen
        late, gain = last - half, float((last - torch.minimum(first.mean(), half.mean())).mean())
        error = float(late.std()) / len(late) ** 0.5 if len(late) > 1 else 0.0
        share = float(late.mean()) / gain if gain > 0 else 0.0
        if share > _SHARE and float(late.mean()) > _SURE * error:
            _checks.warn(
                f"{name}: what the machine knows of its training rows was still rising when training ended: "
                f"{share:.0%} of all that it gained came in the second half of {updates} updates; more "
                "epochs, a larger max_updates or a higher learning_rate take it further"
                + ("" if held_out else ", and early_stopping=True ends where other rows no longer gain"),
                ConvergenceWarning,
            )


def make_optimizer(
    named: str | OptimizerFactory,
    parameters: list[torch.nn.Parameter],
    rate: float,
    factor: float,
    earlier: Progress | None,
) -> torch.optim.Optimizer:
    """Returns an optimiser that goes on from that of the last call, with all its rates times a factor."""
    made: torch.optim.Optimizer = (
        OPTIMIZERS[named](parameters, lr=rate, fused=True) if isinstance(named, str) else named(parameters)
    )
    if earlier is not None:
        earlier.remind(made)
    if factor < 1:
        for group in made.param_groups:
            group["lr"] *= factor
    return made


def train_slower(attempt: Callable[[float], TrainingRun], machine: BoltzmannMachine) -> TrainingRun:
    """Trains, and where that diverges anew, from the same machine, at a third of the learning rate."""
    begun = {name: tensor.clone() for name, tensor in machine.state_dict().items()}
    for number in range(_TIMES):
        try:
            return attempt(_SLOWER**number)
        except TrainingDiverged as error:
            _checks.warn(
                f"training diverged after {error.step} updates at a learning rate of "
                f"{error.learning_rate:.4g} and begins anew at a third of it; a lower learning_rate needs no "
                'second attempt, and on_divergence="raise" makes none',
                RuntimeWarning,
            )
        machine.load_state_dict(begun)
    return attempt(_SLOWER**_TIMES)
