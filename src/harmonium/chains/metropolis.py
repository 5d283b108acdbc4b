"""Metropolis sampling with uniform proposals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Literal, final

import torch
from torch import Tensor

from harmonium import _checks, _host, _random
from harmonium.chains.kernel import Kernel, Step
from harmonium.machine import Hamiltonian, Part


@final
class Metropolis(Kernel):
    """Metropolis moves with symmetric proposals.

    A discrete unit proposes any of its states, a real one x + step·N(0, 1).

    Args:
        scope: "unit": every unit accepts or refuses on its own, colour by colour of the graph (units of a
            colour are independent given the rest, so all of them may move at once). "state": one
            proposal and one decision for the whole state, A = min(1, exp(E(x) - E(x'))) (Taniguchi et al.
            2023, §3.2).
        step: standard deviation of the proposals of real units, > 0.
    """

    invariant = True

    def __init__(self, scope: Literal["unit", "state"] = "unit", *, step: float = 1.0) -> None:
        self.scope = _checks.one_of(scope, "scope", ("unit", "state"))
        self.step = _checks.real(step, "step", low=torch.finfo(torch.float32).tiny)

    def sweep(self, hamiltonian: Hamiltonian, states: Sequence[Tensor], generator: torch.Generator) -> Step:
        if self.scope == "state":
            return self._whole(hamiltonian, states, generator)
        moved = list(states)
        fields: dict[int, Tensor] = {}
        accepted = []
        for part in chain.from_iterable(hamiltonian.graph.colours):
            l = part.layer
            if hamiltonian.fixes(l):
                continue
            field = hamiltonian.field(part, moved)
            layer, theta = hamiltonian.units(part)
            now = part.taken(moved[l])
            proposal = self._propose(hamiltonian, part, now, generator)
            proposal = part.taken(hamiltonian.hold(l, part.put(proposal, moved[l])))
            # Normalisers cancel in the difference.
            gain = layer.log_conditional(proposal, field, theta) - layer.log_conditional(now, field, theta)
            accept = metropolis_test(gain, generator)
            accepted.append(accept.float().mean())
            by_unit = _host.where(accept.unsqueeze(-1), layer.by_unit(proposal), layer.by_unit(now))
            moved[l] = part.put(by_unit.flatten(-2), moved[l])
            if l in hamiltonian.graph.summed:
                fields[l] = field
        return Step(moved, fields, {"acceptance": torch.stack(accepted).mean() if accepted else 1.0})

    def _whole(self, hamiltonian: Hamiltonian, states: Sequence[Tensor], generator: torch.Generator) -> Step:
        proposal = [self._propose(hamiltonian, l, x, generator) for l, x in enumerate(states)]
        proposal = hamiltonian.hold_all(proposal)
        accept = metropolis_test(hamiltonian.energy(states) - hamiltonian.energy(proposal), generator)
        moved = [
            torch.where(accept.unsqueeze(-1), new, old) for new, old in zip(proposal, states, strict=True)
        ]
        return Step(moved, {}, {"acceptance": accept.float().mean()})

    def _propose(
        self, hamiltonian: Hamiltonian, l: int | Part, x: Tensor, generator: torch.Generator
    ) -> Tensor:
        return hamiltonian.units(l)[0].propose(x, hamiltonian.noise(l, len(x), generator), self.step)

    def __repr__(self) -> str:
        return f"Metropolis({self.scope!r}, step={self.step:g})"


def metropolis_test(gain: Tensor, generator: torch.Generator) -> Tensor:
    """Which proposals are taken, each with probability min(1, exp(gain)), as booleans of the gain's shape."""
    # u < exp(gain) in log space; u is never 0 as 1 - u is never 0.
    u = _random.uniform(gain.shape, generator, torch.float64)
    return torch.log1p(-u) < gain
