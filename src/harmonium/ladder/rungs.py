"""Rungs of a ladder: machines as lists of natural parameters, their states, and where to put them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium.chains import Gibbs, KernelState, run_kernel
from harmonium.machine import BoltzmannMachine, Hamiltonian, States, fitted_layer

Rung = list[Tensor]
"""The natural parameters of a machine: those of every layer, (width_l,), then J of every edge."""

_FOOT, _FOOT_SWEEPS = 1000, 50  # of a pilot run, for moments of the foot to 0.03: it may lie anywhere
PILOTS = 200  # acceptances to about 0.03, for a twentieth of the time of ten chains each
_CLIMB_SWEEPS = 3  # of states that come from the rung below: a start, which no result rests on
_SWEEPS = 5  # of pilots that were drawn by weights, among which a few states are repeated
_BISECTIONS = 12  # to 1/4096 of the way


def as_rung(machine: BoltzmannMachine | Hamiltonian, name: str = "machine") -> Rung:
    """Returns the natural parameters of a machine, each (width_l,) or (width_l, width_m), detached.

    Raises:
        TypeError: no machine.
        ValueError: a distribution whose parameters differ by row.
    """
    hamiltonian = machine.hamiltonian() if isinstance(machine, BoltzmannMachine) else machine
    _checks.instance(hamiltonian, name, Hamiltonian, "a BoltzmannMachine")
    if not isinstance(hamiltonian.beta, float) or any(
        p.dim() != 1 for theta in hamiltonian.thetas for p in theta
    ):
        raise ValueError(f"{name}: expected one distribution for all rows, received one that differs by row")
    J = hamiltonian.J if hamiltonian.beta == 1.0 else [hamiltonian.beta * edge for edge in hamiltonian.J]
    return [x.detach() for x in (*chain.from_iterable(hamiltonian.thetas), *J)]


def hamiltonian_of(like: Hamiltonian, rung: Sequence[Tensor]) -> Hamiltonian:
    """Returns the Hamiltonian of a rung, with the layers, the graph and the held entries of another one."""
    rest = iter(rung)
    thetas = tuple(tuple(next(rest) for _ in theta) for theta in like.thetas)
    J, offset = tuple(rest), float(like.offset)
    return Hamiltonian(like.layers, like.graph, thetas, J, 1.0, like.held, offset)  # type: ignore[arg-type]


def hamiltonians_of(hamiltonian: Hamiltonian, rungs: Sequence[Sequence[Tensor]]) -> list[Hamiltonian]:
    """Returns the distributions of some rungs, then the distribution that they lead to."""
    return [*(hamiltonian_of(hamiltonian, rung) for rung in rungs), hamiltonian]


def mix(low: Sequence[Tensor], high: Sequence[Tensor], t: float) -> Rung:
    """Returns (1 - t) of one rung and t of another, in natural parameters, shaped as they are."""
    return [torch.lerp(x, y, t) for x, y in zip(low, high, strict=True)]


def require_bottom(like: Hamiltonian | None, rungs: Sequence[Sequence[Tensor]]) -> None:
    """Refuses rungs that do not begin with independent units, are not finite, or not of a machine's graph.

    Raises:
        ValueError: naming the rung.
    """
    if not rungs:
        raise ValueError("rungs: expected at least one machine, without couplings, received none")
    expected = [tuple(x.shape) for x in (rungs[0] if like is None else as_rung(like))]
    for r, rung in enumerate(rungs):
        received = [tuple(x.shape) for x in rung]
        if received != expected:
            raise ValueError(f"rungs[{r}]: expected parameters of shapes {expected}, received {received}")
        for x in rung:
            _checks.finite(x, f"rungs[{r}]")
    couplings = [x for x in rungs[0] if x.dim() == 2]
    if like is not None:  # those that are stored by pair have one dimension too
        couplings = list(rungs[0][len(rungs[0]) - len(like.J) :])
    if any(bool(J.any()) for J in couplings):
        raise ValueError(
            "rungs[0]: expected a machine whose couplings are all 0, whose units are independent, received "
            f"couplings up to {max(float(J.abs().max()) for J in couplings):.3g}"
        )


def fields_of(
    hamiltonian: Hamiltonian, states: Sequence[Tensor], known: Mapping[int, Tensor] | None = None
) -> dict[int, Tensor]:
    """Returns the fields of the layers that are summed out, by layer (rows, width_l)."""
    known = known or {}
    return {l: known[l] if l in known else hamiltonian.field(l, states) for l in hamiltonian.graph.summed}


def complete(
    hamiltonian: Hamiltonian,
    states: Sequence[Tensor],
    fields: Mapping[int, Tensor],
    generator: torch.Generator,
) -> States:
    """Returns states, (rows, width_l), with the summed layers drawn from their fields."""
    drawn = list(states)
    for l in hamiltonian.graph.summed:
        if not hamiltonian.is_clamped(l):
            drawn[l] = hamiltonian.apply_clamp(l, hamiltonian.sample(l, fields[l], generator))
    return drawn


def settle(hamiltonian: Hamiltonian, states: States, generator: torch.Generator, sweeps: int) -> States:
    """Returns states of another rung, for each layer (chains, width_l), after some sweeps at it."""
    begun = KernelState(complete(hamiltonian, states, fields_of(hamiltonian, states), generator), 0)
    return list(run_kernel(hamiltonian, Gibbs(), begun, sweeps, generator).states)


def fill_rungs(hamiltonians: Sequence[Hamiltonian], chains: int, generator: torch.Generator) -> list[States]:
    """Returns states of every rung, (chains, width_l): exact draws of rung 0, moved up by a few sweeps."""
    states = [hamiltonians[0].draw_independent(chains, generator)]
    for hamiltonian in hamiltonians[1:]:
        states.append(settle(hamiltonian, states[-1], generator, _CLIMB_SWEEPS))
    return states


def space_rungs(
    hamiltonian: Hamiltonian,
    generator: torch.Generator,
    acceptance: float,
    max_rungs: int,
    data: Sequence[Tensor] | None = None,
) -> list[Rung]:
    """Finds machines on the straight way from independent units to another, exchanges between which succeed.

    The units at its foot have the marginal moments of data or of a pilot run from noise. From rung to rung,
    200 pilots are drawn by their weights and moved by a few sweeps; they tell how far the next rung may be.
    This is no more than annealing: a mode that the pilots never see decides nothing, and the gaps are
    too wide for it.

    Returns:
        The rungs below the distribution, which holds nothing, from the bottom; at least one.

    Raises:
        ValueError: more rungs would be needed.
    """
    if data is None:
        noise = KernelState(
            [hamiltonian.pure_noise(l, _FOOT, generator) for l in range(hamiltonian.graph.size)], 0
        )
        data = run_kernel(hamiltonian, Gibbs(), noise, _FOOT_SWEEPS, generator).states
    foot = _independent(hamiltonian, data)
    pilots = Pilots.at_bottom(hamiltonian_of(hamiltonian, foot), generator)
    return [foot, *pilots.reach(hamiltonian, acceptance, max_rungs - 1, generator)[0]]


def _independent(hamiltonian: Hamiltonian, states: Sequence[Tensor]) -> Rung:
    """Returns independent units halfway between noise and the marginal moments of states, (rows, width_l).

    At the moments themselves, a foot leans to the modes that a pilot run has happened to see more often.
    """
    layers = [fitted_layer(layer, x) for layer, x in zip(hamiltonian.layers, states, strict=True)]
    thetas = [
        (p.detach().to(hamiltonian.dtype) + q) / 2
        for layer, theta in zip(hamiltonian.layers, hamiltonian.with_layers(layers).thetas, strict=True)
        for p, q in zip(theta, layer.reference(), strict=True)
    ]
    return [*thetas, *map(torch.zeros_like, hamiltonian.J)]


class Pilots(NamedTuple):
    """States that follow a rung, and tell how far exchanges with it reach.

    Attributes:
        hamiltonian: Distribution of the rung.
        states: Pilots, for each layer (200, width_l).
    """

    hamiltonian: Hamiltonian
    states: States

    @classmethod
    def at_bottom(cls, hamiltonian: Hamiltonian, generator: torch.Generator) -> Pilots:
        """Draws pilots of independent units."""
        return cls(hamiltonian, hamiltonian.draw_independent(PILOTS, generator))

    def move_to(self, hamiltonian: Hamiltonian, generator: torch.Generator) -> Pilots:
        """Returns the pilots after some sweeps of the next rung."""
        return Pilots(hamiltonian, settle(hamiltonian, self.states, generator, _CLIMB_SWEEPS))

    def acceptance(self, hamiltonian: Hamiltonian) -> float:
        """Returns how often exchanges with another distribution would succeed."""
        return _acceptance(self._log_ratios(as_rung(hamiltonian), 0.0, 1.0))

    def reach(
        self, hamiltonian: Hamiltonian, acceptance: float, most: int, generator: torch.Generator
    ) -> tuple[list[Rung], list[float], Pilots]:
        """Returns rungs on the straight way to a machine, between which exchanges succeed as often as asked.

        With their places on the way, in (0, 1), and the pilots at the last of them, (200, width_l).

        Raises:
            ValueError: more rungs than ``most`` would be needed.
        """
        low, high, pilots = as_rung(self.hamiltonian), as_rung(hamiltonian), self
        rungs, positions, t = list[Rung](), list[float](), 0.0
        while (following := pilots._next(high, t, acceptance)) < 1:
            if len(rungs) == most:
                raise ValueError(
                    f"max_rungs: {most} more rungs lead {t:.3g} of the way to the machine at "
                    f"acceptance {acceptance:g}; allow more, ask for a lower acceptance, or give rungs "
                    "that were frozen along its training"
                )
            weights = (-pilots._log_ratios(high, t, following)).softmax(0)
            drawn = _random.weighted(weights, len(weights), generator)
            rungs.append(mix(low, high, following))
            states = settle(
                hamiltonian_of(hamiltonian, rungs[-1]), [x[drawn] for x in pilots.states], generator, _SWEEPS
            )
            pilots, t = Pilots(self.hamiltonian, states), following
            positions.append(t)
        return (
            rungs,
            positions,
            Pilots(hamiltonian_of(hamiltonian, rungs[-1]), pilots.states) if rungs else self,
        )

    def _log_ratios(self, high: Rung, t: float, following: float) -> Tensor:
        """Returns F at one place of the way to a rung less F at another, of every state, (rows,)."""
        low, summed, values = as_rung(self.hamiltonian), self.hamiltonian.graph.summed, []
        ends = [fields_of(hamiltonian_of(self.hamiltonian, rung), self.states) for rung in (low, high)]
        for position in (following, t):
            fields = {l: torch.lerp(ends[0][l], ends[1][l], position) for l in summed}
            values.append(
                hamiltonian_of(self.hamiltonian, mix(low, high, position)).free_energy(
                    self.states, summed, fields
                )
            )
        return values[0] - values[1]

    def _next(self, high: Rung, t: float, acceptance: float) -> float:
        """Returns the farthest place that exchanges with states at t, at most 1."""
        if _acceptance(self._log_ratios(high, t, 1.0)) >= acceptance:
            return 1.0
        near, far = t, 1.0
        for _ in range(_BISECTIONS):
            middle = (near + far) / 2
            succeeds = _acceptance(self._log_ratios(high, t, middle)) >= acceptance
            near, far = (middle, far) if succeeds else (near, middle)
        return near if near > t else far


def _acceptance(gap: Tensor) -> float:
    """Returns the mean acceptance of states x in equilibrium and of y that are drawn from them by weights."""
    accepted = (gap - gap.unsqueeze(-1)).clamp(max=0).exp()  # x in rows, y in columns
    return float((accepted @ (-gap).softmax(0)).mean())
