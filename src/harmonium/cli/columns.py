"""The columns behind a machine's visible units, one by one."""

from __future__ import annotations

from collections.abc import Sequence

from harmonium.data import Encoder, Identity, Standardise, Table
from harmonium.data.codings import Affine, Coding, Pair
from harmonium.data.column import Column
from harmonium.layers import Layer


def columns_of(encoder: Encoder, layer: Layer, names: Sequence[str] | None) -> tuple[Column, ...]:
    """A column for each unit that stands for one; none where units stand for parts of columns.

    Args:
        encoder: of the data.
        layer: the first visible one, the only one without a table.
        names: of the columns; None: their numbers.
    """
    if isinstance(encoder, Table):
        return encoder.columns
    count = layer.n_units
    kind, codings = "", list[Coding]()
    if isinstance(encoder, Standardise):
        parts = (x if isinstance(x, tuple) else (x,) * count for x in (encoder.mean, encoder.scale))
        kind = "gaussian"  # how the cells are coded, whatever real units stand for them
        codings = [Affine(mean, scale) for mean, scale in zip(*parts, strict=True)]
    elif isinstance(encoder, Identity) and layer.two_values is not None:
        kind, codings = "bernoulli", [Pair(layer.two_values, low=layer.two_values[0])] * count
    own = names if names is not None and len(names) == count else [str(j) for j in range(count)]
    return tuple(Column(name, "float64", kind, coding) for name, coding in zip(own, codings, strict=False))
