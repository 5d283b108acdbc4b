"""Where a machine starts. Every function fills parameters in place and returns nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from harmonium import _checks, _random
from harmonium.data import Rows
from harmonium.layers import Layer

_ROWS = 4096

if TYPE_CHECKING:
    from harmonium.machine.boltzmann import BoltzmannMachine


@torch.no_grad()
def normal_(machine: BoltzmannMachine, std: float, generator: torch.Generator) -> None:
    """Couplings W ~ N(0, std²)."""
    _checks.real(std, "std", low=0.0)
    _checks.generator(generator, machine.device)
    for W in machine.couplings:
        W.copy_(_random.normal(W.shape, generator, W.dtype) * std)


@torch.no_grad()
def orthogonal_(machine: BoltzmannMachine, gain: float, generator: torch.Generator) -> None:
    """Couplings with orthogonal rows or columns of norm ``gain`` (Taniguchi et al. 2023)."""
    _checks.real(gain, "gain", low=0.0)
    _checks.generator(generator, machine.device)
    for W in machine.couplings:
        nn.init.orthogonal_(W, gain=gain, generator=generator)


@torch.no_grad()
def logistic_biases_(
    machine: BoltzmannMachine, generator: torch.Generator, location: float = 0.0, scale: float = 0.5
) -> None:
    """Biases (means, for Gaussian layers) ~ Logistic(location, scale) (Taniguchi et al. 2023)."""
    _checks.real(location, "location")
    _checks.real(scale, "scale", low=0.0)
    _checks.generator(generator, machine.device)
    for layer in machine.layers:
        parameter = getattr(layer, layer.location)
        noise = _random.uniform(parameter.shape, generator, torch.float64)
        tiny = torch.finfo(torch.float64).tiny
        parameter.copy_(location + scale * torch.logit(noise.clamp(min=tiny)))


def visible_from_data_(machine: BoltzmannMachine, rows: Rows) -> None:
    """Visible parameters that give the uncoupled visible units the data's moments (see ``fit_``).

    Raises:
        TypeError: not ``Rows``.
        ValueError: rows of another width, or of values outside the support of the visible units.
    """
    _checks.instance(rows, "rows", Rows, "harmonium.data.Rows")
    layer = machine.layers[0]
    if rows.width != layer.width:
        raise ValueError(f"rows: expected {layer.width} columns for {layer}, received {rows.width}")
    for chunk in rows.chunks(_ROWS):
        layer.check(chunk, "rows")
    mean, variance = rows.mean_variance()
    fit_(layer, mean, variance, len(rows))


@torch.no_grad()
def fit_(layer: Layer, mean: Tensor, variance: Tensor, rows: int) -> None:
    """A layer's parameters from moments seen in ``rows`` rows, without couplings.

    Discrete units are smoothed as if one row of uniform noise had been seen too, so that a unit that never
    changed gets a finite bias; real units that never changed get variance 1.

    Args:
        layer: what to fill.
        mean: (width,).
        variance: (width,).
        rows: rows that the moments come from.
    """
    # In float64, so that one row of noise among many millions still counts.
    device = next(layer.parameters()).device
    mean, variance = mean.to(device, torch.float64), variance.to(device, torch.float64)
    if layer.discrete:
        uniform = layer.moments(torch.zeros_like(mean), theta=layer.reference()).mean
        mean = (mean * rows + uniform) / (rows + 1)
    layer.fit_(mean, torch.where(variance > 0, variance, 1.0))
