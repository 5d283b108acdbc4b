"""What every plan of an exact sum answers, and the one limit on the work of a sum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf

from torch import Tensor

from harmonium.machine import Statistics

LIMIT = 2.0**35
"""Unit updates (joint states times columns of the machine) of a sum that is asked for by name, at most.

One core makes about 2^26.5 of them in a second: minutes, for 784 beside 25 Bernoulli units, say.
"""
LIMIT_TEXT = "at most 2^35 unit updates (states to list times columns)"
UNASKED = 2.0**28
"""Unit updates up to which "auto" sums rather than draws: a few seconds."""
TABLE_STATES = 4096
"""Joint states, 12 units of two values, of what is held in memory beside every row (``HiddenStates``).

Up to here too what one row lacks is summed rather than drawn by chains, which take hundreds of steps.
"""
FEW_STATES = 256
"""Joint states up to which a sampled rule sums what a row lacks: no dearer than its own Gibbs steps."""


class Plan(ABC):
    """The way in which a machine is summed over all that rows do not show.

    Attributes:
        rows: that are summed; one that shows nothing for ln Z.
        columns: of the machine.
        log2_states: log2 of the states that are listed beside every row; infinite where real units would be.
        listed: layers whose joint states are listed, or points of a grid over them.
        summed: layers that are summed out by ψ beside every listed state, unit by unit.
        integrated: Gaussian layers that edges join, integrated together beside every listed state.
    """

    rows: int
    columns: int
    log2_states: float
    listed: tuple[int, ...]
    summed: tuple[int, ...]
    integrated: tuple[int, ...] = ()

    @property
    def work(self) -> float:
        """Unit updates of the sum over all rows; see ``LIMIT``."""
        return self.rows * self.columns * (inf if self.log2_states > 1000 else 2.0**self.log2_states)

    @abstractmethod
    def log_weights(self) -> Tensor:
        """Returns ln Σ exp(-E) over all that each row does not show, (rows,) float64."""

    @abstractmethod
    def expect(self, into: Statistics, weight: float | Tensor) -> Tensor:
        """Adds the sum over rows of weight · E[S | what the row shows].

        Args:
            into: where to add.
            weight: of every row, a number or (rows,).

        Returns:
            The sum over rows of weight · ln Σ exp(-E), whose derivative is what was added, () float64.
        """

    def log_partition(self) -> float:
        """Returns ln Z; of a plan for one row that shows nothing."""
        return float(self.log_weights())
