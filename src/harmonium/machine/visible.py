"""Kinds of units by name, hidden layers of a kind, and visible and hidden layers joined to a machine."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harmonium import _checks
from harmonium.layers import Layer
from harmonium.machine.boltzmann import BoltzmannMachine

HIDDEN_KINDS = tuple(Layer.registry)
VISIBLE_KINDS = ("auto", *HIDDEN_KINDS)


def hidden_for(kind: str, sizes: Sequence[int], n_states: int = 2, name: str = "hidden") -> list[Layer]:
    """Hidden layers of one kind.

    Args:
        kind: a name in ``Layer.registry``.
        sizes: units of each layer.
        n_states: states of each unit, for kinds that may have any number.
        name: what to call the kind in messages.

    Raises:
        ValueError: an unknown kind, or a size or number of states out of range.
    """
    cls = Layer.registry[_checks.one_of(kind, name, Layer.registry)]
    return [cls.plain(size, n_states) for size in sizes]


def joined(
    visible: Sequence[Layer], hidden: Sequence[Layer], seed: int | torch.Generator = 0
) -> BoltzmannMachine:
    """A machine whose visible layers are all joined to the first of a chain of hidden layers.

    Args:
        visible: at least one, the columns of the data side by side.
        hidden: at least one, from the lowest up.
        seed: of the first couplings, see ``BoltzmannMachine``.
    """
    count, total = len(visible), len(visible) + len(hidden)
    edges = [(l, max(l + 1, count)) for l in range(total - 1)]
    return BoltzmannMachine([*visible, *hidden], edges=edges, visible=range(count), seed=seed)
