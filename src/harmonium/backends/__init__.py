"""Compiled code on a CPU, where numba is installed; ``dispatch`` says when it serves."""

from typing import Final

# Shapes of products by bits, in ``bits`` and ``vectors``.
WIDTH: Final = 16
"""Entries of a vector, of 32 bits each."""
UNITS: Final = 6
"""Rows that a table has all sums of, 2^6."""
TABLES: Final = 8
"""Tables that a sum picks from at a time: they fit into the first level of cache."""
PER_WORD: Final = UNITS * TABLES
"""Units of a word, one bit each, the first the lowest."""
STEP: Final = PER_WORD // 2
"""Rows that half of the tables have, of which y has a multiple; no more than a float32 has bits."""
LOT: Final = 21 * PER_WORD
"""Rows of y, 1008, that have a unit together, and of x, whose sums the second level of cache holds."""
