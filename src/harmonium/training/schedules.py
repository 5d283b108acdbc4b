"""Learning-rate schedules: the factor that multiplies every learning rate at each update."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int, int], float]


def constant(step: int, total: int) -> float:
    """Returns 1 at every update."""
    return 1.0


def cosine(step: int, total: int) -> float:
    """Returns half a cosine, from 1 at the first update to 0 at the end of the run."""
    return 0.5 * (1.0 + math.cos(math.pi * step / total))


def warmup_cosine(step: int, total: int) -> float:
    """Returns the cosine, risen to in a line over the first twentieth of the run."""
    return min(1.0, 20 * (step + 1) / total) * cosine(step, total)


def linear(step: int, total: int) -> float:
    """Returns a straight line, from 1 at the first update to 0 at the end of the run."""
    return 1.0 - step / total


def inverse_sqrt(step: int, total: int) -> float:
    """Returns ``1 / sqrt(1 + step / 1000)``: slow enough for stochastic approximation, whatever the total."""
    return 1.0 / math.sqrt(1.0 + step / 1000.0)


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "cosine": cosine,
    "warmup_cosine": warmup_cosine,
    "linear": linear,
    "inverse_sqrt": inverse_sqrt,
}


def as_schedule(schedule: str | Schedule) -> Schedule:
    """Returns the schedule of a setting, a name in ``SCHEDULES`` or a callable.

    A callable takes the number of updates already made (0 at the first) and that of the whole run, and
    returns a finite factor of at least 0; other factors are refused where they are met (ValueError).
    """
    if isinstance(schedule, str):
        return SCHEDULES[schedule]

    def checked(step: int, total: int) -> float:
        factor = float(schedule(step, total))
        if not 0 <= factor < math.inf:
            raise ValueError(
                f"schedule: expected a finite factor >= 0, received {factor} at step {step} of {total}"
            )
        return factor

    return checked
