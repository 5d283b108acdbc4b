"""One command in several processes, as torchrun starts them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def started() -> int:
    """How many there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def leads() -> bool:
    """Whether this one checks, shows and writes for all."""
    return started() == 1 or os.environ.get("RANK") == "0"


@contextmanager
def together(device: str | None) -> Iterator[str | None]:
    """Joins them for the time of the work; gives the device of this one.

    Args:
        device: as asked for; "cuda" is the GPU that has the number of the process on its computer.
    """
    if started() == 1:
        yield device
        return
    import torch
    from torch import distributed

    cuda = device is not None and device.startswith("cuda")
    if cuda:
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if cuda else "gloo")
    try:
        yield device
    finally:
        distributed.destroy_process_group()
