"""Noise: the one place where harmonium draws random numbers.

Every draw takes a ``torch.Generator``. On the CPU a large uniform draw advances that generator once, for a
key, and the key opens fresh SFC64 streams that fill the array. This is several times faster than torch's
serial generator, the state to save for a bit-exact resume stays the generator's own, and because the streams
belong to fixed chunks of the array the bits do not depend on the number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium.compiled.serving import share_out

_CHUNK = 1 << 18
_LOCAL = threading.local()
_WARM_UP = 18  # SFC64's author lets 12 to 18 outputs pass before neighbouring seeds look unrelated
_SMALL = 1 << 14  # below this, opening a stream costs more than it saves
_NUMPY_DTYPES = {torch.float32: np.float32, torch.float64: np.float64}

Noise = NDArray[Any]


def as_generator(seed: int | torch.Generator, device: torch.device | None = None) -> torch.Generator:
    """What every public function makes of its ``seed``: a generator from an int; a generator passes through.

    An int gives the same draws at every call. A generator is advanced, so that calls that share one differ.

    Args:
        seed: an int in [0, 2**63), or a ``torch.Generator``.
        device: where the noise is needed; None: on the CPU, or wherever a given generator lives.

    Raises:
        TypeError: neither an int nor a generator.
        ValueError: a negative or too large int, or a generator of another kind of device.
    """
    if isinstance(seed, torch.Generator):
        if device is not None and seed.device.type != device.type:
            raise ValueError(f"seed: expected a generator on {device}, received one on {seed.device}")
        return seed
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed: expected an int or a torch.Generator, received {type(seed).__name__}")
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"seed: expected an int in [0, 2**63), received {seed}")
    return torch.Generator(device=device or "cpu").manual_seed(int(seed))


def uniform(shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """Uniform noise in [0, 1), on the generator's device; float32 noise has 24 bits, float64 noise 53."""
    shape = tuple(shape)
    if generator.device.type != "cpu" or prod(shape) < _SMALL or dtype not in _NUMPY_DTYPES:
        return torch.rand(shape, generator=generator, device=generator.device, dtype=dtype)
    size = prod(shape)
    word = int(key(generator))
    if size <= _CHUNK:
        flat = _words(_stream(word, 0), size, dtype)
    else:
        flat = np.empty(size, _NUMPY_DTYPES[dtype])
        _fill(flat, word, dtype)
    return torch.from_numpy(flat).view(shape)


def normal(shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal noise, on the generator's device (torch's own is vectorised, and the fastest)."""
    return torch.randn(tuple(shape), generator=generator, device=generator.device, dtype=dtype)


def permutation(n: int, generator: torch.Generator) -> Tensor:
    """A uniformly random permutation of ``range(n)``, int64, on the generator's device."""
    return torch.randperm(n, generator=generator, device=generator.device)


def weighted(probability: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """n indices drawn with replacement, each with its probability; int64, on the generator's device."""
    return torch.multinomial(probability, n, replacement=True, generator=generator)


def integers(high: int, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Uniform integers in [0, high), int64, on the generator's device."""
    return torch.randint(high, tuple(shape), generator=generator, device=generator.device)


def key(generator: torch.Generator) -> np.uint64:
    """What opens streams of noise elsewhere: a word of 62 bits."""
    return np.uint64(int(integers(1 << 62, (), generator)))


def _fill(out: Noise, key: int, dtype: torch.dtype) -> None:
    chunks = [(i, out[start : start + _CHUNK]) for i, start in enumerate(range(0, out.size, _CHUNK))]

    def work(number: int) -> None:
        i, chunk = chunks[number]
        chunk[:] = _words(_stream(key, i), chunk.size, dtype)

    share_out(work, len(chunks))


def _stream(key: int, chunk: int) -> np.random.Generator:
    """The stream of a key and a chunk: one generator a thread, set to its start without NumPy's seeding."""
    if not hasattr(_LOCAL, "generator"):
        _LOCAL.generator = np.random.Generator(np.random.SFC64(0))
        _LOCAL.state = _LOCAL.generator.bit_generator.state
    words = _LOCAL.state["state"]["state"]
    words[0], words[1], words[2], words[3] = key, chunk, 0x9E3779B97F4A7C15, 1
    bits = _LOCAL.generator.bit_generator
    bits.state = _LOCAL.state
    bits.random_raw(_WARM_UP, output=False)
    return cast(np.random.Generator, _LOCAL.generator)


def _words(stream: np.random.Generator, size: int, dtype: torch.dtype) -> Noise:
    if dtype is torch.float64:
        return stream.random(size)
    # Two 24-bit fractions from every 64-bit word, converted where they lie: faster than asking NumPy for
    # floats.
    words = stream.integers(0, 2**64 - 1, (size + 1) // 2, dtype=np.uint64, endpoint=True)
    bits = words.view(np.uint32)
    bits >>= np.uint32(8)
    floats = words.view(np.float32)
    np.multiply(bits.view(np.int32), np.float32(2.0**-24), out=floats, casting="unsafe", dtype=np.float32)
    return floats[:size]
