"""The gauge of categorical units: parameters that differ and leave every probability."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium.couplings import Coupling
from harmonium.layers import Layer
from harmonium.machine.boltzmann import BoltzmannMachine


@torch.no_grad()
def to_zero_sum_(machine: BoltzmannMachine) -> None:
    """Brings a machine to the zero-sum gauge, in place: every probability stays.

    A number may be added to what all states of a categorical unit have, if fields make up for it. In this
    gauge the couplings of a unit sum to zero over its states, on either side, and so do its biases. Couplings
    of other units stay. Norms of couplings, contacts and hidden units mean something in it alone (Ekeberg et
    al. 2013; Tubiana, Cocco & Monasson 2019).

    Args:
        machine: on any graph; couplings of categorical layers have to be free, dense or masked by units.

    Raises:
        ValueError: a coupling whose entries depend on each other otherwise.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Categorical(2, 3), hm.Bernoulli(2)], seed=0)
        >>> hm.machine.to_zero_sum_(machine)
        >>> float(machine.couplings[0].weight.view(2, 3, 2).sum(1).abs().max()) < 1e-6
        True
    """
    layers = machine.layers
    shifts = [torch.zeros(layer.width, dtype=machine.dtype, device=machine.device) for layer in layers]
    centred_weights = []
    for (l, m), coupling in zip(machine.edges, machine.couplings, strict=True):
        if coupling.sparsity is not None:
            centred_weights.append(_centre_blocks(coupling, layers[l], layers[m], shifts[l], shifts[m]))
            continue
        W = coupling.matrix()
        below, above = state_means(layers[l], W), state_means(layers[m], W.t()).t()
        grand = state_means(layers[l], above)
        centred = W - below - above + grand
        pattern = coupling.joined
        if pattern is not None and bool((centred[~pattern].abs() > 1e-6 * (1 + W.abs().max())).any()):
            raise ValueError(
                f"machine: expected couplings of categorical units that are dense or masked by whole units, "
                f"received {type(coupling).__name__} between layers {l} and {m}"
            )
        # Of W = centred + below + above - grand the last three are fields: below does not depend on the state
        # of layer l, nor above on that of layer m.
        if layers[l].one_hot:
            shifts[m] += _per_unit(layers[l], below).sum(0)
        if layers[m].one_hot and l != m:
            shifts[l] += _per_unit(layers[m], above.t()).sum(0)
            if layers[l].one_hot:
                shifts[l] -= _per_unit(layers[m], grand.t()).sum(0)
        centred_weights.append(centred)
    for coupling, centred in zip(machine.couplings, centred_weights, strict=True):
        inner = coupling.inner and coupling.sparsity is None
        coupling.fill_(centred.triu(1) if inner else centred)
    for layer, shift in zip(layers, shifts, strict=True):
        location = getattr(layer, layer.location)
        moved = location + shift.view_as(location)
        location.copy_(moved - moved.mean(-1, keepdim=True) if layer.one_hot else moved)


def _centre_blocks(coupling: Coupling, below: Layer, above: Layer, low: Tensor, high: Tensor) -> Tensor:
    """Returns the weights of a sparse coupling in the zero-sum gauge, in their shape.

    What makes up for it is added to ``low`` and ``high``, the fields of either layer, (width,).
    """
    assert coupling.sparsity is not None
    places = coupling.sparsity.to(coupling.weight.device)
    W = coupling.weight.view(-1, *places.block)
    rows = W.mean(1, keepdim=True) if below.one_hot else torch.zeros_like(W[:, :1])
    columns = W.mean(2, keepdim=True) if above.one_hot else torch.zeros_like(W[:, :, :1])
    grand = columns.mean(1, keepdim=True) if below.one_hot else torch.zeros_like(W[:, :1, :1])
    units, others = places.pairs.t()
    high.view(above.n_units, -1).index_add_(0, others, rows.squeeze(1))
    low.view(below.n_units, -1).index_add_(0, units, (columns - grand).squeeze(2))
    return (W - rows - columns + grand).view_as(coupling.weight)


def state_means(layer: Layer, W: Tensor) -> Tensor:
    """Returns the means of rows over the states of their unit, in the shape of W; zero of other layers."""
    if not layer.one_hot:
        return torch.zeros_like(W)
    means = W.view(layer.n_units, -1, W.shape[1]).mean(1, keepdim=True)
    return means.expand(-1, layer.columns_per_unit, -1).reshape(W.shape)


def _per_unit(layer: Layer, means: Tensor) -> Tensor:
    """Returns means, alike for the states of a unit, once for each unit."""
    return means.view(layer.n_units, -1, means.shape[1])[:, 0]
