"""Rejection sampling for many rows at once, in rounds of one shape that no host has to wait for."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from harmonium.couplings.block import Block, Coupled, accept

_ROUNDS = 4  # made before the host asks whether they were enough
_SLOTS = 256  # proposals of a round, at least


@final
class Rejection:
    """Draws from what one law leaves over of the other, for the rows that have not accepted yet.

    A round makes as many proposals as there are rows, dealt out to those that wait: the fewer wait, the more
    proposals each gets, so that a few rounds are nearly always enough however rare acceptance is. How many a
    row gets does not depend on their noise, and its first accepted one counts: the law is that of one
    proposal at a time, without a cap.

    Args:
        p, q: the two laws.
        x, y: draws from them, to be written over in rows that wait; the lists are the caller's own.
        wait_x, wait_y: which rows do, (rows,).
        generator: source of noise.
    """

    def __init__(
        self,
        p: Block,
        q: Block,
        x: list[Tensor],
        y: list[Tensor],
        wait_x: Tensor,
        wait_y: Tensor,
        generator: torch.Generator,
    ) -> None:
        self._laws, self._draws, self._waits = (p, q), (x, y), [wait_x, wait_y]
        self._generator = generator
        self._tries = torch.zeros(p.rows, dtype=torch.int64, device=wait_y.device)
        self._go_on()

    @property
    def left(self) -> Tensor:
        """True if rows still wait: a tensor of one element, which the host reads as rarely as it can."""
        return (self._waits[0] | self._waits[1]).any()

    @property
    def drawn(self) -> Coupled:
        """The draws; right once no row waits."""
        return Coupled(*self._draws, self._tries)

    def finish(self) -> Coupled:
        """The draws, with as many more rounds as it takes; the host asks after every few."""
        while bool(self.left):
            self._go_on()
        return self.drawn

    def _go_on(self) -> None:
        """Some more rounds."""
        for _ in range(_ROUNDS):
            self._round()

    def _round(self) -> None:
        waits = self._waits[0] | self._waits[1]
        rows, device = len(waits), waits.device
        slot = torch.arange(max(rows, _SLOTS), device=device)
        order = waits.to(torch.int8).argsort(descending=True, stable=True)  # those that wait come first
        waiting = waits.sum().clamp(min=1)
        row = order[slot % waiting]
        some = [law.take(row) for law in self._laws]
        noise = some[0].noise(len(slot), self._generator)
        none = len(slot)
        for number, (this, other) in enumerate((some, some[::-1])):
            drawn = this.sample(noise)
            # What the other law leaves over: kept where the maximal step would not have kept it.
            kept = ~accept(this.log_ratio(other, drawn), self._generator) & self._waits[number][row]
            first = torch.full((rows,), none, device=device)
            first = first.scatter_reduce(0, row, torch.where(kept, slot, none), "amin")
            found, first = first < none, first.clamp(max=none - 1)
            for l, new in enumerate(drawn):
                self._draws[number][l] = torch.where(found.unsqueeze(-1), new[first], self._draws[number][l])
            self._waits[number] = self._waits[number] & ~found
        rank = torch.empty_like(order).scatter_(0, order, torch.arange(rows, device=device))
        given = (len(slot) - rank + waiting - 1).div(waiting, rounding_mode="floor")
        self._tries += torch.where(waits, given, 0)
