"""Matrix products: which library multiplies, sums of a few rows, and sums that bits pick.

States of most units have two values. What multiplies them can be summed beforehand, for all that six units
can be (``bits``); matrices that are mostly zero are summed row by row (``sparse``); everything else is left
to the faster of two libraries (``calibration``).
"""

from harmonium.products.calibration import VARIABLE, Choice, agree, choice, made, measure, repeat, use
from harmonium.products.changes import Changes
from harmonium.products.factor import Factor, RowProducts, pays
from harmonium.products.precision import PRECISIONS, current, precision
from harmonium.products.product import int8_product, int8_works, product

__all__ = [
    "PRECISIONS",
    "VARIABLE",
    "Changes",
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
    "pays",
    "precision",
    "product",
    "repeat",
    "use",
]
