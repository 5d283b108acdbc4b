"""Memory that the processes of one computer have in common, where it can be had."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

LEAST: Final = 1 << 16
"""Bytes from which on common memory is worth the setting up, which sends five objects."""
MOST: Final = 1 << 30
"""Bytes that it may take, beside what each process has of its own."""


def common_memory(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    all_gather: Callable[[Any], list[Any]],
    rank: int,
) -> Tensor | None:
    """Returns a tensor of zeros that all processes read and write; None in all where one cannot have it.

    It is a file of Linux without a name (``memfd_create``), so that nothing is left of it when the processes
    have ended, however they end. All of them make this call at the same time.

    Args:
        shape: its shape, alike in all processes.
        dtype: its type.
        all_gather: returns the values of all processes for that of this one.
        rank: which process this is.
    """
    size = dtype.itemsize * torch.Size(shape).numel()
    if not LEAST <= size <= MOST:
        return None
    computers = all_gather(_computer())
    if computers[0] is None or any(computer != computers[0] for computer in computers):
        return None
    opened = _make(size) if rank == 0 else -1
    process, number = all_gather((os.getpid(), opened))[0]
    if rank > 0 and number >= 0:
        with suppress(OSError):  # where a process may not look at another one
            opened = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR)
    memory = mmap.mmap(opened, size) if all(all_gather(opened >= 0)) else None
    if opened >= 0:
        os.close(opened)
    return None if memory is None else torch.frombuffer(memory, dtype=dtype).view(shape)


def _make(size: int) -> int:
    """Returns a file of so many zeros, -1 where there is none to be had."""
    with suppress(OSError):
        descriptor = os.memfd_create("harmonium")
        os.ftruncate(descriptor, size)
        return descriptor
    return -1


def _computer() -> tuple[str, str] | None:
    """Returns what distinguishes this computer, and its table of processes; None where nothing does."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(), os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
