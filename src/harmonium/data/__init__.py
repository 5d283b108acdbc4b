"""Data: toy sets, file readers, encoders of arrays and one face over all that can hold rows.

- :func:`read` opens a file, a folder of images or a built-in name as a :class:`DataSet`.
- :class:`Rows` hands out batches from arrays, tensors, sparse matrices and files larger than memory.
- :class:`Frame` holds the :class:`Series` of a data frame, whichever library made it.
- An :class:`Encoder` turns data into states and back; ``harmonium.tables`` has that of tables.
"""

from harmonium._rows import Rows as Rows
from harmonium.data.dataset import LABELS as LABELS, DataSet as DataSet
from harmonium.data.encoders import (
    BINARISE as BINARISE,
    BernoulliBinarise as BernoulliBinarise,
    BitPlanes as BitPlanes,
    Encoder as Encoder,
    Identity as Identity,
    Letters as Letters,
    OneHot as OneHot,
    Standardise as Standardise,
    Threshold as Threshold,
    encoder_from_dict as encoder_from_dict,
)
from harmonium.data.files import (
    BUILT_IN as BUILT_IN,
    read as read,
    read_distances as read_distances,
    read_weights as read_weights,
)
from harmonium.data.frame import (
    Frame as Frame,
    Series as Series,
    build as build,
    frame_of as frame_of,
    is_frame as is_frame,
)
from harmonium.data.missing import missing_at_random as missing_at_random, missing_half as missing_half
from harmonium.data.readings import as_types as as_types, question_of as question_of
from harmonium.data.table_files import parse_arguments as parse_arguments
from harmonium.data.times import (
    check_form as check_form,
    form_of as form_of,
    from_numbers as from_numbers,
    step_of as step_of,
    to_numbers as to_numbers,
)
from harmonium.data.toy import (
    bars_and_stripes as bars_and_stripes,
    digits as digits,
    gaussian_mixture as gaussian_mixture,
    gaussian_mixture_log_density as gaussian_mixture_log_density,
    planted_glass as planted_glass,
)
from harmonium.data.toy_family import family_distances as family_distances, protein_family as protein_family
from harmonium.data.transforms import (
    bernoulli_binarise as bernoulli_binarise,
    threshold as threshold,
)
