"""Independent streams from one seed."""

from __future__ import annotations

import zlib

import numpy as np


def stream_seed(root: int, purpose: str, index: int = 0) -> int:
    """Returns a 63-bit seed for one purpose of a run.

    The streams of a run must differ from each other and from that of a machine initialised with the same
    seed, or the first chains would repeat the noise of the initial couplings.
    """
    entropy = (root, zlib.crc32(purpose.encode()), index)
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))
