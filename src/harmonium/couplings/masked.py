"""Some units joined to some others."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from harmonium.couplings.coupling import Coupling
from harmonium.layers import Layer


@final
class Masked(Coupling):
    """Couplings where a mask is true, such as those of a hardware graph or of a lattice.

    Args:
        mask: (n_units_l, n_units_m), an array or tensor of booleans, or of zeros and other numbers: which
            units are joined. For an edge from a layer to itself an entry on either side of the diagonal joins
            a pair, and the diagonal is not read. (Files hold it as a mapping of its shape and packed bits.)

    Raises:
        ValueError: not a matrix, or, once the coupling joins layers, one of another shape than their units.
    """

    kind: ClassVar[str] = "masked"

    def __init__(self, mask: Any) -> None:
        super().__init__()
        if isinstance(mask, Mapping):
            mask = _unpack(mask)
        values = mask.cpu() if isinstance(mask, Tensor) else np.asarray(mask)
        self._mask = torch.as_tensor(values, device="cpu").bool()
        if self._mask.dim() != 2:
            raise ValueError(f"mask: expected two dimensions, received shape {tuple(self._mask.shape)}")

    def pattern(self, below: Layer, above: Layer) -> Tensor | None:
        expected = (below.n_units, above.n_units)
        if tuple(self._mask.shape) != expected:
            raise ValueError(
                f"mask: expected shape {expected}, the units of {below} and {above}, "
                f"received {tuple(self._mask.shape)}"
            )
        rows = self._mask.repeat_interleave(below.columns_per_unit, 0)
        return rows.repeat_interleave(above.columns_per_unit, 1)

    def config(self) -> dict[str, Any]:
        bits = np.packbits(self._mask.numpy())
        return {"mask": {"shape": list(self._mask.shape), "bits": b64encode(bits.tobytes()).decode()}}


def _unpack(packed: Mapping[str, Any]) -> Any:
    rows, columns = (int(side) for side in packed["shape"])
    bits = np.frombuffer(b64decode(packed["bits"], validate=True), np.uint8)
    if rows < 1 or columns < 1 or len(bits) != -(-rows * columns // 8):
        raise ValueError(f"mask: expected the bits of {rows} x {columns} entries, received {len(bits)} bytes")
    return np.unpackbits(bits, count=rows * columns).reshape(rows, columns)
