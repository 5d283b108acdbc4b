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
    """Couplings W ~ N(0, std²), within the pattern of each."""
    _checks.real(std, "std", low=0.0)
    _checks.generator(generator, machine.device)
    for coupling in machine.couplings:
        W = coupling.weight
        coupling.fill_(_random.normal(W.shape, generator, W.dtype) * std)


@torch.no_grad()
def orthogonal_(machine: BoltzmannMachine, gain: float, generator: torch.Generator) -> None:
    """Couplings with orthogonal rows or columns of norm ``gain`` (Taniguchi et al. 2023).

    Entries outside the pattern of a coupling are then set to 0.
    """
    _checks.real(gain, "gain", low=0.0)
    _checks.generator(generator, machine.device)
    for coupling in machine.couplings:
        values = torch.empty_like(coupling.weight)
        coupling.fill_(nn.init.orthogonal_(values, gain=gain, generator=generator))


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
    width = machine.visible_width
    if rows.width != width:
        received = ", ".join(str(machine.layers[l]) for l in machine.visible)
        raise ValueError(f"rows: expected {width} columns for {received}, received {rows.width}")
    sums: dict[int, list[Tensor]] = {}
    for chunk in rows.chunks(_ROWS):
        machine.check_rows(chunk, "rows")
        for l, x in machine.split(chunk).items():
            parts = [t.sum(0, dtype=torch.float64) for t in machine.layers[l].statistics(x)]
            sums[l] = (
                [total + part for total, part in zip(sums[l], parts, strict=True)] if l in sums else parts
            )
    # The mean by the pass that also gives the variance: both are exact for a column that never changes.
    moments = [machine.split(x.unsqueeze(0)) for x in rows.mean_variance()]
    for l in machine.visible:
        mean, variance = (part[l].squeeze(0) for part in moments)
        expected = (mean, *(total / len(rows) for total in sums[l][1:]))
        fit_(machine.layers[l], expected, variance, len(rows))


@torch.no_grad()
def fit_(layer: Layer, expected: Theta, variance: Tensor, rows: int) -> None:
    """A layer's parameters from statistics seen in ``rows`` rows, without couplings.

    Bounded units are smoothed as if one row of pure noise had been seen too, so that a unit that never
    changed gets finite parameters; unbounded ones that never changed get variance 1.

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
    if layer.bounded:
        reference = tuple(t.to(torch.float64) for t in layer.reference())
        noise = layer.expected_statistics(torch.zeros_like(variance), theta=reference)
        expected = tuple((t * rows + u) / (rows + 1) for t, u in zip(expected, noise, strict=True))
    layer.fit_(expected, torch.where(variance > 0, variance, 1.0))
