"""Rungs that are moved and weighed together: temperatures of one machine, or machines one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import final

import torch
from torch import Tensor

from harmonium.ladder.rungs import Rung, fields_of, hamiltonian_of, hamiltonians_of
from harmonium.machine import Hamiltonian


@final
@dataclass(frozen=True, eq=False)
class Stretch:
    """Neighbouring rungs whose couplings differ by a factor alone, as one distribution with rows for each.

    Attributes:
        rows: Rows of its rungs among those of all rungs, each of which has its chains side by side.
        hamiltonian: the distribution, with θ and β by row where there are several rungs.
    """

    rows: slice
    hamiltonian: Hamiltonian

    def weigh(
        self, states: Sequence[Tensor], known: Mapping[int, Tensor]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Returns F of states, for each layer (rows, width_l), and the fields of summed layers.

        Args:
            states: States of these rungs, or others in their place.
            known: Fields of summed layers that are known already, by layer (rows, width_l).

        Returns:
            F, (rows,) float64, and fields by layer, (rows, width_l).
        """
        fields = fields_of(self.hamiltonian, states, known)
        return self.hamiltonian.free_energy(states, self.hamiltonian.graph.summed, fields), fields


def join_rungs(
    hamiltonian: Hamiltonian, rungs: Sequence[Rung], factors: Sequence[Sequence[float]], chains: int
) -> list[Stretch]:
    """Returns rung 0, the others below the top in as few stretches as they make, and the top.

    Args:
        hamiltonian: the distribution at the top, with what is held in its chains.
        rungs: those below it, from the bottom, and
        factors: their ``cut_rungs``.
        chains: at every rung.
    """
    # No distribution depends on c, which β by row would multiply.
    machines = hamiltonians_of(replace(hamiltonian, constant=0.0), rungs)
    stretches, first = list[Stretch](), 0
    for betas in (*factors, [1.0]):
        last, machine = first + len(betas), machines[first]
        if len(betas) > 1:
            by_rung = zip(
                *(rung[: len(rung) - len(hamiltonian.J)] for rung in rungs[first:last]), strict=True
            )
            by_row = [torch.stack(theta).repeat_interleave(chains, 0) for theta in by_rung]
            rows = torch.arange(chains, device=hamiltonian.device).repeat(len(betas))
            machine = hamiltonian_of(machine.select_rows(rows), [*by_row, *machine.J])
            beta = torch.tensor(betas, dtype=machine.dtype, device=hamiltonian.device)
            machine = machine.tempered(beta.repeat_interleave(chains).unsqueeze(-1))
        stretches.append(Stretch(slice(first * chains, last * chains), machine))
        first = last
    return stretches


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
