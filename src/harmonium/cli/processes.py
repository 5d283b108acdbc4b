"""One command in several processes, as torchrun starts them."""

from __future__ import annotations

import os


def started() -> int:
    """Returns the number of processes that torchrun started, 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def leads() -> bool:
    """Returns whether this process checks, prints and writes for all."""
    return started() == 1 or os.environ.get("RANK") == "0"


def device(name: str | None) -> str | None:
    """The device of this one: "cuda" is the GPU that has its number on its computer."""
    return f"cuda:{os.environ['LOCAL_RANK']}" if name == "cuda" and "LOCAL_RANK" in os.environ else name
