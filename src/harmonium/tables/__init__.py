"""Tables: columns of several kinds, names and missing cells, as the states of visible units, and back.

- :class:`Codec` turns rows, as people bring them, into states, and samples back into rows.
- :class:`Table` is the encoder of a frame, by a :class:`ColumnCodec` for each column.
- :func:`train_table` trains machines of few hidden units on tables without chains.
"""

from harmonium.tables.arrays import visible_for as visible_for
from harmonium.tables.codec import Codec as Codec, ColumnUnit as ColumnUnit
from harmonium.tables.collapse import find_collapse as find_collapse
from harmonium.tables.column import (
    IGNORE as IGNORE,
    ColumnCodec as ColumnCodec,
    name_of as name_of,
)
from harmonium.tables.constant import Constant as Constant
from harmonium.tables.counts import Counts as Counts
from harmonium.tables.filling import (
    CellInterval as CellInterval,
    Intervals as Intervals,
    bend as bend,
    fill_cells as fill_cells,
    find_intervals as find_intervals,
)
from harmonium.tables.fitting import Fitting as Fitting
from harmonium.tables.joint_normal import (
    fit_normal as fit_normal,
    fold as fold,
)
from harmonium.tables.kinds import read_kinds as read_kinds, without_unit as without_unit
from harmonium.tables.labels import Labels as Labels
from harmonium.tables.line import Line as Line
from harmonium.tables.linear import LinearPrediction as LinearPrediction
from harmonium.tables.logarithm import Logarithm as Logarithm
from harmonium.tables.quantiles import Quantiles as Quantiles
from harmonium.tables.recipe import (
    DECIDED as DECIDED,
    IMAGES as IMAGES,
    LABEL as LABEL,
    METHODS as METHODS,
    OBJECTIVES as OBJECTIVES,
    PLAIN as PLAIN,
    as_root as as_root,
    make_rule as make_rule,
    name_objective as name_objective,
    say_unused as say_unused,
    share_of as share_of,
    warn_of_rough as warn_of_rough,
)
from harmonium.tables.table import (
    NEW_CELLS as NEW_CELLS,
    Table as Table,
    blank_rows as blank_rows,
    warn_of_blank as warn_of_blank,
)
from harmonium.tables.table_training import train_table as train_table
