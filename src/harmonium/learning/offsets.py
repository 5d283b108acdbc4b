"""The offsets of centring: the means of every layer given the data, without noise."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium.machine import Hamiltonian, Statistics

_SWEEPS = 2  # docs/design_notes.md, "Centring", has what more of them bring


def offsets(hamiltonian: Hamiltonian, v: Tensor, clamped: Statistics) -> list[Tensor]:
    """μ_l: the mean over the batch of every layer given the data.

    They depend on the machine and the batch alone and not on the noise of the estimate, so that centring,
    which is linear in the estimate at fixed offsets, leaves an unbiased one unbiased. With one hidden layer
    they are exact, and the clamped phase holds them already. Deeper machines take two upward sweeps of naive
    mean field, from hidden units that are pure noise: the nearer to the means the better the coordinates, but
    the direction is right with any.

    Args:
        hamiltonian: the machine.
        v: data, (batch, width_0).
        clamped: E[S | v].

    Returns:
        For every layer, (width_l,).
    """
    if len(hamiltonian.layers) == 2:
        return clamped.means()
    means = [v]
    for layer, J in zip(hamiltonian.layers[1:], hamiltonian.couplings, strict=True):
        # The middle of the states, so that it is the same units whichever of two states is called 1.
        no_field = torch.zeros(1, J.shape[1], dtype=v.dtype, device=v.device)
        means.append(layer.moments(no_field, theta=layer.reference()).mean)
    for _ in range(_SWEEPS):
        for l in range(1, len(means)):
            means[l] = hamiltonian.mean(l, hamiltonian.field(l, means))
    return [mean.mean(0) for mean in means]
