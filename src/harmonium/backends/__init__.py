"""Backends: products, draws and many updates, by compiled code or by torch; ``choice`` decides.

States of most units have two values. What multiplies them can be summed beforehand, for all that six units
can be (``bits``); a matrix that is mostly zero leaves out what is not there; everything else is left to one
of two libraries. Loops that eager tensor code would spend on starting operations are compiled where numba is
installed: half-steps (``per_row``), units drawn in turn (``potts``), whole updates (``updates``).
"""

from harmonium.backends.choice import (
    VARIABLE,
    Backend,
    backend_name,
    get_backend,
    processor,
    set_backend,
)
from harmonium.backends.products import OuterProductSum, PreparedMatrix, product, sum_of_lots
from harmonium.backends.rounding import PRECISIONS, current, precision

__all__ = [
    "PRECISIONS",
    "VARIABLE",
    "Backend",
    "OuterProductSum",
    "PreparedMatrix",
    "backend_name",
    "current",
    "get_backend",
    "precision",
    "processor",
    "product",
    "set_backend",
    "sum_of_lots",
]
