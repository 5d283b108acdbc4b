"""Noisy observations of units: the evidence of each is an addition to the unit's natural parameters."""

from __future__ import annotations

from math import inf, log
from typing import final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.data import Encoder, Identity, Standardise
from harmonium.layers import Layer, Theta
from harmonium.tables import Line, Table


@final
class SymmetricChannel:
    """A discrete unit is seen in another of its states, any of them alike, with probability p.

    For {0, 1} the evidence is the field D = ln((1-p)/p) (2y-1) (FORMULAS §6).

    Args:
        flip_probability: p, in [0, 1]; 0 is certainty.

    Attributes:
        exact: True if observations are free of noise.
    """

    def __init__(self, flip_probability: float) -> None:
        self.p = _checks.real(flip_probability, "flip_probability", 0.0, 1.0)
        self.exact = self.p == 0

    def evidence(self, layer: Layer, noisy: Tensor) -> Theta:
        """Returns what observations, (batch, width), add to the layer's θ in the posterior distribution."""
        others = (layer.n_states or 2) - 1
        gain = inf if self.p == 0 else -inf if self.p == 1 else log((1 - self.p) * others / self.p)
        if layer.two_values is None:  # one-hot
            return (noisy * gain,)
        low, high = layer.two_values
        # ln p(y | high) - ln p(y | low), for a step from low to high.
        return (torch.where(noisy == high, gain, -gain).to(noisy.dtype) / (high - low),)

    def check(self, layer: Layer, noisy: Tensor) -> None:
        """Refuses observations, (batch, width), that the channel cannot make, or an unsuitable layer."""
        if not layer.discrete:
            raise ValueError(f"flip_probability: expected discrete visible units, the machine has {layer}")
        if not self.exact and layer.two_values is None and layer.width == layer.n_units:
            raise ValueError(
                "flip_probability: expected two-valued or one-hot visible units, of which a flip is a "
                f"field, received {self.p:g} for {layer}; 0 with NaN for what is not known will do"
            )
        if self.p == 1:
            raise ValueError("flip_probability: expected less than 1, received 1.0")
        layer.check(noisy, "noisy")

    def corrupt(self, layer: Layer, x: Tensor, generator: torch.Generator) -> Tensor:
        """Draws observations of states, (batch, width)."""
        states = layer.n_states or 0
        table = layer.values().to(x)
        units = layer.by_unit(x)
        present = (units.unsqueeze(-2) == table).all(-1).int().argmax(-1)
        shift = 1 + _random.integers(states - 1, present.shape, generator)
        flips = _random.uniform(present.shape, generator, torch.float64) < self.p
        return table[torch.where(flips, (present + shift) % states, present)].flatten(-2)


@final
class GaussianChannel:
    """y = x + std · N(0, 1): evidence y/σ² for x and 1/σ² for -x²/2 (``Layer.square``).

    Args:
        std: σ of the noise, at least 0, a number or one for each column; 0 is certainty.
    """

    def __init__(self, std: float | Numbers) -> None:
        if isinstance(std, Tensor | np.ndarray):
            std = _checks.tensor(std, "noise_std", torch.float64)
            _checks.finite(std, "noise_std")
            if bool((std <= 0).any()):
                raise ValueError(f"noise_std: expected numbers above 0, received {float(std.min()):g}")
        else:
            std = _checks.real(std, "noise_std", 0.0)
        self.std = std
        self.exact = not isinstance(std, Tensor) and std == 0

    def evidence(self, layer: Layer, noisy: Tensor) -> Theta:
        """Returns what observations, (batch, width), add to θ, as ``SymmetricChannel.evidence`` does."""
        precision = torch.as_tensor(self.std).to(noisy).square().reciprocal()
        square = precision.expand_as(noisy)
        first, *rest = layer.square or ()
        return (noisy * precision + square * first, *(square * part for part in rest))

    def check(self, layer: Layer, noisy: Tensor) -> None:
        """Refuses observations, (batch, width), that the channel cannot make, or an unsuitable layer."""
        if layer.square is None or (layer.n_states or 2) > 2:
            raise ValueError(f"noise_std: expected real or two-state visible units, received {layer}")
        if self.exact:
            layer.check(noisy, "noisy")

    def corrupt(self, layer: Layer, x: Tensor, generator: torch.Generator) -> Tensor:
        """Draws observations of states, (batch, width)."""
        return x + _random.normal(x.shape, generator, x.dtype) * torch.as_tensor(self.std).to(x)


Channel = SymmetricChannel | GaussianChannel


def noise_in_states(std: float, encoder: Encoder) -> float | Tensor:
    """Converts a standard deviation of noise from the data's units to those of the encoded states.

    Returns:
        A number, or one for each column, (width,).

    Raises:
        ValueError: an encoder that is not a shift and a scale.
    """
    _checks.real(std, "noise_std", 0.0)
    if isinstance(encoder, Identity):
        return std
    scale: float | tuple[float, ...]
    columns = encoder.columns if isinstance(encoder, Table) else ()
    lines = [c for c in columns if isinstance(c, Line)]
    if isinstance(encoder, Standardise):
        scale = encoder.scale
    elif len(lines) == len(columns) and {c.kind for c in lines} == {"gaussian"}:
        scale = tuple(line.scale for line in lines)
    else:
        received = f"columns {encoder.kinds}" if isinstance(encoder, Table) else type(encoder).__name__
        raise ValueError(
            'noise_std: expected data that are standardised at most, as columns of the kind "gaussian" '
            f"(visible or kinds) are, and not coded along a curve, received {received}"
        )
    if isinstance(scale, float) or std == 0:
        return std / scale if isinstance(scale, float) else 0.0
    return std / torch.tensor(scale, device="cpu")
