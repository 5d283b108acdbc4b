"""Maximal couplings: x = y as often as the two laws allow, 1 - TV(p, q)."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from harmonium import _host, _random
from harmonium.compiled import serving
from harmonium.couplings.block import Block, BlockCoupling, Coupled, accept
from harmonium.couplings.rejection import Rejection

_MAX_PROPOSALS = 1 << 14  # rows of proposals made at once; a bound on memory, not on the number of tries


@final
class Maximal(BlockCoupling):
    """x ~ p is kept for y with probability min(1, q(x)/p(x)); else y comes from what p leaves over of q.

    What is left over is drawn by rejection, which goes on until every row is accepted, without a cap: a cap
    would bias the draw. The expected number of proposals of a row is 1/TV(p, q), and the loop is entered with
    probability TV(p, q).

    Args:
        common_noise: whether rejected rows draw x and y anew with the same noise, each until its own
            acceptance (Qiu et al. 2020, Alg. 3), which brings the chains closer; otherwise x stays and only y
            is drawn (Alg. 1).
    """

    def __init__(self, *, common_noise: bool = False) -> None:
        self.common_noise = common_noise

    def draw(self, p: Block, q: Block, generator: torch.Generator) -> Coupled:
        if self.common_noise and serving.two_valued(p.fields[0], p.values):
            return self._compiled(p, q, generator)
        if _host.behind(p.fields[0].device):
            return self.begin(p, q, generator).finish()
        x = p.sample(p.noise(p.rows, generator))
        together = accept(p.log_ratio(q, x), generator)
        y = [value.clone() for value in x]
        tries = torch.zeros(p.rows, dtype=torch.int64, device=x[0].device)
        apart = (~together).nonzero().squeeze(-1)
        if len(apart):
            tries[apart] = self._reject(p.take(apart), q.take(apart), x, y, apart, generator)
        return Coupled(x, y, tries)

    def begin(self, p: Block, q: Block, generator: torch.Generator) -> Rejection:
        """A draw that is most likely done, which the host may ask for later."""
        x = p.sample(p.noise(p.rows, generator))
        apart = ~accept(p.log_ratio(q, x), generator)
        wait_x = apart if self.common_noise else torch.zeros_like(apart)
        return Rejection(p, q, list(x), list(x), wait_x, apart, generator)

    @torch.no_grad()
    def _compiled(self, p: Block, q: Block, generator: torch.Generator) -> Coupled:
        units = serving.units_of([p.hamiltonian.units(part)[1][0] for part in p.parts], p.values)
        widths = [field.shape[1] for field in p.fields]
        x, y = p.fields[0].new_empty(2 * p.rows, sum(widths)).chunk(2)
        tries = x.new_empty(p.rows, dtype=torch.int64)
        serving.over_rows("couple", p.rows, p.field, q.field, *units, _random.key(generator), x, y, tries)
        if len(widths) == 1:  # the halves of one tensor
            return Coupled([x], [y], tries)
        return Coupled(list(torch.split(x, widths, 1)), list(torch.split(y, widths, 1)), tries)

    def _reject(
        self, p: Block, q: Block, x: list[Tensor], y: list[Tensor], rows: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Fills y, and with common noise x, at rows; the first accepted of several proposals counts."""
        tries = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
        open_x = torch.full((len(rows),), self.common_noise, device=rows.device)
        open_y = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        proposals = 1
        while bool(open_y.any() | open_x.any()):
            waiting = (open_x | open_y).nonzero().squeeze(-1)
            proposals = max(1, min(proposals, _MAX_PROPOSALS // len(waiting)))
            repeated = waiting.repeat_interleave(proposals)
            some_p, some_q = p.take(repeated), q.take(repeated)
            noise = some_p.noise(len(repeated), generator)
            for this, other, out, still in ((some_p, some_q, x, open_x), (some_q, some_p, y, open_y)):
                if not bool(still[waiting].any()):
                    continue
                drawn = this.sample(noise)
                # What the other law leaves over: kept where the maximal step would not have kept it.
                kept = ~accept(this.log_ratio(other, drawn), generator)
                kept = kept.view(-1, proposals) & still[waiting].unsqueeze(-1)
                found = kept.any(-1)
                first = kept.int().argmax(-1) + torch.arange(len(waiting), device=rows.device) * proposals
                for value, new in zip(out, drawn, strict=True):
                    value[rows[waiting[found]]] = new[first[found]]
                still[waiting[found]] = False
            tries[waiting] += proposals
            proposals *= 2
        return tries

    def __repr__(self) -> str:
        return f"Maximal(common_noise={self.common_noise})"
