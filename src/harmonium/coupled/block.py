"""Couplings of one block: units that are independent given the rest, in two chains at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor

from harmonium import _device, _random
from harmonium._states import record
from harmonium.backends import runs
from harmonium.machine import Hamiltonian, Part

_MAX_PROPOSALS = 1 << 14  # made at once; a bound on memory, not on the number of tries
# Proposals of the one round that a GPU makes before the host reads whether they were enough, for each row and
# at least: few rows wait, and get all of them. Several smaller rounds are as much work in many more launches.
_PROPOSALS, _SLOTS = 4, 1024


@final
@dataclass(frozen=True)
class Block:
    """The conditional distribution of some layers or parts of layers, p = Π p(x | B), for each row.

    Attributes:
        hamiltonian: the machine.
        parts: Parts of one colour of its graph.
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
        return _side_by_side(self.fields).contiguous()

    def take(self, rows: Tensor) -> Block:
        """Returns the block at some of its rows, repetitions allowed."""
        some = Block(self.hamiltonian, self.parts, tuple(field[rows] for field in self.fields))
        some.__dict__["log_partition"] = self.log_partition[rows]
        return some

    def noise(self, rows: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Draws noise for ``rows`` draws, for each part (rows, units)."""
        return tuple(self.hamiltonian.noise(part, rows, generator) for part in self.parts)

    def sample(self, noise: Sequence[Tensor]) -> list[Tensor]:
        """Draws the states of each part, (rows, columns), from the noise of ``noise(rows)``."""
        return [
            self.hamiltonian.units(part)[0].sample(field, u, self.hamiltonian.units(part)[1])
            for part, field, u in zip(self.parts, self.fields, noise, strict=True)
        ]

    @cached_property
    def in_double(self) -> tuple[Tensor, ...]:
        """The fields in float64, (rows, columns), so that nearly equal distributions get equal weights."""
        return tuple(field.double() for field in self.fields)

    @cached_property
    def log_partition(self) -> Tensor:
        """Σ ψ over all units, in float64: (rows,)."""
        sums = []
        for part, field in zip(self.parts, self.in_double, strict=True):
            theta = tuple(parameter.double() for parameter in self.hamiltonian.units(part)[1])
            sums.append(self.hamiltonian.units(part)[0].log_partition(field, theta=theta).sum(-1))
        return sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)

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


@record
class Coupled(NamedTuple):
    """A draw from a coupling.

    Attributes:
        x: for each layer of the block (rows, columns), distributed by the first distribution.
        y: distributed by the second distribution.
        tries: (rows,), rounds of rejection sampling that a row took; 0 where none was needed.
    """

    x: list[Tensor]
    y: list[Tensor]
    tries: Tensor


class BlockCoupling(ABC):
    """A joint distribution of (x, y) with x ~ p and y ~ q. It holds no state."""

    @abstractmethod
    def draw(self, p: Block, q: Block, generator: torch.Generator) -> Coupled:
        """Draws a pair for every row; p and q have the same parts and rows."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@final
class CommonNoise(BlockCoupling):
    """Couples two draws by common noise: equal where distributions are equal, close where they are close."""

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


@final
class Maximal(BlockCoupling):
    """x ~ p is kept for y with probability min(1, q(x)/p(x)); else y comes from what p leaves over of q.

    What is left over is drawn by rejection, which goes on until every row is accepted, without a cap: a cap
    would bias the draw. The expected number of proposals of a row is 1/TV(p, q), and the loop is entered with
    probability TV(p, q).

    Args:
        common_noise: whether rejected rows draw x and y again with the same noise, each until its own
            acceptance (Qiu et al. 2020, Alg. 3), which brings the chains closer; otherwise x stays and only y
            is drawn (Alg. 1).
    """

    def __init__(self, *, common_noise: bool = False) -> None:
        self.common_noise = common_noise

    def draw(self, p: Block, q: Block, generator: torch.Generator) -> Coupled:
        ran = runs.couple(p, q, generator) if self.common_noise else None
        if ran is None:
            return self.finish(p, q, *self.begin(p, q, generator), generator)
        x, y, tries = ran
        widths = [field.shape[1] for field in p.fields]
        return Coupled([*torch.split(x, widths, 1)], [*torch.split(y, widths, 1)], tries)

    def begin(self, p: Block, q: Block, generator: torch.Generator) -> tuple[Coupled, Tensor]:
        """Draws x ~ p, kept for y where it is accepted; on a GPU also a round of proposals for other rows.

        Returns:
            The draws, and the rows that wait for x and those that wait for y, (2, rows).
        """
        if _device.is_async(p.fields[0].device):
            return _draw_ahead(p, q, self.common_noise, generator)
        x = p.sample(p.noise(p.rows, generator))
        apart = ~_random.accept(p.log_ratio(q, x), generator)
        tries = torch.zeros(p.rows, dtype=torch.int64, device=apart.device)
        return Coupled(x, [value.clone() for value in x], tries), _mark_waiting(apart, self.common_noise)

    def finish(
        self, p: Block, q: Block, drawn: Coupled, waits: Tensor, generator: torch.Generator
    ) -> Coupled:
        """Goes on from what ``begin`` returned, in place, until no row waits.

        Rounds deal out proposals to the rows that wait, each of which gets twice as many as in the last
        round. How many a row gets does not depend on their noise, and its first accepted one counts: the
        distribution is that of one proposal at a time, without a cap.
        """
        proposals = 1
        while len(waiting := waits.any(0).nonzero().squeeze(-1)):
            proposals = max(1, min(proposals, _MAX_PROPOSALS // len(waiting)))
            row = waiting.repeat_interleave(proposals)
            some = p.take(row), q.take(row)
            noise = some[0].noise(len(row), generator)
            for draws, waits_for, this, other in zip(
                (drawn.x, drawn.y), waits, some, some[::-1], strict=True
            ):
                if not bool(waits_for.any()):
                    continue
                made = this.sample(noise)
                # A draw of p that is kept with probability 1 - min(1, q/p) has a density in proportion to
                # max(0, p - q): what q leaves over of p, as a maximal coupling needs it (FORMULAS §3). The
                # first kept one counts, whichever slot it has, as if they had come one at a time.
                accepted = ~_random.accept(this.log_ratio(other, made), generator) & waits_for[row]
                accepted = accepted.view(-1, proposals).byte()
                rows, slots = accepted.any(1).nonzero().squeeze(-1), accepted.argmax(1)
                taken, first = waiting[rows], rows * proposals + slots[rows]
                for values, new in zip(draws, made, strict=True):
                    values[taken] = new[first]
                waits_for[taken] = False
            drawn.tries[waiting] += proposals
            proposals *= 2
        return drawn

    def __repr__(self) -> str:
        return f"Maximal(common_noise={self.common_noise})"


@torch.no_grad()
def _draw_ahead(p: Block, q: Block, common_noise: bool, generator: torch.Generator) -> tuple[Coupled, Tensor]:
    """Makes the first round of ``Maximal`` in operations of one shape, which a recording can repeat.

    The host does not wait to learn how many rows wait: the round makes several times as many proposals as
    there are rows, so that it is nearly always enough however rare acceptance is. Both distributions are one
    batch, as a launch takes an asynchronous device longer than a small batch does.
    """
    rows, slots = p.rows, max(_PROPOSALS * p.rows, _SLOTS)
    both = Block(p.hamiltonian, p.parts, tuple(map(stack, p.fields, q.fields)))
    # ln p(x) - ln q(x) = x·(B_p - B_q) - (ψ_p - ψ_q), in one row for each pair of distributions.
    field, psi = _side_by_side(both.in_double), both.log_partition
    ratios = field.new_empty(rows, field.shape[1] + 1)
    torch.sub(*field.chunk(2), out=ratios[:, :-1])
    torch.sub(*psi.chunk(2)[::-1], out=ratios[:, -1])
    noise = both.noise(rows + slots, generator)
    threshold = _random.exponential((rows + 2 * slots,), generator)
    x = p.sample([u[:rows] for u in noise])
    # Kept for y with probability min(1, q/p): where an Exp(1) variate is at least ln p - ln q.
    apart = threshold[:rows] < _compare(x, ratios)
    waits = _mark_waiting(apart, common_noise)
    # Rows that wait get as many proposals each; what is left over of them belongs to a row of nobody.
    count = apart.cumsum(0)
    per_row = slots // count[-1:].clamp(min=1)
    slot = torch.arange(2 * slots, device=apart.device)
    row = torch.searchsorted(count, slot[:slots] // per_row, right=True)
    at = row.clamp(max=rows - 1)
    fields = [field.view(2, rows, -1).index_select(1, at).flatten(0, 1) for field in both.fields]
    proposals = Block(p.hamiltonian, p.parts, tuple(fields))
    made = proposals.sample([u[rows:].repeat(2, *[1] * (u.dim() - 1)) for u in noise])
    ratio = _compare([x.view(2, slots, -1) for x in made], ratios.index_select(0, at))
    ratio[1].neg_()
    # As in ``Maximal.finish``: what is not kept of p is drawn from what q leaves over of it.
    rank = torch.add(slot.view(2, -1), threshold[rows:].view(2, -1) >= ratio, alpha=2 * slots)
    first = torch.full((2, rows + 1), 4 * slots, device=apart.device)
    first = first.scatter_reduce_(1, row.expand(2, -1), rank, "amin")[:, :-1]
    taken = (first < 2 * slots) & waits
    chosen = first.clamp(max=2 * slots - 1).flatten()
    drawn = [
        torch.where(taken.unsqueeze(-1), new.index_select(0, chosen).view(2, rows, -1), before)
        for new, before in zip(made, x, strict=True)
    ]
    return Coupled([z[0] for z in drawn], [z[1] for z in drawn], apart * per_row), waits ^ taken


def _compare(x: Sequence[Tensor], ratios: Tensor) -> Tensor:
    """Returns ln p(x) - ln q(x) of states of each part, (..., columns), by rows of ``ratios``: (...)."""
    return (_side_by_side(x) * ratios[:, :-1]).sum(-1) + ratios[:, -1]


def _mark_waiting(apart: Tensor, common_noise: bool) -> Tensor:
    """Returns the rows that wait for x, all that were rejected or none, and for y, (2, rows)."""
    return torch.stack((apart if common_noise else torch.zeros_like(apart), apart))


def _side_by_side(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts), -1)


def stack(x: Tensor, y: Tensor) -> Tensor:
    """Returns x over y; without a copy where they are the two halves of one tensor."""
    base = x._base
    if (
        base is not None
        and base is y._base
        and base.numel() == 2 * x.numel()
        and x.is_contiguous()
        and y.is_contiguous()
        and (x.storage_offset(), y.storage_offset())
        == (base.storage_offset(), base.storage_offset() + x.numel())
    ):
        return base.reshape(2 * len(x), x.shape[1])
    return torch.cat((x, y))


@final
class Reflection(BlockCoupling):
    """Maximal, and where the draws differ they mirror each other, which brings the next means together.

    For two normal distributions of equal variances: z ~ N(0, I), d the standardised difference of means; y =
    x with probability min(1, φ(z + d)/φ(z)), else y's noise is z reflected at the hyperplane orthogonal to d
    (Bou-Rabee, Eberle & Zimmer 2020; Jacob et al. 2020, §4.1).
    """

    def draw(self, p: Block, q: Block, generator: torch.Generator) -> Coupled:
        """Draws as the base class does.

        Raises:
            TypeError: a layer that is not Gaussian.
        """
        for part in p.parts:
            if not p.hamiltonian.units(part)[0].gaussian:
                raise TypeError(
                    f"Reflection: expected Gaussian layers, received {p.hamiltonian.units(part)[0]}"
                )
        noise = p.noise(p.rows, generator)
        x = p.sample(noise)
        deviations = [p.hamiltonian.units(part)[1][1].rsqrt() for part in p.parts]
        # field · σ is the standardised mean up to a part that both chains share.
        gaps = [(a - b) * s for a, b, s in zip(p.fields, q.fields, deviations, strict=True)]
        z, d = torch.cat(noise, -1).double(), torch.cat(gaps, -1).double()
        together = _random.accept(-(z * d).sum(-1) - 0.5 * d.square().sum(-1), generator)
        length = d.square().sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
        mirrored = z - 2 * (z * d).sum(-1, keepdim=True) / length * d
        widths = [field.shape[-1] for field in p.fields]
        reflected = [part.to(x[0].dtype) for part in torch.split(mirrored, widths, -1)]
        y = [
            torch.where(together.unsqueeze(-1), same, other)
            for same, other in zip(x, q.sample(reflected), strict=True)
        ]
        return Coupled(x, y, torch.zeros(p.rows, dtype=torch.int64, device=z.device))
