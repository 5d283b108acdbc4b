"""Compiled code on a CPU: whether it is there, and how work is dealt to threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import torch

COMPILED = find_spec("numba") is not None
"""Whether compiled code can be had (the extra ``fast``)."""
COMPILED_VALUES = ((0.0, 1.0), (-1.0, 1.0))
"""The lower and upper values of two-valued units that compiled code knows."""


def share_out(work: Callable[[int], object], shares: int) -> None:
    """Runs work(0), …, work(shares - 1) on as many threads as torch uses."""
    threads = min(torch.get_num_threads(), shares)
    if threads == 1:
        for share in range(shares):
            work(share)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(shares)))
