"""One move of Gaussian layers towards what their neighbours ask for: the core of both Langevin kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium.chains.gibbs import Gibbs
from harmonium.chains.kernel import Info, KernelState
from harmonium.chains.metropolis import metropolis_test
from harmonium.machine import Hamiltonian, States


class Relaxation(NamedTuple):
    """x' ~ N(m + keep (x - m), (spread σ)²) for every Gaussian unit, with m its mean given its neighbours.

    A sweep draws the discrete layers of a colour given the other colour, moves the Gaussian layers of that
    colour, and draws the other colour anew. Clamped entries stay, and count as given in every density.

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

    def step(
        self, hamiltonian: Hamiltonian, state: KernelState, generator: torch.Generator
    ) -> tuple[KernelState, Info]:
        """Moves the chains by a sweep; what the last one knows is half the work of a Metropolis test.

        Raises:
            ValueError: a machine without a Gaussian layer, or a graph that two colours do not suffice for.
        """
        real = [l for l, layer in enumerate(hamiltonian.layers) if layer.gaussian]
        if not real:
            raise ValueError(
                "machine: expected a Gaussian layer for a Langevin kernel, received "
                + ", ".join(layer.kind for layer in hamiltonian.layers)
            )
        moving = [l for l in real if not hamiltonian.fixes(l)]
        if not moving:
            return Gibbs().step(hamiltonian, state, generator)
        states, known = list(state.states), dict(state.fields)
        log_marginal: Tensor | None = state.known
        diagnostics: list[tuple[Tensor, Tensor]] = []
        sides = hamiltonian.graph.sides("a Langevin kernel")
        for own, others in (sides, sides[::-1]):
            block = _Block(hamiltonian, generator, [l for l in moving if l in own], others)
            if block.moving:
                if block.draw_discrete(states, known, own) or diagnostics:
                    log_marginal = None
                log_marginal, *numbers = self._move(block, states, known, log_marginal)
                diagnostics.append((numbers[0], numbers[1]))
        names = ("acceptance", "squared_jump")
        totals = torch.stack([torch.stack(pair) for pair in diagnostics]).mean(0)
        kept = log_marginal if len(diagnostics) == 1 else None  # the next sweep begins with the same block
        after = KernelState(states, state.sweeps + 1, state.own, known, kept)
        return after, dict(zip(names, totals, strict=True))

    def _move(
        self, block: _Block, states: States, known: dict[int, Tensor], log_marginal: Tensor | None
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """Moves the block in ``states``, whose fields and marginal density may be known.

        Returns:
            The density where the states are now, if it is known, and two diagnostics.
        """
        fields = block.fields(block.others, states, known) if self.adjusted or self.collapsed else {}
        pulls = self._pulls(block, states, fields, known)
        centres = block.centres(pulls)
        proposal = list(states)
        for l in block.moving:
            ahead = torch.lerp(centres[l], states[l], self.keep)
            noise = block.hamiltonian.noise(l, len(ahead), block.generator)
            proposal[l] = block.hamiltonian.hold(l, ahead.addcmul_(noise, self.spread * block.deviations[l]))
        proposed_fields = block.fields(block.others, proposal, {})
        if not self.collapsed:
            block.draw(proposal, proposed_fields)
        reached: Tensor | None = None
        if self.adjusted:
            back = self._pulls(block, proposal, proposed_fields, {})
            if log_marginal is None:
                log_marginal = block.log_marginal(states, fields)
            reached = block.log_marginal(proposal, proposed_fields)
            gain = reached - log_marginal
            gain += self._log_density(block, states, proposal, block.centres(back))
            gain -= self._log_density(block, proposal, states, centres)
            taken = metropolis_test(gain, block.generator)
            reached = torch.where(taken, reached, log_marginal)
        else:
            taken = torch.ones(len(states[0]), dtype=torch.bool, device=block.hamiltonian.device)
        jump = torch.zeros_like(taken, dtype=block.hamiltonian.dtype)
        units = 0
        for l in block.moving:
            jump += ((proposal[l] - states[l]) / block.deviations[l]).square().sum(-1)
            units += states[l].shape[-1]
        if self.adjusted:
            rows = taken.unsqueeze(-1)
            for new, old in zip(proposal, states, strict=True):
                if new is not old:
                    torch.where(rows, new, old, out=new)
            for l, new in proposed_fields.items():
                torch.where(rows, new, fields[l], out=new)
        known.clear()
        known.update(proposed_fields)
        if self.collapsed:
            block.draw(proposal, proposed_fields)
        elif self.adjusted:
            known.update({l: torch.where(rows, new, pulls[l]) for l, new in back.items()})
        states[:] = proposal
        return reached, taken.to(jump.dtype).mean(), (taken * jump).mean() / units

    def _pulls(
        self, block: _Block, states: States, fields: dict[int, Tensor], known: Mapping[int, Tensor]
    ) -> dict[int, Tensor]:
        """Fields of the moving layers, given the other colour or the means that it has in these fields."""
        if self.collapsed:
            return block.fields(block.moving, block.at_means(states, fields), {})
        return block.fields(block.moving, states, known)

    def _log_density(self, block: _Block, to: States, start: States, centres: dict[int, Tensor]) -> Tensor:
        """ln q(to | start) of the free units, up to a constant: (batch,)."""
        total = torch.zeros(len(to[0]), dtype=torch.float64, device=block.hamiltonian.device)
        for l in block.moving:
            z = to[l] - torch.lerp(centres[l], start[l], self.keep)
            z = block.free(l, z / (self.spread * block.deviations[l]))
            total -= 0.5 * z.square().sum(-1, dtype=torch.float64)
        return total


class _Block:
    """Gaussian layers of one colour, and the layers of the other colour as what they depend on."""

    def __init__(
        self,
        hamiltonian: Hamiltonian,
        generator: torch.Generator,
        moving: list[int],
        others: Sequence[int],
    ) -> None:
        self.hamiltonian, self.generator = hamiltonian, generator
        self.moving = moving
        self.others = others
        self.deviations = {l: hamiltonian.thetas[l][1].rsqrt() for l in moving}

    def draw_discrete(self, states: States, known: dict[int, Tensor], own: Sequence[int]) -> bool:
        """Draws the layers of the colour that do not move, and forgets the other's fields; whether any."""
        drawn = [l for l in own if l not in self.moving and not self.hamiltonian.fixes(l)]
        self.draw(states, self.fields(drawn, states, known))
        if drawn:
            for l in self.others:
                known.pop(l, None)
        return bool(drawn)

    def draw(self, states: States, fields: dict[int, Tensor]) -> None:
        """Draws layers of one colour given their fields."""
        for l, field in fields.items():
            if not self.hamiltonian.fixes(l):
                states[l] = self.hamiltonian.hold(l, self.hamiltonian.sample(l, field, self.generator))

    def fields(self, layers: Sequence[int], states: States, known: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Fields of layers of one colour, with those that are known already."""
        return {l: known[l] if l in known else self.hamiltonian.field(l, states) for l in layers}

    def at_means(self, states: States, fields: dict[int, Tensor]) -> States:
        """The states with the other colour at its conditional means."""
        result = list(states)
        for l, field in fields.items():
            result[l] = self.hamiltonian.hold(l, self.hamiltonian.mean(l, field))
        return result

    def centres(self, fields: dict[int, Tensor]) -> dict[int, Tensor]:
        return {l: self.hamiltonian.mean(l, field) for l, field in fields.items()}

    def log_marginal(self, states: States, fields: dict[int, Tensor]) -> Tensor:
        """ln of the moving layers' density with the free units of the other colour summed out: (batch,)."""
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
        return (
            None
            if self.hamiltonian.held is None
            else self.hamiltonian.hold(l, torch.full_like(like, torch.nan))
        )
