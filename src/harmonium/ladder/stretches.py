"""Rungs that are moved and weighed together: temperatures of one machine, or machines one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import final

import torch
from torch import Tensor

from harmonium.ladder.rungs import Rung, as_rung, hamiltonian_of
from harmonium.machine import Hamiltonian


@final
@dataclass(frozen=True, eq=False)
class Stretch:
    """Neighbouring rungs whose couplings differ by a factor alone, as one distribution with rows for each.

    Attributes:
        rows: Rows of its rungs among those of all rungs, each of which has its chains side by side.
        hamiltonian: the distribution, with θ and β by row where there are several rungs.
        couplings: The same couplings at β = 1, by which a state is multiplied once for all rungs.
        windows: Rows of these rungs and of those that exchange with them, in even and in odd rounds.
        partners: Places in the window of the rows that each exchanges with, (rows,), in even and odd rounds.
    """

    rows: slice
    hamiltonian: Hamiltonian
    couplings: Hamiltonian
    windows: list[slice]
    partners: list[Tensor]

    def free_energies(
        self, states: Sequence[Tensor], odd: int, known: Mapping[int, Tensor]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Finds F of the states of these rungs and of those that exchange with them, both under these rungs.

        What layers that are not summed out have without couplings is left out: see ``Ways.weigh_change``.

        Args:
            states: of all rungs, for each layer (rungs · chains, width_l).
            odd: 1 in odd rounds.
            known: fields of summed layers given the states of these rungs, by layer, if it is one rung.

        Returns:
            F, (2, rows) float64, and the fields of summed layers at β = 1, by layer (rows of the window,
            width_l).
        """
        graph, window, partners = self.hamiltonian.graph, self.windows[odd], self.partners[odd]
        own = slice(self.rows.start - window.start, self.rows.stop - window.start)
        near, fields = [x[window] for x in states], dict[int, Tensor]()
        ours = theirs = torch.zeros(len(partners), dtype=torch.float64, device=partners.device)
        for l in graph.summed:
            if l in known:  # the window has one rung more at most, below or above
                beside = [x[own.stop :] if own.start == 0 else x[: own.start] for x in near]
                parts = known[l], self.couplings.field(l, beside)
                fields[l] = torch.cat(parts if own.start == 0 else parts[::-1])
            else:
                fields[l] = self.couplings.field(l, near)
            ours = ours - self._sum_out(l, fields[l][own])
            theirs = theirs - self._sum_out(l, fields[l].index_select(0, partners))
        if any(l in graph.unsummed and m in graph.unsummed for l, m in graph.edges):
            energy = self.couplings.coupling_energy(near, graph.unsummed)
            ours = ours - self.hamiltonian.beta_times(energy[own])
            theirs = theirs - self.hamiltonian.beta_times(energy.index_select(0, partners))
        return torch.stack((ours, theirs)), fields

    def _sum_out(self, l: int, field: Tensor) -> Tensor:
        return self.hamiltonian.summed_weight(l, self.hamiltonian.beta_times(field))


@final
@dataclass(frozen=True, eq=False)
class Ways:
    """All rungs of a ladder from rung 0 to the top, with the ways that states may go in even and odd rounds.

    Attributes:
        stretches: rung 0, the others below the top in as few stretches as they make, and the top.
        partners: the row that each exchanges with, itself at an end that has none, (rows,), by parity.
        changes: by parity and layer what θ has more at the rung that each exchanges with, (rungs, width_l).
    """

    stretches: list[Stretch]
    partners: list[Tensor]
    changes: list[tuple[tuple[Tensor, ...], ...]]

    @classmethod
    def along(
        cls, hamiltonian: Hamiltonian, rungs: Sequence[Rung], factors: Sequence[Sequence[float]], chains: int
    ) -> Ways:
        """Finds the ways from rungs, from the bottom, to a distribution with what is held in its chains.

        Args:
            hamiltonian: the distribution at the top.
            rungs: those below it, and
            factors: their ``cut_rungs``.
            chains: at every rung.
        """
        layers, top, device = len(rungs[0]) - len(hamiltonian.J), len(rungs), hamiltonian.device
        place = torch.arange((top + 1) * chains, device=device).view(top + 1, chains)
        every, stretches = [*rungs, as_rung(hamiltonian)], list[Stretch]()
        across = [
            [min(max(r + (1 if r % 2 == odd else -1), 0), top) for r in range(top + 1)] for odd in (0, 1)
        ]
        for several in (*factors, [1.0]):
            first = 0 if not stretches else stretches[-1].rows.stop // chains
            own = range(first, first + len(several))
            windows = [
                range(min(own[0], *to[own[0] : own.stop]), max(own[-1], *to[own[0] : own.stop]) + 1)
                for to in across
            ]
            joint = one = hamiltonian if first == top else hamiltonian_of(hamiltonian, every[first])
            if len(own) > 1:
                same_of = zip(*(every[r][:layers] for r in own), strict=True)
                by_row = [torch.stack(same).repeat_interleave(chains, 0) for same in same_of]
                joint = hamiltonian_of(one.select_rows(place[0].repeat(len(own))), [*by_row, *one.J])
                beta = torch.tensor(several, dtype=one.dtype, device=device).repeat_interleave(chains)
                joint = joint.tempered(beta.unsqueeze(-1))
            made = Stretch(
                slice(first * chains, own.stop * chains),
                joint,
                replace(one, held=None, beta=1.0),
                [slice(window[0] * chains, window.stop * chains) for window in windows],
                [
                    (place[to[first : own.stop]] - window[0] * chains).flatten()
                    for to, window in zip(across, windows, strict=True)
                ],
            )
            stretches.append(made)
        thetas = [torch.stack(same) for same in zip(*(rung[:layers] for rung in every), strict=True)]
        changes = [
            hamiltonian_of(hamiltonian, [*(p[to] - p for p in thetas), *hamiltonian.J]).thetas
            for to in across
        ]
        return cls(stretches, [place[to].flatten() for to in across], changes)

    def weigh_change(self, kept: Sequence[int], states: Sequence[Tensor], odd: int) -> Tensor:
        """Returns what θ of kept layers takes off F where states change their rungs, (rungs, chains) float64.

        Args:
            kept: layers that are not summed out.
            states: of all rungs, for each layer (rungs · chains, width_l).
            odd: 1 in odd rounds.
        """
        layers, rungs = self.stretches[0].hamiltonian.layers, len(self.changes[odd][0][0])
        total = torch.zeros((), dtype=torch.float64, device=states[0].device)
        for l in kept:
            pairs = zip(states[l].chunk(rungs), zip(*self.changes[odd][l], strict=True), strict=True)
            # One rung after the other, which takes a quarter of torch's time for all of them.
            total = total + torch.stack([layers[l].log_weight(x, theta) for x, theta in pairs]).double()
        return total


def cut_rungs(like: Hamiltonian, rungs: Sequence[Rung]) -> list[list[float]]:
    """Returns for every stretch of rungs how many times the couplings of its first each of them has."""
    factors, first = list[list[float]](), list[Tensor]()
    for rung in rungs:
        J = rung[len(rung) - len(like.J) :]
        factor = _find_factor(first, J) if factors else None
        if factor is None:
            factors.append([1.0])
            first = J
        else:
            factors[-1].append(factor)
    return factors


def _find_factor(low: Sequence[Tensor], high: Sequence[Tensor]) -> float | None:
    """Returns by how much couplings differ from others up to rounding; None: not by a factor alone."""
    square = sum(float(x.double().square().sum()) for x in low)
    product = sum(float((x.double() * y.double()).sum()) for x, y in zip(low, high, strict=True))
    factor = product / square if square else nan
    near = ((y - factor * x, 8 * torch.finfo(y.dtype).eps * y.abs()) for x, y in zip(low, high, strict=True))
    return factor if all(bool((away.abs() <= rounding).all()) for away, rounding in near) else None
