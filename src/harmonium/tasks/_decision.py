"""From means to states."""

from __future__ import annotations

from torch import Tensor

from harmonium.layers import Layer


def most_probable(layer: Layer, mean: Tensor) -> Tensor:
    """Of discrete units with these means, (..., width), the most probable state; of real units the mean."""
    if not layer.discrete:
        return mean
    # Against the means of pure noise, whose units are uniform.
    uniform = layer.moments(mean * 0, theta=layer.reference()).mean
    return layer.mode(mean - uniform, layer.reference())
