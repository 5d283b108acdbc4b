"""From means to states."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium.layers import Layer


def nearest_state(layer: Layer, mean: Tensor) -> Tensor:
    """Of discrete units with these means, (..., width), the nearest state; of real units the mean.

    Of two-valued and one-hot units that is the most probable state. Of two as near it is the upper.
    """
    if not layer.discrete:
        return mean
    values = layer.values().to(mean)
    if layer.width == layer.n_units:
        middles = (values[1:, 0] + values[:-1, 0]) / 2
        return layer.from_digits(torch.bucketize(mean.contiguous(), middles, right=True)).to(mean)
    closeness = layer.by_unit(mean) @ values.t() - 0.5 * values.square().sum(-1)
    return layer.from_digits(len(values) - 1 - closeness.flip(-1).argmax(-1)).to(mean)
