"""Overlaps of replicas: how alike the states of independent chains are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium._checks import Numbers
from harmonium.machine import BoltzmannMachine


@torch.no_grad()
def overlaps(
    machine: BoltzmannMachine,
    states: Sequence[Numbers] | Numbers,
    others: Sequence[Numbers] | Numbers | None = None,
) -> Tensor:
    """Returns overlaps q = Σ s_i s'_i / N of independent replicas, whose distribution is P(q).

    Units with two values count as s = ±1. Of a unit with k categories the term is (k [same] - 1) / (k - 1),
    so that replicas without any memory of each other have a mean of 0, and equal ones have q = 1.

    Args:
        machine: Machine of units with two values or categories, in the layers that are given.
        states: States of all layers, each (chains, width_l), such as ``chains.run`` returns for independent
            chains; or visible rows, (chains, visible_width), and overlaps are those of visible units.
        others: as many states of other chains, compared row by row; None: all pairs of different rows.

    Returns:
        (chains,) or, without ``others``, (chains · (chains - 1) / 2,), float64, in [-1, 1].

    Raises:
        ValueError: other units, states that do not fit, or less than two chains without ``others``.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Spin(4)], edges=[(0, 0)])
        >>> hm.chains.overlaps(machine, torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]]))
        tensor([ 0.5000, -1.0000, -0.5000], dtype=torch.float64)
    """
    first = as_vectors(machine, states, "states")
    if others is not None:
        second = as_vectors(machine, others, "others")
        if second.shape != first.shape:
            raise ValueError(
                f"others: expected {len(first)} chains, of the same layers, received {len(second)}"
            )
        return (first * second).sum(1)
    if len(first) < 2:
        raise ValueError(f"states: expected at least two chains, or others, received {len(first)}")
    rows, columns = torch.triu_indices(len(first), len(first), 1, device=first.device)
    pairs: Tensor = (first @ first.t())[rows, columns]
    return pairs


def as_vectors(
    machine: BoltzmannMachine,
    states: Sequence[Numbers] | Numbers,
    name: str,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Returns vectors whose products are overlaps, (chains, columns)."""
    if not isinstance(states, Tensor | np.ndarray):
        layers = range(len(machine.layers))
        if len(states) != len(layers):
            raise ValueError(f"{name}: expected states of {len(layers)} layers, received {len(states)}")
        parts = dict(zip(layers, states, strict=True))
    else:
        v = machine.visible_rows(states, name)
        parts = dict(machine.split(v))
    units = sum(machine.layers[l].n_units for l in parts)
    vectors = []
    for l, x in parts.items():
        layer, x = machine.layers[l], _checks.tensor(x, name, dtype, machine.device)
        if x.dim() != 2 or x.shape[1] != layer.width:
            raise ValueError(
                f"{name}: expected (chains, {layer.width}) for {layer}, received {tuple(x.shape)}"
            )
        if layer.two_values is not None:
            low, high = layer.two_values
            vectors.append(x if (low, high) == (-1, 1) else (2 * x - low - high) / (high - low))
        elif layer.one_hot:
            k = layer.columns_per_unit
            vectors.append((x - 1 / k) * (k / (k - 1)) ** 0.5)
        else:
            raise ValueError(f"machine: expected units with two values or categories, received {layer}")
    joined: Tensor = torch.cat(vectors, 1) / float(units) ** 0.5
    return joined
