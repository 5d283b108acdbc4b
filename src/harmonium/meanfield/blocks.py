"""Second moments within units: a variance, or for one-hot units a block over its columns.

A unit with q columns has a covariance block of q², flattened; with one column the block is the variance and
everything here is the plain product. The blocks of a layer are (batch, n_units · q²).
"""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium.layers import Layer


def columns(layer: Layer) -> int:
    """Columns of a unit's state."""
    return layer.width // layer.n_units


def squares(below: Layer, above: Layer, J: Tensor) -> Tensor:
    """J ⊗ J between the blocks of two layers, (blocks below, blocks above); J² for units of one column."""
    p, q = columns(below), columns(above)
    if p == q == 1:
        return J.square()
    J = J.view(below.n_units, p, above.n_units, q)
    return torch.einsum("isjt,iujv->isujtv", J, J).reshape(below.n_units * p * p, above.n_units * q * q)


def covariance(layer: Layer, a: Tensor, c: Tensor) -> Tensor:
    """Covariance blocks from means and variances; of one-hot units diag(a) - a aᵀ, zero where c is zero."""
    if columns(layer) == 1:
        return c
    mean = layer.by_unit(a)
    block = torch.diag_embed(mean) - mean.unsqueeze(-1) * mean.unsqueeze(-2)
    return block.flatten(-3)


def add_times(field: Tensor, layer: Layer, A: Tensor, a: Tensor) -> Tensor:
    """field + A a, (batch, width), written over the field."""
    q = columns(layer)
    if q == 1:
        return field.addcmul_(A, a)
    blocks = A.view(*A.shape[:-1], layer.n_units, q, q)
    return field.add_((blocks @ layer.by_unit(a).unsqueeze(-1)).squeeze(-1).flatten(-2))


def diagonal(layer: Layer, A: Tensor) -> Tensor:
    """The diagonal of every block, (batch, width)."""
    q = columns(layer)
    if q == 1:
        return A
    return A.view(*A.shape[:-1], layer.n_units, q, q).diagonal(dim1=-2, dim2=-1).flatten(-2)
