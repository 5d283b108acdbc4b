"""Layers with inner edges whose units compiled code draws in turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from harmonium import _random, backends
from harmonium.backends import calls, choice
from harmonium.machine.hamiltonian import Hamiltonian


def layers_in_turn(law: Hamiltonian, rows: int) -> set[int]:
    """Returns the layers that ``draw_in_turn`` serves; parts of others are drawn by ``Hamiltonian.draw``.

    Args:
        law: the machine in natural parameters.
        rows: of a batch of states.
    """
    if backends.current() != "float32":  # compiled sums do not round couplings
        return set()
    return {l for l in law.graph.in_turn if choice.in_turn(law, l, rows)}


def draw_in_turn(
    law: Hamiltonian,
    layer: int,
    states: Sequence[Tensor],
    generator: torch.Generator,
    noise: Tensor | None = None,
) -> Tensor:
    """Draws the units of a layer one after the other, each given the present states of all others.

    It is what draws of all parts of the layer, in the order of a sweep, are.

    Args:
        law: the machine in natural parameters, with what is held: held units stay.
        layer: one with inner edges, of categorical units or of units with two values.
        states: for each layer (batch, width_m).
        generator: source of noise.
        noise: uniform variates in its place, (n_units, batch).

    Returns:
        The state of the layer, (batch, width_l), a new tensor.
    """
    kind, bias = law.layers[layer], law.thetas[layer][0].contiguous()
    J = law.J[law.graph.inner[layer]].contiguous()
    x, mask = law.apply_clamp(layer, states[layer]).contiguous(), law.mask(layer)
    drawn, nothing = torch.empty_like(x), x.new_empty(0, 0)
    others = {joint.other for joint in law.graph.joints[layer]} - {layer}
    outside = law.field(layer, states, others).contiguous() if others else nothing
    held = np.empty((0, 0), np.uint8)
    if mask is not None:
        held = kind.by_unit(mask)[..., 0].contiguous().numpy().view(np.uint8)
    rest = (
        *(outside, law.beta_times(x.new_ones(len(x))), held, *law.graph.in_turn[layer]),
        *(_random.key(generator), nothing if noise is None else noise, drawn),
    )
    if kind.one_hot:
        calls.over_lots("sweep_categorical", len(x), x, kind.n_states, J, bias, *rest)
    else:
        low, high = np.array(kind.two_values, dtype=x.numpy().dtype)
        calls.over_lots("sweep_two_valued", len(x), x, J, bias, low, high, *rest)
    return drawn
