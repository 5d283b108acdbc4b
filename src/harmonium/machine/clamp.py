"""Clamped entries of a machine's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, _host
from harmonium._checks import Numbers

if TYPE_CHECKING:
    from harmonium.machine.hamiltonian import Hamiltonian

ClampLike = Numbers | Mapping[int, Numbers] | None


@final
class Clamp:
    """Held entries of the state.

    Written by users as the visible values (batch, visible_width), or as a mapping from layers to values; NaN
    marks an entry that is free. ``None`` holds nothing.

    Args:
        hamiltonian: the machine.
        clamp: what is held.
        rows: of the state.
        checked: whether the values are known to be observed throughout and to lie in the support: they are
            not looked at then.

    Raises:
        TypeError: neither a tensor, a mapping nor None.
        ValueError: an unknown layer, another shape, or a held value outside the support.
    """

    def __init__(self, hamiltonian: Hamiltonian, clamp: ClampLike, rows: int, checked: bool = False) -> None:
        self._held: dict[int, tuple[Tensor | None, Tensor]] = {}
        self._products: dict[tuple[int, int], tuple[Tensor, int, Tensor]] = {}
        if clamp is None:
            return
        values: Mapping[int, Numbers]
        visible = hamiltonian.graph.visible
        if isinstance(clamp, Tensor | np.ndarray) and len(visible) == 1:
            values = {visible[0]: clamp}
        elif isinstance(clamp, Tensor | np.ndarray):
            expected = (rows, hamiltonian.visible_width)
            if tuple(clamp.shape) != expected:
                raise ValueError(f"clamp: expected shape {expected}, received {tuple(clamp.shape)}")
            states = hamiltonian.split(_checks.tensor(clamp, "clamp", hamiltonian.dtype, hamiltonian.device))
            values = {l: states[l] for l in visible}
        elif isinstance(clamp, Mapping):
            values = clamp
        else:
            raise TypeError(
                "clamp: expected a tensor of visible values, a mapping or None, "
                f"received {type(clamp).__name__}"
            )
        for l, x in values.items():
            name = f"clamp[{l}]"
            if not isinstance(l, int):
                raise TypeError(f"clamp: expected layers 0..{len(hamiltonian.layers) - 1}, received {l!r}")
            if not 0 <= l < len(hamiltonian.layers):
                raise ValueError(f"clamp: expected layers 0..{len(hamiltonian.layers) - 1}, received {l}")
            _checks.numeric(x, name)
            layer = hamiltonian.layers[l]
            expected = (rows, layer.width)
            if tuple(x.shape) != expected:
                raise ValueError(f"{name}: expected shape {expected}, received {tuple(x.shape)}")
            # A copy, as the states of a layer held whole are these very values.
            held = _checks.tensor(x, name, hamiltonian.dtype, hamiltonian.device).clone()
            if checked:
                self._held[l] = (None, held)
                continue
            given, held = layer.observed(held, name)
            if bool(given.any()):
                self._held[l] = (None if bool(given.all()) else given, held)

    @property
    def empty(self) -> bool:
        """True if no entry is clamped."""
        return not self._held

    def fixes(self, layer: int) -> bool:
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
        return values if held is None else _host.where(held, values, x)

    def agrees(self, layer: int, x: Tensor) -> Tensor | None:
        """Marks the rows of x that agree with the clamped entries, (rows,); None if there is none."""
        if layer not in self._held:
            return None
        held, values = self._held[layer]
        same = x == values
        return (same if held is None else same | ~held).all(-1)

    def product(self, layer: int, x: Tensor, edge: int, J: Tensor, multiply: Callable[[], Tensor]) -> Tensor:
        """The states x of a layer times a coupling: computed once where the whole layer is held at them.

        Args:
            layer: whose states.
            x: (rows, width).
            edge: of the graph, which joins the layer to another.
            J: its coupling as it is now.
            multiply: makes the product.
        """
        if not self.fixes(layer) or (torch.is_grad_enabled() and J.requires_grad):
            return multiply()
        values = self._held[layer][1]
        if x is not values and (_host.behind(x.device) or not torch.equal(x, values)):
            return multiply()
        version = -1 if J.is_inference() else J._version
        known = self._products.get((layer, edge))
        if known is None or known[0] is not J or known[1] != version:
            known = self._products[layer, edge] = J, version, multiply()
        return known[2].clone()

    def take(self, rows: Tensor | slice) -> Clamp:
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
