"""Matrix products: which library multiplies, sums of a few rows, and products of whole numbers.

States of most units are whole numbers. What multiplies those of two values can be summed beforehand, for all
that six units can be (``bits``), what multiplies others split into whole digits and multiplied exactly
(``digits``); matrices that are mostly zero are summed row by row (``sparse``); everything else is left to the
faster of two libraries (``calibration``).
"""

from harmonium.products.calibration import VARIABLE, Choice, agree, choice, made, measure, repeat, use
from harmonium.products.changes import Changes
from harmonium.products.digits import int8_product
from harmonium.products.factor import Factor, RowProducts, pays
from harmonium.products.precision import PRECISIONS, current, precision
from harmonium.products.product import product

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
    "made",
    "measure",
    "pays",
    "precision",
    "product",
    "repeat",
    "use",
]
