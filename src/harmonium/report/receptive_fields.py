"""Receptive fields of the units in the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium.machine import BoltzmannMachine

_WARM, _COOL = np.array([178, 24, 43]), np.array([33, 102, 172])


def receptive_fields(machine: BoltzmannMachine) -> dict[int, Tensor]:
    """Returns the receptive fields: couplings, or their products on the shortest paths through layers.

    Returns:
        For each hidden layer (units, visible_width); of a machine without hidden layers the couplings of its
        visible ones.
    """
    edges = list(machine.hamiltonian().edges)
    eye = torch.eye(machine.visible_width, dtype=machine.dtype, device=machine.device)
    own = {l: x.T for l, x in machine.split(eye).items()}  # (units, visible_width)
    if not machine.hidden:
        found = {l: torch.zeros_like(x) for l, x in own.items()}
        for l, m, J in edges:
            found[l] += J @ own[m]
            found[m] += J.T @ own[l] if l != m else 0
        return found
    reached, frontier = dict(own), set(own)
    while frontier:
        following: dict[int, Tensor] = {}
        for l, m, J in edges:
            for near, far, W in ((l, m, J.T), (m, l, J)):
                if near in frontier and far not in reached:
                    following[far] = following.get(far, 0) + W @ reached[near]
        reached |= following
        frontier = set(following)
    return {l: reached[l] for l in machine.hidden}


def signed_pixels(rows: NDArray[Any], shape: Sequence[int]) -> NDArray[np.uint8]:
    """Images of signed numbers, each on its own scale: white is 0, red positive, blue negative.

    Numbers of three channels are colours themselves, grey is 0.

    Args:
        rows: (n, h * w * channels).
        shape: (h, w) or (h, w, channels) with 1 or 3 channels.

    Returns:
        (n, h, w, 3).
    """
    size = np.abs(rows).max(axis=1, keepdims=True)
    share = (rows / np.where(size > 0, size, 1)).reshape(len(rows), *shape[:2], -1)
    if share.shape[3] == 3:
        pixels = 127.5 * (share + 1)
    else:
        pixels = 255 + np.abs(share) * (np.where(share > 0, _WARM, _COOL) - 255)
    return np.rint(pixels).clip(0, 255).astype(np.uint8)
