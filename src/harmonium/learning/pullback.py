"""From statistics to gradients of the learnable parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harmonium.layers import Layer
from harmonium.machine import BoltzmannMachine, Statistics


def pullback(machine: BoltzmannMachine, delta: Statistics) -> dict[str, Tensor]:
    """The gradient of the mean log-likelihood from the difference of expected statistics (FORMULAS §2).

    The map from learnable parameters to (θ, J) is differentiated by torch, so a new parametrisation needs no
    gradient of its own; where the map is the identity the difference itself comes back, without a copy.

    Args:
        machine: the machine.
        delta: E[S | v] - E[S].

    Returns:
        For the name of every learnable parameter, a tensor of its shape. Frozen parameters are left out.
    """
    named = {name: p for name, p in machine.named_parameters() if p.requires_grad}
    with torch.enable_grad():
        hamiltonian = machine.hamiltonian()
    outputs = [p for theta in hamiltonian.thetas for p in theta] + list(hamiltonian.couplings)
    gradients = [g for theta in delta.thetas for g in theta] + delta.couplings
    learnt = [(p, g.to(p.dtype)) for p, g in zip(outputs, gradients, strict=True) if p.requires_grad]
    pulled = torch.autograd.grad(
        [p for p, _ in learnt],
        list(named.values()),
        [g for _, g in learnt],
        materialize_grads=True,
        allow_unused=True,
    )
    return dict(zip(named, pulled, strict=True))


def centred_pullback(
    machine: BoltzmannMachine, delta: Statistics, clamped_means: Sequence[Tensor]
) -> dict[str, Tensor]:
    """The enhanced gradient, as of a machine in centred units (Cho et al. 2011; Melchior et al. 2016).

    With offsets μ_l, the midpoint of the clamped and the free mean of layer l, coupling statistics become
    (x_l - μ_l) ⊗ (x_{l+1} - μ_{l+1}), and the location parameters take back what the offsets moved. The
    direction does not depend on which of its two states a binary unit calls 1; the machine itself is not
    changed.

    Args:
        machine: the machine, with no frozen parameter.
        delta: E[S | v] - E[S]; its coupling statistics are overwritten.
        clamped_means: E[x_l | v] for every layer.

    Returns:
        As ``pullback``; an ascent direction of the log-likelihood, not its gradient.
    """
    shifts = [theta[0] for theta in delta.thetas]
    offsets = [mean - shift / 2 for mean, shift in zip(clamped_means, shifts, strict=True)]
    for l, pair in enumerate(delta.couplings):
        pair.addr_(shifts[l], offsets[l + 1], alpha=-1).addr_(offsets[l], shifts[l + 1], alpha=-1)
    direction = pullback(machine, delta)
    for l, layer in enumerate(machine.layers):
        location = direction[f"layers.{l}.{layer.location}"]
        for other, below in ((l - 1, l - 1), (l + 1, l)):
            if not 0 <= other < len(offsets):
                continue
            W = direction[f"couplings.{below}"]
            offset = _scaled(machine.layers[other], offsets[other].to(W.dtype))
            moved = W.t() @ offset if other < l else W @ offset
            location -= moved.view_as(location)
    return direction


def _scaled(layer: Layer, x: Tensor) -> Tensor:
    return x if layer.scale is None else x * layer.scale.detach()
