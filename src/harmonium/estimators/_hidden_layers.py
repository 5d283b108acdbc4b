"""The hidden layers that an estimator's parameters ask for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from harmonium.layers import Layer
from harmonium.machine import hidden_for


def hidden_layers(visible: Sequence[Layer], kind: str, sizes: list[int], n_states: int) -> list[Layer]:
    """New hidden layers of a kind, no unbounded one beside another: such a machine may have no normaliser."""
    hidden = hidden_for(kind, sizes, n_states)
    for below, above in [*((layer, hidden[0]) for layer in visible), *pairwise(hidden)]:
        if not (below.bounded or above.bounded):
            raise ValueError(
                f"hidden: expected discrete units, or others with a bound, beside {below}, received {kind!r}"
            )
    return hidden
