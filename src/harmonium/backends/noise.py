"""The compilation of functions, and their noise: one stream for every row. Needs numba."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numba import njit

# Sums may be reordered, so that they run in vector registers; NaN and infinity keep their meaning.
# Nothing but numba calls the functions: a wrapper for C would take a tenth of the time of compiling them.
_OPTIONS: Any = {
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "nogil": True,
    "no_cfunc_wrapper": True,
}
_WRITTEN = crc32(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))


def jit(function: Any) -> Any:
    """A function to be compiled at its first call, and kept until its file or one of this folder changes.

    Where nothing can be written, neither beside the file nor in the user's cache, it is not kept.
    """
    try:
        made = njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # numba found no folder
        return njit(**_OPTIONS)(function)
    # By itself numba looks at the function's own file, and not at those of the functions that it calls.
    cache_file: Any = getattr(getattr(made, "_cache", None), "_cache_file", None)
    if hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = cache_file._source_stamp, _WRITTEN
    return made


def inlined(function: Any) -> Any:
    """A part of one compiled function, compiled within it and not by itself.

    A function of its own is compiled twice, alone and within the other, where sums may be ordered otherwise.
    The process that compiles uses the first result, and those that load what was kept use the second.
    """
    return njit(inline="always", **_OPTIONS)(function)


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
def uniform(noise: Any, i: int) -> Any:
    """A variate with the 46 bits of entries i and i + 1: distributions may differ by very little."""
    return np.float64(noise[i]) - (np.float64(noise[i + 1]) - 0.5) * np.float64(_STEP)


@jit
def _log(u: Any) -> Any:
    """ln u for u > 0; its polynomial, and those below, interpolate at Chebyshev's points."""
    bits = np.int32(np.float32(u).view(np.int32) - np.int32(0x3F3504F3))  # so that f lies about 0
    f = np.int32((bits & np.int32(0x7FFFFF)) + np.int32(0x3F3504F3)).view(np.float32) - np.float32(1)
    p = np.float32(-0.0790274665) * f + np.float32(0.1262232065)
    p = p * f - np.float32(0.1299818307)
    p = p * f + np.float32(0.1421449631)
    p = p * f - np.float32(0.1664128155)
    p = p * f + np.float32(0.2000104487)
    p = p * f - np.float32(0.2500030696)
    p = p * f + np.float32(0.3333333135)
    whole = np.float32(np.int32(bits >> np.int32(23)))
    return whole * np.float32(0.6931471806) + (f + f * f * (p * f - np.float32(0.5)))


@jit
def fill_normal(out: Any, noise: Any, state: Any) -> None:
    """Standard normal variates by Box & Muller (1958), none of them beyond 8.07 (probability 7e-16).

    The radius has 46 bits where it is large and 24 where it is small; both loops run in vector registers.
    ``noise`` is ``room_for`` 2 · len(out) + 2 variates.
    """
    half = (len(out) + 1) // 2
    fill(noise, state)
    for i in range(half):
        u = noise[i] + (noise[half + i] - np.float32(0.5)) * _STEP
        noise[i] = np.sqrt(np.float32(-2) * _log(u))
    for i in range(half):
        h = noise[2 * half + i] - np.float32(0.5)  # of half a turn
        z = h * h
        sin = np.float32(0.0776559114) * z - np.float32(0.5982903838)
        sin = sin * z + np.float32(2.5500774384)
        sin = sin * z - np.float32(5.1677103043)
        sin = (sin * z + np.float32(3.1415927410)) * h
        cos = np.float32(-0.0243959315) * z + np.float32(0.2349370718)
        cos = cos * z - np.float32(1.3352119923)
        cos = cos * z + np.float32(4.0587091446)
        cos = cos * z - np.float32(4.9348020554)
        cos = cos * z + np.float32(1)
        radius = noise[i]
        noise[i] = radius * (cos * cos - sin * sin)
        noise[half + i] = radius * (np.float32(2) * sin * cos)
    for i in range(len(out)):
        out[i] = noise[i]
