"""Matrix products: which library multiplies, sums that bits pick, and couplings that are mostly zero.

States of most units have two values. What multiplies them can be summed beforehand, for all that six units
can be (``bits``); a matrix that is mostly zero leaves out what is not there (``sparse``); everything else is
left to the faster of two libraries (``calibration``).
"""

from harmonium.products.calibration import VARIABLE, Choice, agree, choice, made, measure, repeat, use
from harmonium.products.factor import Factor, RowProducts
from harmonium.products.precision import PRECISIONS, current, precision
from harmonium.products.product import int8_product, int8_works, product

__all__ = [
    "PRECISIONS",
    "VARIABLE",
    "Choice",
    "Factor",
    "RowProducts",
    "agree",
    "choice",
    "current",
    "int8_product",
    "int8_works",
    "made",
    "measure",
    "precision",
    "product",
    "repeat",
    "use",
]
