"""A process group that outlives a restart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import torch
from torch import distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

TIMEOUT: Final = 600.0
"""Seconds after which a process gives up to wait for another that neither answers nor has died."""


@contextmanager
def together(device: str | torch.device = "cpu", timeout: float = TIMEOUT) -> Iterator[None]:
    """Joins the processes that ``torchrun``, or a launcher like it, has started, for the time of some work.

    That is ``torch.distributed.init_process_group`` over nccl between GPUs and gloo between CPUs, but for two
    things. Processes that ``torchrun --max-restarts`` starts anew find each other: they share a store with
    those before them, whose addresses they would wait for in vain. And none waits longer than ``timeout``.

    A process that was started alone (``WORLD_SIZE`` is 1 or not set) has nobody to join.

    Args:
        device: where each works; "cuda" is the GPU that has its number on its computer, ``LOCAL_RANK``.
        timeout: seconds that one of them may let the others wait, above 0; what the first does alone, such as
            metrics and callbacks, counts.

    Raises:
        RuntimeError: there is a process group already, or the others do not come.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield
        return
    where = torch.device(device)
    if where.type == "cuda":
        torch.cuda.set_device(where if where.index is not None else int(os.environ.get("LOCAL_RANK", "0")))
    patience = timedelta(seconds=timeout)
    # Whose store: torchrun's own, or one that the first process opens.
    theirs = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    rank = int(os.environ["RANK"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    opened = TCPStore(address, port, size, not theirs and rank == 0, patience)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"harmonium/{attempt}", opened)
    dist.init_process_group(
        "nccl" if where.type == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=size,
        timeout=patience,
    )
    try:
        yield
    finally:
        dist.destroy_process_group()
