"""The length of a fit and its learning rate, where the parameters leave them open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from harmonium.learning import label_rate
from harmonium.machine import BoltzmannMachine

_BATCH = 100  # rows of an update from which on the highest rates serve
_FEWEST = 500  # updates: few rows are learnt at a low rate
_MOST = 5000  # updates of _BATCH rows or more; every row is read once all the same
_PASSES, _USUAL = 100, 2000  # passes, or else updates, that are enough for units other than 0 and 1
_STEADY, _ADAM = 0.1, 0.01  # rates of ``partial_fit``, and of "adam"


class Budget(NamedTuple):
    """The updates of a fit, at least 1, and the learning rate of a named optimiser at the first one."""

    updates: int
    rate: float


Budgets = Callable[[Any, BoltzmannMachine, int], Budget]
"""Returns a budget, given the parameters, the machine and the number of rows."""


class _Pace(NamedTuple):
    """Distance and pace at which a kind of machine learns.

    Attributes:
        reach: the learning rate times the updates, for every row.
        rate: the highest learning rate.
    """

    reach: float
    rate: float


_BINARY, _DISCRETE, _REAL = _Pace(3.0, 1.0), _Pace(0.75, 0.25), _Pace(0.5, 0.1)


def updates_of(passes: int, rows: int, batch: int) -> int:
    """Returns the updates that passes over the rows take."""
    return -(-passes * rows // min(batch, rows))


def at_least(passes: int, updates: int, rows: int, batch: int) -> int:
    """Returns the updates of so many passes, or of as many as make so many updates."""
    return updates_of(max(passes, -(-updates * min(batch, rows) // rows)), rows, batch)


def by_rows(options: Any, machine: BoltzmannMachine, rows: int) -> Budget:
    """Returns a length in proportion to the number of rows, up to a limit.

    The rate times the updates is how far couplings can go. It acts like the variance of a normal prior, whose
    weight beside the data falls as rows are added: so it grows with them
    (docs/decisions/0015-a-budget-by-rows.md).
    """
    layers, batch = machine.layers, options.batch_size
    binary = all(layer.two_values == (0.0, 1.0) for layer in layers)
    discrete = all(layer.two_values or layer.one_hot for layer in layers)
    pace = _BINARY if binary else _DISCRETE if discrete else _REAL
    share = min(1.0, batch / _BATCH)
    reach, rate, most = pace.reach * rows, pace.rate * share, round(_MOST / share)
    if not binary:
        most = min(most, at_least(_PASSES, round(_USUAL / share), rows, batch))
    most = max(most, updates_of(1, rows, batch))
    updates = min(max(_FEWEST, round(reach / rate)), most)
    rate = min(rate, reach / updates)
    return Budget(updates, min(rate, _ADAM) if options.optimizer == "adam" else rate)


def with_label(options: Any, machine: BoltzmannMachine, rows: int) -> Budget:
    """Returns 20 passes, or as many as make 1,000 updates, at the rate of the width without the label."""
    width = machine.visible_width - machine.layers[machine.visible[-1]].width
    return Budget(at_least(20, 1000, rows, options.batch_size), label_rate(width))


def steady_rate(options: Any) -> float:
    """Returns the constant learning rate of ``partial_fit``, which does not know how many rows will come."""
    return _ADAM if options.optimizer == "adam" else _STEADY
