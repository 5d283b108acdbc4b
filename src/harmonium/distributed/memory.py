"""Memory and a barrier that the processes of one computer have in common, where they can be had."""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
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


def local_barrier(
    all_gather: Callable[[Any], list[Any]], rank: int, timeout: float
) -> Callable[[], None] | None:
    """Returns a call that ends when all processes of this computer have made it; None in all: there is none.

    Each process has a socket to rank 0. Between two updates the threads of gloo sleep, and its sum of one
    number takes a millisecond and more for what these do in a tenth of one. All make this call together.

    Args:
        all_gather: returns the values of all processes for that of this one.
        rank: which process this is.
        timeout: seconds that the call waits for another process.

    Returns:
        The call; it raises RuntimeError where another process has ended, or does not answer.
    """
    joined, peers = False, list[socket.socket]()
    with TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        path = os.path.join(directory, "rank_0")
        with suppress(OSError):  # too long a path
            if rank == 0:
                listener.bind(path)
                listener.listen()
                joined = True
        path = all_gather(path)[0]
        with suppress(OSError):  # other files than those of rank 0
            if rank > 0:
                peers.append(socket.socket(socket.AF_UNIX))
                peers[0].connect(path)
                joined = True
        if not all(answers := all_gather(joined)):
            return None
        if rank == 0:
            peers += [listener.accept()[0] for _ in answers[1:]]
    for peer in peers:
        peer.settimeout(timeout)

    def barrier() -> None:
        try:
            for hears in (rank == 0, rank > 0):  # rank 0 hears of all others first, then tells them
                for peer in peers:
                    if not hears:
                        peer.sendall(b"!")
                    elif not peer.recv(1):
                        raise ConnectionError("its socket is closed")
        except OSError as error:
            raise RuntimeError(f"distributed: a process has ended, or does not answer: {error}") from error

    return barrier


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
