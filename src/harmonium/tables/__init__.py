"""Tables: columns of several kinds, names and missing cells, as the states of visible units, and back.

- :class:`Codec` turns rows, as people bring them, into states, and samples back into rows.
- :class:`Table` is the encoder of a frame, by a :class:`Column` for each that is learned.
"""

from harmonium.tables.codec import Codec, Place
from harmonium.tables.codings import Labels
from harmonium.tables.column import Column, name_of
from harmonium.tables.left_out import IGNORE, blank_rows, without_unit
from harmonium.tables.table import UNKNOWN, Table
from harmonium.tables.units import visible_for, visible_layers

__all__ = [
    "IGNORE",
    "UNKNOWN",
    "Codec",
    "Column",
    "Labels",
    "Place",
    "Table",
    "blank_rows",
    "name_of",
    "visible_for",
    "visible_layers",
    "without_unit",
]
