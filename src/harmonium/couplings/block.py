"""Couplings of one block: units that are independent given the rest, in two chains at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor

from harmonium import _random
from harmonium.machine import Hamiltonian, Part


@final
@dataclass(frozen=True)
class Block:
    """The conditional law of some layers or parts of layers, p = Π p(x | B) over all their units, for each
    row.

    Attributes:
        hamiltonian: the machine.
        parts: of one colour of its graph.
        fields: B of each of these parts, (rows, columns).
    """

    hamiltonian: Hamiltonian
    parts: tuple[Part, ...]
    fields: tuple[Tensor, ...]

    @property
    def rows(self) -> int:
        return len(self.fields[0])

    @property
    def values(self) -> list[tuple[float, float] | None]:
        """The two values of the units of each part, where they have two."""
        return [self.hamiltonian.units(part)[0].two_values for part in self.parts]

    @property
    def field(self) -> Tensor:
        """The fields side by side, (rows, columns of all parts)."""
        return (self.fields[0] if len(self.fields) == 1 else torch.cat(self.fields, -1)).contiguous()

    def take(self, rows: Tensor) -> Block:
        """Returns the block at some of its rows, repetitions allowed."""
        some = Block(self.hamiltonian, self.parts, tuple(field[rows] for field in self.fields))
        some.__dict__["log_partition"] = self.log_partition[rows]
        return some

    def noise(self, rows: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Noise for ``rows`` draws."""
        return tuple(self.hamiltonian.noise(part, rows, generator) for part in self.parts)

    def sample(self, noise: Sequence[Tensor]) -> list[Tensor]:
        """Draws the states of each part, (rows, columns), from the noise of ``noise(rows)``."""
        return [
            self.hamiltonian.units(part)[0].sample(field, u, self.hamiltonian.units(part)[1])
            for part, field, u in zip(self.parts, self.fields, noise, strict=True)
        ]

    @cached_property
    def log_partition(self) -> Tensor:
        """Σ ψ over all units, in float64: (rows,).

        Throughout, as laws that are nearly equal must not seem to have different weights.
        """
        sums = []
        for part, field in zip(self.parts, self.fields, strict=True):
            theta = tuple(parameter.double() for parameter in self.hamiltonian.units(part)[1])
            sums.append(self.hamiltonian.units(part)[0].log_partition(field.double(), theta=theta).sum(-1))
        return torch.stack(sums).sum(0)

    def log_ratio(self, other: Block, x: Sequence[Tensor]) -> Tensor:
        """Returns ln p_other(x) - ln p(x), (rows,) in float64; the layers' own parameters cancel.

        Args:
            other: the block of the other chain, with the same parts and as many rows.
            x: for each part (rows, columns).
        """
        parts = [
            (value * (theirs.double() - ours)).sum(-1)
            for value, ours, theirs in zip(x, self.fields, other.fields, strict=True)
        ]
        return torch.stack(parts).sum(0) - (other.log_partition - self.log_partition)


class Coupled(NamedTuple):
    """A draw from a coupling.

    Attributes:
        x: for each layer of the block, distributed as the first law says.
        y: the same for the second law.
        tries: (rows,), rounds of rejection sampling that a row took; 0 where none was needed.
    """

    x: list[Tensor]
    y: list[Tensor]
    tries: Tensor


class BlockCoupling(ABC):
    """A joint law of (x, y) with x ~ p and y ~ q. It holds no state."""

    @abstractmethod
    def draw(self, p: Block, q: Block, generator: torch.Generator) -> Coupled:
        """Draws a pair for every row; p and q have the same parts and rows."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@final
class CommonNoise(BlockCoupling):
    """Couples two draws by common noise: equal where the laws are equal, close where they are close."""

    def draw(self, p: Block, q: Block, generator: torch.Generator) -> Coupled:
        noise = p.noise(p.rows, generator)
        tries = torch.zeros(p.rows, dtype=torch.int64, device=p.fields[0].device)
        return Coupled(p.sample(noise), q.sample(noise), tries)


@final
class Independent(BlockCoupling):
    """Unrelated draws, but for rows whose fields are equal up to rounding: those share their noise."""

    def draw(self, p: Block, q: Block, generator: torch.Generator) -> Coupled:
        first, second = p.noise(p.rows, generator), q.noise(q.rows, generator)
        equal = torch.stack(
            [torch.isclose(a, b).all(-1) for a, b in zip(p.fields, q.fields, strict=True)]
        ).all(0)
        shared = [torch.where(equal.unsqueeze(-1), u, w) for u, w in zip(first, second, strict=True)]
        tries = torch.zeros(p.rows, dtype=torch.int64, device=equal.device)
        return Coupled(p.sample(first), q.sample(shared), tries)


def accept(log_ratio: Tensor, generator: torch.Generator) -> Tensor:
    """True with probability min(1, exp(log_ratio)), decided in log space by an Exp(1) variate."""
    u = _random.uniform(log_ratio.shape, generator, torch.float64)
    return torch.log1p(-u) <= log_ratio
