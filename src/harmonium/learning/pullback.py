"""From statistics to gradients of the learnable parameters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine, Hamiltonian, Statistics


class _End(torch.autograd.Function):
    """A number whose gradients are what it was made with; given to ``grad``, they make torch import sympy."""

    @staticmethod
    def forward(ctx: Any, gradients: Sequence[Tensor], *values: Tensor) -> Tensor:
        ctx.gradients = gradients
        return values[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.gradients


def differentiable() -> AbstractContextManager[object]:
    """Inside, torch records what it is to differentiate, whatever the caller switched off."""
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else torch.enable_grad()


def pullback(
    machine: BoltzmannMachine, delta: Statistics, hamiltonian: Hamiltonian | None = None
) -> dict[str, Tensor]:
    """The gradient of the mean log-likelihood from the difference of expected statistics (FORMULAS §2).

    The map from learnable parameters to (θ, J) is differentiated by torch, so a new parametrisation needs no
    gradient of its own; where the map is the identity the difference itself comes back, without a copy.

    Args:
        machine: the machine.
        delta: E[S | v] - E[S].
        hamiltonian: the machine's own, made with gradients enabled, where there is one already.

    Returns:
        For the name of every learnable parameter, a tensor of its shape. Frozen parameters are left out.

    Raises:
        ValueError: a learnable parameter that torch cannot differentiate by.
    """
    named = {name: p for name, p in machine.named_parameters() if p.requires_grad}
    if hamiltonian is None:
        with differentiable():
            hamiltonian = machine.hamiltonian()
    outputs = [p for theta in hamiltonian.thetas for p in theta] + list(hamiltonian.couplings)
    gradients = [g for theta in delta.thetas for g in theta] + delta.couplings
    names = {id(p): name for name, p in named.items()}
    pulled = {names[id(p)]: g for p, g in zip(outputs, gradients, strict=True) if id(p) in names}
    mapped = [
        (p, g) for p, g in zip(outputs, gradients, strict=True) if p.requires_grad and id(p) not in names
    ]
    if mapped:
        rest = [name for name in named if name not in pulled]
        values, own = zip(*mapped, strict=True)
        with differentiable():
            end = _End.apply([g.detach() for g in own], *values)  # type: ignore[no-untyped-call]
            more = torch.autograd.grad(end, [named[name] for name in rest], allow_unused=True)
        pulled |= {name: g for name, g in zip(rest, more, strict=True) if g is not None}
    lost = [name for name in named if name not in pulled]
    if lost:
        raise ValueError(
            f"machine: expected parameters that torch can differentiate by, received {lost[0]}; "
            "a machine that is to learn has to be made outside torch.inference_mode"
        )
    return {name: pulled[name] for name in named}


def centred_pullback(
    machine: BoltzmannMachine,
    delta: Statistics,
    offsets: Sequence[Tensor],
    hamiltonian: Hamiltonian | None = None,
) -> dict[str, Tensor]:
    """The enhanced gradient, as of a machine in centred units (Cho et al. 2011; Melchior et al. 2016).

    With offsets μ_l the location parameters are written b_l = b'_l - Σ_neighbours W μ, a linear change of
    coordinates. This is the gradient in the new coordinates, brought back to the old ones: an ascent
    direction of the log-likelihood, not its gradient, and the same whichever of its two states a binary unit
    calls 1. It is linear in delta, and so unbiased where delta is, if the offsets do not depend on the noise
    of delta. The machine itself is not changed.

    A frozen location has no b'_l, and frozen couplings move no b_l: what is left is the gradient in the new
    coordinates of the parameters that are learned.

    Args:
        machine: the machine.
        delta: E[S | v] - E[S].
        offsets: μ_l for every layer, (width_l,); ``rules.centred`` says which a rule takes.
        hamiltonian: as in ``pullback``.

    Returns:
        As ``pullback``.
    """
    direction = pullback(machine, delta, hamiltonian)
    locations = [
        direction[f"layers.{l}.{layer.location}"]
        if getattr(layer, layer.location).requires_grad
        else torch.zeros_like(offset)
        for l, (layer, offset) in enumerate(zip(machine.layers, offsets, strict=True))
    ]
    scaled = [
        offset if layer.scale is None else offset * layer.scale.detach()
        for layer, offset in zip(machine.layers, offsets, strict=True)
    ]
    learned = [
        (f"couplings.{edge}.weight", coupling, *machine.edges[edge])
        for edge, coupling in enumerate(machine.couplings)
        if coupling.weight.requires_grad
    ]
    for name, _, l, m in learned:
        rows = torch.stack((locations[l].flatten(), scaled[l]), 1)
        columns = torch.stack((scaled[m], locations[m].flatten()))
        direction[name].addmm_(rows, columns, alpha=-1)
    for name, coupling, l, m in learned:
        W = direction[name] = coupling.within(direction[name])
        locations[l] -= (W @ scaled[m]).view_as(locations[l])
        locations[m] -= (W.t() @ scaled[l]).view_as(locations[m])
    return direction
