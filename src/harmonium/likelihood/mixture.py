"""The visible law of a small machine as the mixture of Gaussians that it is."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine

MAX_LOG2_COMPONENTS = 20


class Mixture(NamedTuple):
    """A mixture of Gaussians with one diagonal covariance.

    Attributes:
        log_weights: normalised, (components,).
        means: (components, n_0).
        variance: of every unit, in every component, (n_0,).
    """

    log_weights: Tensor
    means: Tensor
    variance: Tensor


@torch.no_grad()
def mixture(machine: BoltzmannMachine) -> Mixture:
    """The density of Gaussian visible units, a component for every state of the hidden layer, in float64.

    Args:
        machine: Gaussian visible units and one hidden layer of discrete units with at most 2^20 joint states.

    Raises:
        ValueError: another machine.
    """
    layers = machine.layers
    if len(layers) != 2 or not layers[0].gaussian or layers[1].n_states is None:
        raise ValueError(
            "machine: expected Gaussian visible units and one hidden layer of discrete units, "
            f"received {', '.join(layer.kind for layer in layers)}"
        )
    if layers[1].log2_states > MAX_LOG2_COMPONENTS:
        raise ValueError(
            f"machine: expected at most 2^{MAX_LOG2_COMPONENTS} joint hidden states, "
            f"received 2^{layers[1].log2_states:.4g}"
        )
    hamiltonian = machine.hamiltonian().to(torch.float64)
    each = torch.arange(layers[1].n_states, device=machine.device)
    digits = torch.cartesian_prod(*[each] * layers[1].n_units).view(-1, layers[1].n_units)
    h = layers[1].from_digits(digits).to(torch.float64)
    log_weights = -hamiltonian.free_energy([h, h], (0,))
    means = hamiltonian.mean(0, hamiltonian.field(0, [h, h]))
    return Mixture(log_weights.log_softmax(0), means, 1 / hamiltonian.thetas[0][1])
