"""Where a machine starts. Every function fills parameters in place and returns nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from harmonium import _checks, _random
from harmonium.data import Rows
from harmonium.layers import Layer, Theta

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
    sums: list[Tensor] = []
    for chunk in rows.chunks(_ROWS):
        layer.check(chunk, "rows")
        parts = [t.sum(0, dtype=torch.float64) for t in layer.statistics(chunk)]
        sums = [total + part for total, part in zip(sums, parts, strict=True)] if sums else parts
    # The mean by the pass that also gives the variance: both are exact for a column that never changes.
    mean, variance = rows.mean_variance()
    fit_(layer, (mean, *(total / len(rows) for total in sums[1:])), variance, len(rows))


@torch.no_grad()
def fit_(layer: Layer, expected: Theta, variance: Tensor, rows: int) -> None:
    """A layer's parameters from statistics seen in ``rows`` rows, without couplings.

    Kinds that say so are smoothed as if one row of pure noise had been seen too, so that a unit that never
    changed gets finite parameters; of others such a unit gets variance 1 (``Layer.smoothed``).

    Args:
        layer: what to fill.
        expected: mean statistics t(x), in the order of ``layer.natural()``, each (width,).
        variance: of x, (width,).
        rows: rows that they come from.
    """
    # In float64, so that one row of noise among many millions still counts.
    device = next(layer.parameters()).device
    expected = tuple(t.to(device, torch.float64) for t in expected)
    variance = variance.to(device, torch.float64)
    if layer.smoothed:
        reference = tuple(t.to(torch.float64) for t in layer.reference())
        noise = layer.expected_statistics(torch.zeros_like(variance), theta=reference)
        expected = tuple((t * rows + u) / (rows + 1) for t, u in zip(expected, noise, strict=True))
    layer.fit_(expected, torch.where(variance > 0, variance, 1.0))
