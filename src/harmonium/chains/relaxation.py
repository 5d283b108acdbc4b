"""One move of Gaussian layers towards what their neighbours ask for: the core of both Langevin kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium.chains.gibbs import Gibbs
from harmonium.chains.kernel import Step
from harmonium.chains.metropolis import metropolis_test
from harmonium.machine import Clamp, Hamiltonian, States


class Relaxation(NamedTuple):
    """x' ~ N(m + keep (x - m), (spread σ)²) for every Gaussian unit, with m its mean given its neighbours.

    A sweep draws the discrete layers of a parity given the other parity, moves the Gaussian layers of that
    parity, and draws the other parity anew. Clamped entries stay, and count as given in every density.

    Attributes:
        keep: what is kept of the distance to the mean.
        spread: of the noise, in units of σ.
        collapsed: m is taken at the conditional means of the neighbours, which are summed out (Langevin on
            the marginal density), rather than at their states.
        adjusted: whether a Metropolis test follows, which makes the machine's law invariant.
    """

    keep: float
    spread: float
    collapsed: bool
    adjusted: bool

    def sweep(
        self, hamiltonian: Hamiltonian, states: Sequence[Tensor], clamp: Clamp, generator: torch.Generator
    ) -> Step:
        """A sweep as of a ``Kernel``.

        Raises:
            ValueError: a machine without a Gaussian layer.
        """
        real = [l for l, layer in enumerate(hamiltonian.layers) if layer.gaussian]
        if not real:
            raise ValueError(
                "machine: expected a Gaussian layer for a Langevin kernel, received "
                + ", ".join(layer.kind for layer in hamiltonian.layers)
            )
        moving = [l for l in real if not clamp.fixes(l)]
        if not moving:
            return Gibbs().sweep(hamiltonian, states, clamp, generator)
        moved = list(states)
        fields: dict[int, Tensor] = {}
        diagnostics: list[tuple[Tensor, Tensor]] = []
        for own, other in ((0, 1), (1, 0)):
            block = _Block(hamiltonian, clamp, generator, [l for l in moving if l % 2 == own], other)
            if block.moving:
                block.draw_discrete(moved, own)
                fields, *numbers = self._move(block, moved)
                diagnostics.append((numbers[0], numbers[1]))
        names = ("acceptance", "squared_jump")
        totals = torch.stack([torch.stack(pair) for pair in diagnostics]).mean(0).tolist()
        known = fields if all(l % 2 == 0 for l in moving) else {}
        return Step(moved, known, dict(zip(names, totals, strict=True)))

    def _move(self, block: _Block, states: States) -> tuple[dict[int, Tensor], Tensor, Tensor]:
        """Moves the block in ``states``; returns the fields of the other parity and two diagnostics."""
        fields = block.fields(states) if self.adjusted or self.collapsed else {}
        centres = block.centres(block.at_means(states, fields) if self.collapsed else states)
        proposal = list(states)
        for l in block.moving:
            ahead = torch.lerp(centres[l], states[l], self.keep)
            noise = block.hamiltonian.noise(l, len(ahead), block.generator)
            proposal[l] = block.clamp.apply(l, ahead.addcmul_(noise, self.spread * block.deviations[l]))
        proposed_fields = block.fields(proposal)
        if not self.collapsed:
            block.draw(proposal, proposed_fields)
        if self.adjusted:
            back = block.at_means(proposal, proposed_fields) if self.collapsed else proposal
            gain = block.log_marginal(proposal, proposed_fields) - block.log_marginal(states, fields)
            gain += self._log_density(block, states, proposal, block.centres(back))
            gain -= self._log_density(block, proposal, states, centres)
            taken = metropolis_test(gain, block.generator)
        else:
            taken = torch.ones(len(states[0]), dtype=torch.bool, device=block.hamiltonian.device)
        jump = torch.zeros_like(taken, dtype=block.hamiltonian.dtype)
        units = 0
        for l in block.moving:
            jump += ((proposal[l] - states[l]) / block.deviations[l]).square().sum(-1)
            units += states[l].shape[-1]
        if self.adjusted:
            rows = taken.unsqueeze(-1)
            proposal = [torch.where(rows, new, old) for new, old in zip(proposal, states, strict=True)]
            proposed_fields = {l: torch.where(rows, new, fields[l]) for l, new in proposed_fields.items()}
        if self.collapsed:
            block.draw(proposal, proposed_fields)
        states[:] = proposal
        return proposed_fields, taken.to(jump.dtype).mean(), (taken * jump).mean() / units

    def _log_density(self, block: _Block, to: States, start: States, centres: dict[int, Tensor]) -> Tensor:
        """ln q(to | start) of the free units, up to a constant: (batch,)."""
        total = torch.zeros(len(to[0]), dtype=torch.float64, device=block.hamiltonian.device)
        for l in block.moving:
            z = to[l] - torch.lerp(centres[l], start[l], self.keep)
            z = block.free(l, z / (self.spread * block.deviations[l]))
            total -= 0.5 * z.square().sum(-1, dtype=torch.float64)
        return total


class _Block:
    """Gaussian layers of one parity, and the layers of the other parity as what they depend on."""

    def __init__(
        self,
        hamiltonian: Hamiltonian,
        clamp: Clamp,
        generator: torch.Generator,
        moving: list[int],
        other: int,
    ) -> None:
        self.hamiltonian, self.clamp, self.generator = hamiltonian, clamp, generator
        self.moving = moving
        self.others = hamiltonian.parity("odd" if other else "even")
        self.deviations = {l: hamiltonian.thetas[l][1].rsqrt() for l in moving}

    def draw_discrete(self, states: States, parity: int) -> None:
        """Draws the layers of the parity that do not move, given the other parity."""
        for l in self.hamiltonian.parity("odd" if parity else "even"):
            if l not in self.moving and not self.clamp.fixes(l):
                field = self.hamiltonian.field(l, states)
                states[l] = self.clamp.apply(l, self.hamiltonian.sample(l, field, self.generator))

    def draw(self, states: States, fields: dict[int, Tensor]) -> None:
        """Draws the other parity."""
        for l, field in fields.items():
            if not self.clamp.fixes(l):
                states[l] = self.clamp.apply(l, self.hamiltonian.sample(l, field, self.generator))

    def fields(self, states: States) -> dict[int, Tensor]:
        return {l: self.hamiltonian.field(l, states) for l in self.others}

    def at_means(self, states: States, fields: dict[int, Tensor]) -> States:
        """The states with the other parity at its conditional means."""
        result = list(states)
        for l, field in fields.items():
            result[l] = self.clamp.apply(l, self.hamiltonian.mean(l, field))
        return result

    def centres(self, states: States) -> dict[int, Tensor]:
        return {l: self.hamiltonian.mean(l, self.hamiltonian.field(l, states)) for l in self.moving}

    def log_marginal(self, states: States, fields: dict[int, Tensor]) -> Tensor:
        """ln of the moving layers' density with the free units of the other parity summed out: (batch,)."""
        total = torch.stack([self.hamiltonian.log_weight(l, states[l]).double() for l in self.moving]).sum(0)
        for l, field in fields.items():
            layer = self.hamiltonian.layers[l]
            value = layer.log_partition(field, theta=self.hamiltonian.thetas[l])
            held = self._held(l, field)
            if held is not None:
                given = (layer.by_unit(field) * layer.by_unit(held)).sum(-1)
                value = torch.where(given.isnan(), value, given)
            total = total + value.sum(-1, dtype=torch.float64)
        return total

    def free(self, l: int, x: Tensor) -> Tensor:
        """x with zero at held entries."""
        held = self._held(l, x)
        return x if held is None else torch.where(held.isnan(), x, 0.0)

    def _held(self, l: int, like: Tensor) -> Tensor | None:
        """The held values of a layer, NaN where it is free; None where nothing at all is held."""
        return None if self.clamp.empty else self.clamp.apply(l, torch.full_like(like, torch.nan))
