"""Independent streams from one seed."""

from __future__ import annotations

import zlib

import numpy as np
import torch

from harmonium import _host, _random


def as_seed(seed: int | torch.Generator) -> int:
    """The int that a run is known by: an int as it is; of a generator, its next draw."""
    return int(_random.integers(1 << 62, (), seed)) if isinstance(seed, torch.Generator) else seed


def stream_seed(seed: int, purpose: str, index: int = 0) -> int:
    """A 63-bit seed for one purpose of a run.

    The streams of a run must differ from each other and from that of a machine initialised with the same
    seed, or the first chains would repeat the noise of the initial couplings.
    """
    entropy = (seed, zlib.crc32(purpose.encode()), index)
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


def renew(generator: torch.Generator, seed: int, step: int) -> None:
    """Gives the rule's generator the noise of the update that follows ``step`` earlier ones.

    On the CPU a run has one stream, which goes on. On other devices each update has a stream of its own, a
    function of the seed and the step alone, so that a run may go on where no such generator is.
    """
    if _host.behind(generator.device):
        generator.manual_seed(stream_seed(seed, "rule", step))
