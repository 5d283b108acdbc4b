"""Data: toy sets, file readers, encoders and one face over all that can hold rows.

- :func:`read` opens a file, a folder of images or a built-in name as a :class:`DataSet`.
- :class:`Rows` hands out batches from arrays, tensors, sparse matrices and files larger than memory.
- :class:`Codec` turns data into the states of visible units, and samples back into the data's own units, by
  an :class:`Encoder` of arrays, or by a :class:`Table`, an encoder of columns of several kinds.
"""

from harmonium._rows import Rows
from harmonium.data._frames import build
from harmonium.data.codec import Codec, Place
from harmonium.data.codings import Labels
from harmonium.data.column import Column, name_of
from harmonium.data.dataset import LABELS, DataSet
from harmonium.data.encoder import Encoder, encoder_from_dict
from harmonium.data.encoders import (
    BINARISE,
    BernoulliBinarise,
    BitPlanes,
    Compose,
    Identity,
    Letters,
    OneHot,
    Scale,
    Standardise,
    Threshold,
)
from harmonium.data.files import BUILT_IN, read
from harmonium.data.left_out import IGNORE, blank_rows, without_unit
from harmonium.data.missing import SIDES, missing_at_random, missing_half, missing_rectangles
from harmonium.data.sheet import Cells, Sheet, is_sheet, sheet_of
from harmonium.data.table import UNKNOWN, Table
from harmonium.data.toy import bars_and_stripes, digits, gaussian_mixture, gaussian_mixture_log_density
from harmonium.data.transforms import bernoulli_binarise, from_bit_planes, threshold, to_bit_planes
from harmonium.data.units import visible_for, visible_layers

__all__ = [
    "BINARISE",
    "BUILT_IN",
    "IGNORE",
    "LABELS",
    "SIDES",
    "UNKNOWN",
    "BernoulliBinarise",
    "BitPlanes",
    "Cells",
    "Codec",
    "Column",
    "Compose",
    "DataSet",
    "Encoder",
    "Identity",
    "Labels",
    "Letters",
    "OneHot",
    "Place",
    "Rows",
    "Scale",
    "Sheet",
    "Standardise",
    "Table",
    "Threshold",
    "bars_and_stripes",
    "bernoulli_binarise",
    "blank_rows",
    "build",
    "digits",
    "encoder_from_dict",
    "from_bit_planes",
    "gaussian_mixture",
    "gaussian_mixture_log_density",
    "is_sheet",
    "missing_at_random",
    "missing_half",
    "missing_rectangles",
    "name_of",
    "read",
    "sheet_of",
    "threshold",
    "to_bit_planes",
    "visible_for",
    "visible_layers",
    "without_unit",
]
