"""The precision of fields where chains are sampled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import torch
from torch import Tensor

from harmonium import _checks

PRECISIONS: Final = ("float32", "tf32", "bf16")

ASKED: Final[ContextVar[str]] = ContextVar("precision", default="float32")
_TF32_BITS = 13  # of the 23 of float32 that tf32 leaves out


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Inside, the products that make fields round their factors first; sums stay in float32.

    The states of discrete units survive it, so that chains of such a machine follow the distribution of the
    machine with rounded couplings: exactly, as both half-steps round alike. Statistics, energies and
    parameters are not rounded. docs/gpu.md has the bias.

    On a GPU its matrix units do it, several times as fast as float32. On a CPU it is an emulation, which is
    slower than not to round, for the sake of trying. For machines in float32; others compute as they are.

    Args:
        name: "float32"; "tf32": 10 bits behind the leading one; "bf16": 7 bits.

    Raises:
        ValueError: another name.
    """
    token = ASKED.set(_checks.one_of(name, "precision", PRECISIONS))
    try:
        yield
    finally:
        ASKED.reset(token)


def rounded(name: str, x: Tensor) -> Tensor:
    """A float32 tensor as the factor of a product: bfloat16 for a GPU's, else in float32 again."""
    if name == "bf16":
        short = x.to(torch.bfloat16)
        return short if x.is_cuda else short.to(x.dtype)
    return x if x.is_cuda else _tf32(x)


def multiply_rounded(name: str, x: Tensor, y: Tensor) -> Tensor:
    """x @ y of ``rounded`` factors, summed and returned in float32."""
    if not x.is_cuda:
        return x @ y
    if name == "bf16":
        return torch.mm(x, y, out_dtype=torch.float32)
    backend = torch.backends.cuda.matmul
    setting, value = (
        ("fp32_precision", "tf32") if hasattr(backend, "fp32_precision") else ("allow_tf32", True)
    )
    before = getattr(backend, setting)
    setattr(backend, setting, value)
    try:
        return x @ y
    finally:
        setattr(backend, setting, before)


def _tf32(x: Tensor) -> Tensor:
    """To the nearest number with 10 bits behind the leading one, ties away from zero."""
    bits = x.contiguous().view(torch.int32)
    half = 1 << (_TF32_BITS - 1)
    shortened = (bits + half) & -(1 << _TF32_BITS)
    return torch.where(x.isfinite(), shortened.view(torch.float32), x)
