"""Patterns of missing values: which columns of which rows are to be filled in."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium import _checks, _random

_SIDES = ("upper", "lower", "left", "right")


def missing_at_random(rows: int, columns: int, fraction: float, *, seed: int | torch.Generator = 0) -> Tensor:
    """Every entry missing with the same probability, independently: (rows, columns), bool.

    Args:
        rows: Number of rows, at least 1.
        columns: Number of columns, at least 1.
        fraction: the probability, in [0, 1].
        seed: an int or a generator.
    """
    shape = (_checks.positive_int(rows, "rows"), _checks.positive_int(columns, "columns"))
    fraction = _checks.real(fraction, "fraction", 0.0, 1.0)
    return _random.uniform(shape, _random.as_generator(seed)) < fraction


def missing_half(rows: int, image_shape: tuple[int, int], side: str) -> Tensor:
    """One half of every image missing: (rows, height * width), bool.

    Args:
        rows: Number of rows, at least 1.
        image_shape: (height, width).
        side: "upper", "lower", "left" or "right"; of an odd number of lines the middle one stays.
    """
    _checks.positive_int(rows, "rows")
    _checks.one_of(side, "side", _SIDES)
    if len(image_shape) != 2:
        raise ValueError(f"image_shape: expected (height, width), received {image_shape}")
    height, width = (_checks.positive_int(side, "image_shape") for side in image_shape)
    mask = torch.zeros(height, width, dtype=torch.bool, device="cpu")
    tall, wide = height // 2, width // 2
    half = {"upper": mask[:tall], "lower": mask[height - tall :], "left": mask[:, :wide]}
    half.get(side, mask[:, width - wide :])[:] = True
    return mask.flatten().repeat(rows, 1)
