"""Where a machine starts. Every function fills parameters in place and returns nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from harmonium import _checks, _random
from harmonium.data import Rows
from harmonium.layers import Layer, Theta

_ROWS = 4096
_SEEN = 1024  # rows that tell how far a hidden unit's field varies
# Of a Gaussian unit's variance in the data: what it keeps for itself, and at most what hidden units explain.
_OWN, _EXPLAINED = 0.25, 0.25
# Many hidden units a visible one add up to a Gaussian, the saddle again, unless their own variance falls too.
_CROWDED = 4.0  # times visible over hidden units bounds the fraction kept
# Deviation of a hidden unit's field over the rows, in inverse deviations of the unit: 1 for 0/1 units.
_SLOPE = 0.5

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
def from_data_(machine: BoltzmannMachine, rows: Rows, generator: torch.Generator) -> None:
    """Where learning starts: ``visible_from_data_``, and beside Gaussian visible units off their saddle.

    Gaussian units that have the data's variance, beside couplings near 0, are a saddle of the likelihood:
    hidden units that do not respond are not taught to, and where the columns are uncorrelated, as in a
    mixture, nothing is ever learnt. So where discrete hidden units stand beside Gaussian visible ones, the
    visible units keep a quarter of the data's variance, less beside more than 16 hidden units each, and every
    hidden unit has its threshold at a row drawn for it, b = -v·J, in a random direction along which its field
    varies by 1 over the rows (½ for spins), or by less where many hidden units would else explain more than a
    quarter of the variance.
    Visible means make up for what the hidden units add (docs/design_notes.md, "Where to start").

    Args:
        machine: layers and couplings above the first hidden layer stay as they are.
        rows: the data.
        generator: draws directions and rows; not read for other visible or hidden units.

    Raises:
        TypeError, ValueError: as ``visible_from_data_``.
    """
    visible_from_data_(machine, rows)
    _checks.generator(generator, machine.device)
    visible, hidden = machine.layers[:2]
    if not visible.gaussian or not hidden.discrete:
        return
    mean, variance = (x.to(machine.device) for x in rows.mean_variance())
    variance = torch.where(variance > 0, variance, 1.0)
    kept = min(_OWN, _CROWDED * visible.n_units / hidden.n_units)
    floor = float(getattr(visible, "variance_floor", 0.0))
    own = floor + kept * (variance - floor)
    unit = hidden.moments(torch.zeros_like(hidden.reference()[0]), theta=hidden.reference()).variance.double()

    def taken(indices: Tensor) -> Tensor:
        return rows.take(indices.cpu()).to(machine.device, torch.float64)

    seen = taken(_random.integers(len(rows), (_SEEN,), generator)) - mean
    J = _random.normal((visible.width, hidden.width), generator, torch.float64) / variance.sqrt().unsqueeze(1)
    spread = (seen @ J).std(0)
    J *= _SLOPE / (torch.where(spread > 0, spread, 1.0) * unit.sqrt())
    explained = float(((J * own.unsqueeze(1)).square() @ unit / variance).mean())
    J *= min(1.0, _EXPLAINED / explained) ** 0.5

    points = taken(_random.integers(len(rows), (hidden.n_units,), generator))
    points = points.repeat_interleave(hidden.width // hidden.n_units, 0)
    thresholds = -(points * J.t()).sum(1)
    location = getattr(hidden, hidden.location)
    location.copy_(thresholds.view_as(location))
    response = hidden.moments((seen + mean) @ J, theta=(thresholds,)).mean.mean(0)
    visible.fit_((mean - own * (J @ response),), own)
    machine.couplings[0].copy_(J if visible.scale is None else J / visible.scale.unsqueeze(1))


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
