"""Noise: the one place where harmonium draws random numbers.

Every draw takes a ``torch.Generator``. On the CPU a large uniform draw in float32 advances that generator
once, for a key, and compiled code fills the array from streams of the key: several times faster than torch's
serial generator. The state to save for a bit-exact resume stays the generator's own, and because the streams
belong to fixed chunks of the array the bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from harmonium.backends.calls import key as key, keys as keys
from harmonium.backends.half_steps import uniform as uniform


def as_generator(seed: int | torch.Generator, device: torch.device | None = None) -> torch.Generator:
    """Returns the generator for the ``seed`` of a public function: a new one for an int, else the one given.

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


def normal(shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """Draws standard normal noise, on the generator's device (torch's own is vectorised)."""
    return torch.randn(tuple(shape), generator=generator, device=generator.device, dtype=dtype)


def exponential(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Draws Exp(1) variates in float64, on the generator's device, in one operation."""
    noise = torch.empty(tuple(shape), dtype=torch.float64, device=generator.device)
    return noise.exponential_(generator=generator)


def accept(log_ratio: Tensor, generator: torch.Generator) -> Tensor:
    """Draws booleans that are true with probability min(1, exp(log_ratio)), of the shape of ``log_ratio``."""
    u = uniform(log_ratio.shape, generator, torch.float64)
    return torch.log1p(-u) <= log_ratio  # an Exp(1) variate, so that nothing overflows


def permutation(n: int, generator: torch.Generator) -> Tensor:
    """Draws a permutation of ``range(n)`` uniformly, int64, on the generator's device."""
    return torch.randperm(n, generator=generator, device=generator.device)


def weighted(probability: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draws n indices with replacement, each with its probability; int64, on the generator's device."""
    return torch.multinomial(probability, n, replacement=True, generator=generator)


def integers(high: int, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Draws integers in [0, high) uniformly, int64, on the generator's device."""
    return torch.randint(high, tuple(shape), generator=generator, device=generator.device)
