"""Memory that the process keeps for its next operation.

The C library of Linux (glibc) gives large freed blocks back to the system and asks for them anew, page by
page, which takes about a tenth of an update with a thousand rows. It learns from what it frees: once a block
has come and gone, others up to its size are taken from what was freed, and up to twice as much stays at the
end of the heap.
"""

from __future__ import annotations

import numpy as np

_LEARNED = 31 << 20  # bytes; glibc learns nothing from more than 32 MiB


def keep() -> None:
    """Lets a block come and go, which nobody writes to.

    Other C libraries stay as they are, and so does this one where the user has set it (for instance by
    ``MALLOC_TRIM_THRESHOLD_``).
    """
    np.empty(_LEARNED, np.uint8)
