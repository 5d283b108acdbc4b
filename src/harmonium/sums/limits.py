"""The limits on the work of exact sums, and the seconds that they take on one core."""

from torch import Tensor

EXPLICIT_LIMIT = 2.0**35
"""Unit updates (joint states times columns of the machine) of a sum that is asked for by name, at most.

Minutes, for 784 beside 25 Bernoulli units, say.
"""
PRODUCTS_PER_SECOND = 2.0**31
"""Products of matrices of a core in a second: 150 sums of 600 rows of 1,000 columns beside 8 hidden units,
and as many looks at rows, took 20 s."""
LIMIT_TEXT = "at most 2^35 unit updates (states to list times columns)"
AUTO_LIMIT = 2.0**28
"""The largest sum that "auto" computes exactly, in unit updates: three seconds. Above it, "auto" samples."""
WHOLE_LIMIT = 2.0**30
"""The largest ln Z, in unit updates, beside which "auto" draws whole states exactly: 16 seconds for ln Z, and
two to three times as many for any number of draws, such as of a periodic lattice of 12×12 spins.

Chains from noise may never cross between phases, without a sign of it. What rows lack is another matter
(``AUTO_LIMIT``): what they show holds chains in place.
"""
MAX_HIDDEN_STATES = 4096
"""Joint states, 12 units of two values, of what is held in memory beside every row (``HiddenStates``).

Up to here too what one row lacks is summed rather than drawn by chains, which take hundreds of steps.
"""
MAX_TABLE_ENTRIES = 2.0**26
"""Entries of the largest table over units that are summed out one by one: 512 MB of float64. Of the messages
that wait at one time there may be twice as many."""
STEP_UPDATES = 2.0**13
"""Unit updates that summing out one unit costs beside its table: 0.1 ms of Python, of which half is measured
where tables are small."""
MAX_MISSING_STATES = 256
"""Joint states up to which a sampled rule sums what a row lacks: no dearer than its own Gibbs steps."""


LONG = 20.0
"""Seconds of a computation from which on a warning tells its cost before it begins."""


def seconds_of_table(rows: int, columns: int, log2_states: float) -> float:
    """Returns about how long a sum over rows beside all hidden states takes (``HiddenStates``)."""
    states: float = 2.0 ** min(log2_states, 99.0)
    return rows * columns * states / PRODUCTS_PER_SECOND


def seconds_of_joined(lacking: Tensor) -> float:
    """Returns about how long a sum over rows of joined columns takes beside one hidden state.

    Args:
        lacking: Marks the cells that rows lack, (rows, columns).
    """
    # Measured for 100 to 1,000 columns of 600 and 2,000 rows that lacked none, a tenth or a third.
    rows, columns = lacking.shape
    cells = lacking.sum(1).double()
    products = 0.3e-9 * rows * columns**2 + 0.5e-9 * columns**3
    return float(products + 1e-7 * cells.square().sum() + 0.5e-9 * cells.pow(3).sum())


def in_words(seconds: float) -> str:
    """Returns a time of one core for a warning, to two digits."""
    unit, name = (60, "minutes") if seconds < 6000 else (3600, "hours")
    return f"{seconds:.2g} seconds" if seconds < 100 else f"{seconds / unit:.2g} {name}"


def affordable(unit_updates: float, fraction: float = 1.0) -> bool:
    """Returns whether "auto" computes an exact sum, rather than to draw samples or to approximate.

    Args:
        unit_updates: Work of the sum, as ``sums.unit_updates`` measures it.
        fraction: share of ``AUTO_LIMIT`` that may be spent, in (0, 1]; less than 1 where a sum is made often.
    """
    return unit_updates <= fraction * AUTO_LIMIT
