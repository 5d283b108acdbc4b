"""Matrix products: which library multiplies, sums that bits pick, and couplings that are mostly zero.

States of most units have two values. What multiplies them can be summed beforehand, for all that six units
can be (``bits``); a matrix that is mostly zero leaves out what is not there (``sparse``); everything else is
left to one of two libraries (``backend``).
"""

from harmonium.matmul.backend import VARIABLE, Backend, backend_name, get_backend, product, set_backend
from harmonium.matmul.dense import sum_of_lots
from harmonium.matmul.precision import PRECISIONS, current, precision
from harmonium.matmul.prepared import OuterProductSum, PreparedMatrix
from harmonium.matmul.processor import processor

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
