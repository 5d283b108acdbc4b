"""One command in several processes, as torchrun starts them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def started() -> int:
    """How many there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def leads() -> bool:
    """Whether this one checks, shows and writes for all."""
    return started() == 1 or os.environ.get("RANK") == "0"


def device(name: str | None) -> str | None:
    """The device of this one: "cuda" is the GPU that has its number on its computer."""
    return f"cuda:{os.environ['LOCAL_RANK']}" if name == "cuda" and "LOCAL_RANK" in os.environ else name


@contextmanager
def together(device: torch.device) -> Iterator[None]:
    """Joins them for the time of the work, over nccl between GPUs and gloo between CPUs."""
    if started() == 1:
        yield
        return
    from torch import distributed

    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        distributed.destroy_process_group()
