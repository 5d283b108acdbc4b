"""Hidden layers that several processes hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from harmonium.distributed import Group
from harmonium.distributed.group import pairwise


@final
@dataclass(frozen=True)
class Columns:
    """The part of a machine that a process holds: all visible layers, and some of the hidden ones.

    A hidden layer hears of visible ones alone, which everybody has. A visible layer hears of all hidden ones.

    Attributes:
        group: the processes that hold the others.
        generators: noise of this process's hidden layers; that of visible ones is everybody's.
    """

    group: Group
    generators: Mapping[int, torch.Generator]

    def sum(self, terms: Sequence[Tensor]) -> Tensor:
        """Σ over the hidden layers of all processes, one term for each of this one's: (batch, width).

        Neighbours first, as ``pairwise``: it makes no difference who holds which.
        """
        own = pairwise(terms)
        return self.group.sum(own.flatten()).view(own.shape)
