"""Mean field: deterministic approximations of a machine's moments and free energy."""

from harmonium.meanfield.naive import naive, solve
from harmonium.meanfield.solution import Solution

__all__ = ["Solution", "naive", "solve"]
