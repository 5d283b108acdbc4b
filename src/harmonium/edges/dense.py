"""Every unit joined to every other."""

from __future__ import annotations

from typing import ClassVar, final

from torch import Tensor

from harmonium.edges.coupling import Coupling
from harmonium.layers import Layer


@final
class Dense(Coupling):
    """All columns of one layer joined to all columns of the other; what an edge has by default."""

    kind: ClassVar[str] = "dense"

    def pattern(self, below: Layer, above: Layer) -> Tensor | None:
        return None
