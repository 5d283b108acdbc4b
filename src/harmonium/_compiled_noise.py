"""What compiled code shares: how it is compiled, and its noise. Needs numba (the extra ``fast``)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# Sums may be reordered, so that they run in vector registers; NaN and infinity keep their meaning.
jit = njit(error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"}, nogil=True, cache=True)


@jit
def seed(state: Any, key: Any, stream: int) -> None:
    """Fills a row of words by SplitMix64, another one for every stream of a key."""
    z = key + np.uint64(stream) * np.uint64(0xD1342543DE82EF95)
    for i in range(len(state)):
        z += np.uint64(0x9E3779B97F4A7C15)
        x = z
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state[i] = x ^ (x >> np.uint64(31))


@jit
def fill(words: Any, state: Any) -> None:
    """64 bits a word from xoshiro256+ (Blackman & Vigna 2021), whose state has four words."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    for i in range(len(words)):
        words[i] = s0 + s3
        shifted = s1 << np.uint64(17)
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= shifted
        s3 = (s3 << np.uint64(45)) | (s3 >> np.uint64(19))
    state[0], state[1], state[2], state[3] = s0, s1, s2, s3


@jit
def unit(word: Any) -> float:
    """A uniform variate in [0, 1) from a word."""
    return np.float64(word >> np.uint64(11)) * 2.0**-53


@jit
def fill_uniform(noise: Any, state: Any) -> None:
    """``unit`` of the words of ``fill``, in one pass: two would make small pairs a tenth slower."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    for i in range(len(noise)):
        noise[i] = unit(s0 + s3)
        shifted = s1 << np.uint64(17)
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= shifted
        s3 = (s3 << np.uint64(45)) | (s3 >> np.uint64(19))
    state[0], state[1], state[2], state[3] = s0, s1, s2, s3
