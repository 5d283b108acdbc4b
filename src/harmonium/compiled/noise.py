"""How compiled code is compiled, and its noise: one stream for every row. Needs numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# Sums may be reordered, so that they run in vector registers; NaN and infinity keep their meaning. What is
# kept on disk is made anew when a function's own file changes: after an edit here or in ``units``, remove it.
jit = njit(error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"}, nogil=True, cache=True)

_STEP = np.float32(2.0**-23)
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


@jit
def stream() -> Any:
    """The state of a generator, to be seeded."""
    return np.empty(1, np.uint64)


@jit
def room_for(width: int) -> Any:
    """Room for at least ``width`` variates, an even number."""
    return np.empty((width + 1) // 2 * 2, np.float32)


@jit
def seed(state: Any, key: Any, number: int) -> None:
    """Starts one of the streams of a key: they are far apart on one cycle of 2^64 words."""
    state[0] = key + np.uint64(number) * np.uint64(0xD1342543DE82EF95)


@jit
def fill(noise: Any, state: Any) -> None:
    """An even number of uniform variates inside (0, 1): odd multiples of 2^-24.

    Two come from each word of SplitMix64 (Steele, Lea & Flood 2014). Its words do not wait for each other, so
    they are made in vector registers, and a stream costs nothing to start.
    """
    half, word = len(noise) // 2, state[0]
    for i in range(half):
        word += _GAMMA  # as a product it takes five times as long on processors that wait for its old result
        x = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
        noise[i] = (np.float32(np.int32(x >> np.uint64(41))) + np.float32(0.5)) * _STEP
        low = np.int32((x >> np.uint64(18)) & np.uint64(0x7FFFFF))
        noise[half + i] = (np.float32(low) + np.float32(0.5)) * _STEP
    state[0] = word


@jit
def mirror(noise: Any) -> None:
    """1 - u, which is exact."""
    for i in range(len(noise)):
        noise[i] = np.float32(1) - noise[i]


@jit
def uniform(noise: Any, i: int) -> Any:
    """A variate with the 46 bits of entries i and i + 1: laws may differ by very little."""
    return np.float64(noise[i]) - (np.float64(noise[i + 1]) - 0.5) * np.float64(_STEP)


@jit
def fill_normal(out: Any, noise: Any, state: Any) -> None:
    """Standard normal variates by Box & Muller (1958), none of them beyond 8.07 (probability 7e-16).

    ``noise`` is ``room_for`` 2 · len(out) variates.
    """
    n = len(out)
    fill(noise, state)
    for i in range(0, n, 2):
        radius = np.sqrt(-2.0 * np.log(uniform(noise, 2 * i)))
        angle = 2.0 * np.pi * np.float64(noise[2 * i + 2])
        out[i] = radius * np.cos(angle)
        if i + 1 < n:
            out[i + 1] = radius * np.sin(angle)
