"""An estimate of ln Z."""

from __future__ import annotations

from math import inf
from typing import NamedTuple


class LogPartition(NamedTuple):
    """ln Z with what is needed to judge it.

    Attributes:
        value: the estimate, the log of the mean importance weight.
        standard_error: of the value, by the delta method from the weights' spread.
        ess: effective sample size of the weights, (Σw)²/Σw², between 1 and the number of chains.
        lower: value minus three standard errors: the forward estimate is on average not above ln Z.
        upper: the reverse-annealing estimate plus three of its standard errors. It bounds ln Z from above
            on average, and only if its chains started in the machine's own law and the temperatures are many
            enough for the errors to be trusted; ``upper`` below ``lower`` says that they were not. Infinite
            where no reverse run was asked for.
    """

    value: float
    standard_error: float
    ess: float
    lower: float
    upper: float

    @classmethod
    def exact(cls, value: float) -> LogPartition:
        """A value without error."""
        return cls(value, standard_error=0.0, ess=inf, lower=value, upper=value)
