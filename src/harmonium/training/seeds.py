"""Independent streams and orders from one seed."""

from __future__ import annotations

import zlib
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray

from harmonium import _random

_ROUNDS: Final = 12  # four make a Feistel network pseudorandom (Luby & Rackoff 1988); a narrow one needs more
_MIX = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # of SplitMix64 (Steele et al. 2014)


def as_seed(seed: int | torch.Generator) -> int:
    """Returns the int that a run is known by: an int as it is; of a generator, its next draw."""
    return int(_random.integers(1 << 62, (), seed)) if isinstance(seed, torch.Generator) else seed


def stream_seed(root: int, purpose: str, index: int = 0) -> int:
    """Returns a 63-bit seed for one purpose of a run.

    The streams of a run must differ from each other and from that of a machine initialised with the same
    seed, or the first chains would repeat the noise of the initial couplings.
    """
    entropy = (root, zlib.crc32(purpose.encode()), index)
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


@final
class KeyedPermutation:
    """A permutation of ``range(n)`` that is computed where it is asked for, and never held.

    A Feistel network of 12 rounds over the least number of bits that count to n, whose round function is the
    finaliser of SplitMix64; what it sends beyond n goes through it again (Black & Rogaway 2002). Every place
    is taken once, whatever the key. Which permutation it is, the key decides: one of at most 2^64 and not of
    n!, which no statistical test is known to tell from a uniform draw (``tests/interface/test_streams.py``
    has those that were made), but which is no cipher.

    Args:
        n: Length, at least 1 and at most 2^62.
        key: Number of the permutation, in [0, 2^64).
    """

    def __init__(self, n: int, key: int) -> None:
        self.n = n
        bits = max(2, (n - 1).bit_length())
        self._low = np.uint64(bits // 2)
        self._masks = np.uint64((1 << (bits - bits // 2)) - 1), np.uint64((1 << (bits // 2)) - 1)
        self._keys = _mix(np.uint64(key) + np.arange(1, _ROUNDS + 1, dtype=np.uint64) * _MIX[0])

    def __call__(self, places: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the permuted numbers at some places, each in [0, n): int64, of the shape of ``places``."""
        x = self._permute(places.astype(np.uint64))
        while len(beyond := np.flatnonzero(x >= self.n)):
            x[beyond] = self._permute(x[beyond])
        return x.astype(np.int64)

    def _permute(self, x: NDArray[np.uint64]) -> NDArray[np.uint64]:
        high, low = x >> self._low, x & self._masks[1]
        for number, key in enumerate(self._keys):
            if number % 2:
                low = low ^ (_mix(high ^ key) & self._masks[1])
            else:
                high = high ^ (_mix(low ^ key) & self._masks[0])
        return (high << self._low) | low


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * _MIX[0]
    x = (x ^ (x >> np.uint64(27))) * _MIX[1]
    return x ^ (x >> np.uint64(31))
