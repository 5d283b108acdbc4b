"""Data: toy sets, file readers, encoders of arrays and one face over all that can hold rows.

- :func:`read` opens a file, a folder of images or a built-in name as a :class:`DataSet`.
- :class:`Rows` hands out batches from arrays, tensors, sparse matrices and files larger than memory.
- :class:`Frame` holds the :class:`Series` of a data frame, whichever library made it.
- An :class:`Encoder` turns data into states and back; ``harmonium.tables`` has that of tables.
"""

from harmonium._rows import Rows
from harmonium.data.dataset import LABELS, DataSet
from harmonium.data.encoders import (
    BINARISE,
    BernoulliBinarise,
    BitPlanes,
    Compose,
    Encoder,
    Identity,
    Letters,
    OneHot,
    Scale,
    Standardise,
    Threshold,
    encoder_from_dict,
)
from harmonium.data.files import BUILT_IN, read
from harmonium.data.frame import Frame, Series, build, frame_of, is_frame
from harmonium.data.missing import SIDES, missing_at_random, missing_half, missing_rectangles
from harmonium.data.toy import bars_and_stripes, digits, gaussian_mixture, gaussian_mixture_log_density
from harmonium.data.transforms import bernoulli_binarise, from_bit_planes, threshold, to_bit_planes

__all__ = [
    "BINARISE",
    "BUILT_IN",
    "LABELS",
    "SIDES",
    "BernoulliBinarise",
    "BitPlanes",
    "Compose",
    "DataSet",
    "Encoder",
    "Frame",
    "Identity",
    "Letters",
    "OneHot",
    "Rows",
    "Scale",
    "Series",
    "Standardise",
    "Threshold",
    "bars_and_stripes",
    "bernoulli_binarise",
    "build",
    "digits",
    "encoder_from_dict",
    "frame_of",
    "from_bit_planes",
    "gaussian_mixture",
    "gaussian_mixture_log_density",
    "is_frame",
    "missing_at_random",
    "missing_half",
    "missing_rectangles",
    "read",
    "threshold",
    "to_bit_planes",
]
