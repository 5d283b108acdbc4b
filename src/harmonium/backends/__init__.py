"""Backends: products, draws and many updates, by compiled code or by torch; ``choice`` decides.

States of most units have two values. What multiplies them can be summed beforehand, for all that six units
can be (``bits``); a matrix that is mostly zero leaves out what is not there; everything else is left to one
of two libraries. Loops that eager tensor code would spend on starting operations are compiled where numba is
installed: half-steps (``per_row``), units drawn in turn (``potts``), whole updates (``updates``). Every draw
is one of ``half_steps``, which choose among them.
"""

from harmonium.backends.choice import (
    VARIABLE as VARIABLE,
    Backend as Backend,
    backend_name as backend_name,
    get_backend as get_backend,
    notes as notes,
    processor as processor,
    records as records,
    replays as replays,
    set_backend as set_backend,
    small_updates as small_updates,
)
from harmonium.backends.products import (
    Lots as Lots,
    LotSums as LotSums,
    OuterProductSum as OuterProductSum,
    PreparedMatrix as PreparedMatrix,
    product as product,
    sum_of_lots as sum_of_lots,
)
from harmonium.backends.recording import Recording as Recording, pays as pays, repeat as repeat
from harmonium.backends.rounding import PRECISIONS as PRECISIONS, precision as precision
from harmonium.backends.sparsity import (
    Compressed as Compressed,
    RowsInTurn as RowsInTurn,
    SparseMatrix as SparseMatrix,
    SparsityPattern as SparsityPattern,
)
