"""Tables: columns of several kinds, names and missing cells, as the states of visible units, and back.

- :class:`Codec` turns rows, as people bring them, into states, and samples back into rows.
- :class:`Table` is the encoder of a frame, by a :class:`Column` for each that is learned.
"""

from harmonium.tables.codec import Codec, Place, visible_for
from harmonium.tables.codings import IGNORE, Labels, OneOf
from harmonium.tables.column import Column, name_of, without_unit
from harmonium.tables.table import UNKNOWN, Table, blank_rows

__all__ = [
    "IGNORE",
    "UNKNOWN",
    "Codec",
    "Column",
    "Labels",
    "OneOf",
    "Place",
    "Table",
    "blank_rows",
    "name_of",
    "visible_for",
    "without_unit",
]
