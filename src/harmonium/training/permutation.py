"""The order of more rows than an order of them could be held for."""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_ROUNDS: Final = 12
_MIX = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # of SplitMix64 (Steele et al. 2014)


@final
class KeyedPermutation:
    """A permutation of ``range(n)`` that is computed where it is asked for, and never held.

    A Feistel network of 12 rounds over the least number of bits that count to n, whose round function is the
    finaliser of SplitMix64; what it sends beyond n goes through it again (Black & Rogaway 2002). Every place
    is taken once, whatever the key. Which permutation it is, the key decides: one of at most 2^64 and not of
    n!, which no statistical test is known to tell from a uniform draw (``tests/interface/test_streams.py``
    has those that were made), but which is no cipher.

    Args:
        n: how many, at least 1 and at most 2^62.
        key: in [0, 2^64).
    """

    def __init__(self, n: int, key: int) -> None:
        self.n = n
        bits = max(2, (n - 1).bit_length())
        self._low = np.uint64(bits // 2)
        self._masks = np.uint64((1 << (bits - bits // 2)) - 1), np.uint64((1 << (bits // 2)) - 1)
        self._keys = _mixed(np.uint64(key) + np.arange(1, _ROUNDS + 1, dtype=np.uint64) * _MIX[0])

    def __call__(self, places: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the permuted numbers at some places, each in [0, n): int64, of the shape of ``places``."""
        x = self._once(places.astype(np.uint64))
        while len(beyond := np.flatnonzero(x >= self.n)):
            x[beyond] = self._once(x[beyond])
        return x.astype(np.int64)

    def _once(self, x: Words) -> Words:
        high, low = x >> self._low, x & self._masks[1]
        for number, key in enumerate(self._keys):
            if number % 2:
                low = low ^ (_mixed(high ^ key) & self._masks[1])
            else:
                high = high ^ (_mixed(low ^ key) & self._masks[0])
        return (high << self._low) | low


def _mixed(x: Words) -> Words:
    x = (x ^ (x >> np.uint64(30))) * _MIX[0]
    x = (x ^ (x >> np.uint64(27))) * _MIX[1]
    return x ^ (x >> np.uint64(31))
