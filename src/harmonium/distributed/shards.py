"""Work in a fixed number of parts, whichever process does which."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, final

import torch

from harmonium import _checks
from harmonium.distributed.group import Distributed, Group, as_group

SHARDS: Final = 8
"""Into how many parts work is cut where nothing else is asked for."""


@final
class Shards:
    """Parts of some work, each with noise of its own, which the processes of a group share out.

    The cut depends on the number of shards alone, and what they make is put together in one order: so 1, 2,
    4, ... processes get the same bits.

    Args:
        group: the processes.
        number: Number of shards, a power of two that the number of processes divides.

    Attributes:
        local: Shards of this process, in rising order.

    Raises:
        ValueError: another number.
    """

    def __init__(self, group: Group, number: int = SHARDS) -> None:
        _checks.positive_int(number, "shards")
        if number & (number - 1) or number % group.size:
            raise ValueError(
                f"shards: expected a power of two that the number of processes, {group.size}, divides, "
                f"received {number}"
            )
        self.group, self.number = group, number
        per_process = number // group.size
        self.local = range(group.rank * per_process, (group.rank + 1) * per_process)

    def generators(
        self, generator: torch.Generator, device: torch.device | None = None
    ) -> list[torch.Generator]:
        """Returns noise for each of this process's shards, from a generator alike in all processes.

        Args:
            generator: Source of their seeds; one of a GPU is waited for.
            device: where the noise is needed; None: that of the generator.
        """
        drawn = torch.randint(1 << 62, (self.number,), generator=generator, device=generator.device)
        words = drawn.tolist()
        return [torch.Generator(device or drawn.device).manual_seed(words[shard]) for shard in self.local]

    def divide(self, number: int, name: str) -> int:
        """Divides a number by the number of shards.

        Args:
            number: The number for all shards together.
            name: Name of the argument, for messages.

        Raises:
            ValueError: a number that the shards do not divide.
        """
        if number % self.number:
            raise ValueError(f"{name}: expected a multiple of the {self.number} shards, received {number}")
        return number // self.number

    def rows(self, number: int, name: str) -> list[slice]:
        """Cuts rows into shards, in their order; returns the slices of this process's shards.

        Args:
            number: Number of all rows, split as evenly as possible; every shard gets at least one.
            name: the argument that has them.

        Raises:
            ValueError: fewer rows than shards.
        """
        if number < self.number:
            raise ValueError(
                f"{name}: expected at least one for each of {self.number} shards, received {number}"
            )
        starts = [-(-shard * number // self.number) for shard in range(self.number + 1)]
        return [slice(starts[shard], starts[shard + 1]) for shard in self.local]

    def own_rows(self, number: int, name: str) -> slice:
        """Returns where the rows of this process's shards lie, of as many as ``rows`` cuts."""
        spans = self.rows(number, name)
        return slice(spans[0].start, spans[-1].stop)

    def all_gather(self, values: Iterable[Any]) -> list[Any]:
        """Returns the values of all shards, in their order, from those of this process's own shards."""
        return [value for part in self.group.all_gather(list(values)) for value in part]


def as_shards(distributed: Distributed, number: int) -> Shards | None:
    """Returns the shards for the arguments ``distributed`` and ``shards``; None: one process, in one piece.

    Raises:
        TypeError, ValueError: as ``as_group`` and ``Shards``.
    """
    group = as_group(distributed)
    return None if group is None else Shards(group, number)
