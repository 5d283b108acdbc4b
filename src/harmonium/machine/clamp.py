"""Clamped entries of a machine's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, _device
from harmonium._checks import Numbers
from harmonium.layers import Layer

ClampLike = Numbers | Mapping[int, Numbers] | None


@final
class Clamp:
    """Clamped (held) entries of the state.

    Args:
        layers: Layers of the machine.
        visible: which of them are visible.
        clamp: the visible values, (rows, visible_width), or a mapping from layers to values, (rows, width_l);
            NaN marks an entry that is free. None holds nothing.
        rows: Rows of the state.
        like: a tensor of the machine's dtype, on its device.
        checked: whether the values are known to be observed throughout and to lie in the support: they are
            not looked at then.

    Raises:
        TypeError: neither a tensor, a mapping nor None.
        ValueError: an unknown layer, another shape, or a held value outside the support.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        visible: Sequence[int],
        clamp: ClampLike,
        rows: int,
        like: Tensor,
        checked: bool = False,
    ) -> None:
        self._held: dict[int, tuple[Tensor | None, Tensor]] = {}
        self._products: dict[tuple[int, int], tuple[Tensor, int, Tensor]] = {}
        if isinstance(clamp, Tensor | np.ndarray) and len(visible) == 1:
            clamp = {visible[0]: clamp}
        elif isinstance(clamp, Tensor | np.ndarray):
            widths = [layers[l].width for l in visible]
            if tuple(clamp.shape) != (rows, sum(widths)):
                raise ValueError(
                    f"clamp: expected shape {(rows, sum(widths))}, received {tuple(clamp.shape)}"
                )
            parts = torch.split(_checks.tensor(clamp, "clamp", like.dtype, like.device), widths, -1)
            clamp = dict(zip(visible, parts, strict=True))
        values = {} if clamp is None else clamp
        _checks.instance(values, "clamp", Mapping, "a tensor of visible values, a mapping or None")
        for l, x in values.items():
            if not isinstance(l, int) or not 0 <= l < len(layers):
                refuse = ValueError if isinstance(l, int) else TypeError
                raise refuse(f"clamp: expected layers 0..{len(layers) - 1}, received {l!r}")
            name, expected = f"clamp[{l}]", (rows, layers[l].width)
            held = _checks.tensor(x, name, like.dtype, like.device)
            if tuple(held.shape) != expected:
                raise ValueError(f"{name}: expected shape {expected}, received {tuple(held.shape)}")
            held = held.clone()  # the states of a layer held whole are these very values
            if checked:
                self._held[l] = (None, held)
                continue
            observed, held = layers[l].observed(held, name)
            if bool(observed.any()):
                self._held[l] = (None if bool(observed.all()) else observed, held)

    @property
    def empty(self) -> bool:
        """True if no entry is clamped."""
        return not self._held

    def is_clamped(self, layer: int) -> bool:
        """Returns whether every entry of the layer is clamped."""
        return layer in self._held and self._held[layer][0] is None

    def mask(self, layer: int) -> Tensor | None:
        """Marks the clamped entries of the layer, (rows, width); None if there is none."""
        if layer not in self._held:
            return None
        held, values = self._held[layer]
        return torch.ones_like(values, dtype=torch.bool) if held is None else held

    def apply(self, layer: int, x: Tensor) -> Tensor:
        """Returns x, (rows, width), with the clamped entries of the layer at their values."""
        if layer not in self._held:
            return x
        held, values = self._held[layer]
        return values if held is None else _device.where(held, values, x)

    def agrees(self, layer: int, x: Tensor) -> Tensor | None:
        """Marks the rows of x that agree with the clamped entries, (rows,); None if there is none."""
        if layer not in self._held:
            return None
        held, values = self._held[layer]
        same = x == values
        return (same if held is None else same | ~held).all(-1)

    def product(self, layer: int, x: Tensor, edge: int, J: Tensor, multiply: Callable[[], Tensor]) -> Tensor:
        """Multiplies the states x of a layer by a coupling: once where the whole layer is clamped at them.

        Args:
            layer: whose states.
            x: (rows, width).
            edge: Index of the edge that joins the layer to another.
            J: its coupling as it is now.
            multiply: makes the product.
        """
        if not self.is_clamped(layer) or (torch.is_grad_enabled() and J.requires_grad):
            return multiply()
        values = self._held[layer][1]
        if x is not values and (_device.is_async(x.device) or not torch.equal(x, values)):
            return multiply()
        version = -1 if J.is_inference() else J._version
        known = self._products.get((layer, edge))
        if known is None or known[0] is not J or known[1] != version:
            known = self._products[layer, edge] = J, version, multiply()
        return known[2].clone()

    def select_rows(self, rows: Tensor | slice) -> Clamp:
        """Returns the clamp of some of the rows, repetitions allowed."""
        if not self._held:
            return self
        part = object.__new__(Clamp)
        part._held = {
            l: (None if held is None else held[rows], values[rows])
            for l, (held, values) in self._held.items()
        }
        part._products = {
            key: (J, version, product[rows]) for key, (J, version, product) in self._products.items()
        }
        return part
