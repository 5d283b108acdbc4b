"""The rungs of a ladder along the couplings of a machine, in gaps of one acceptance."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _random
from harmonium.chains import Gibbs, KernelState
from harmonium.ladder.rungs import Rung, as_rung, climb, complete, draw_bottom, fields_of, law_of, mix
from harmonium.machine import Hamiltonian, States, fit_states_

_FOOT, _FOOT_SWEEPS = 1000, 50  # chains for the marginal moments of the foot
_PILOTS = 200
_SWEEPS = 5  # of the pilots at every rung
_BISECTIONS = 12


def independent(law: Hamiltonian, states: Sequence[Tensor]) -> Rung:
    """Returns independent units between noise and the marginal moments of states, (rows, width_l) a layer.

    Halfway to noise in natural parameters, a foot leans less to the modes that a pilot run has happened to
    see more often, and costs a few more rungs.
    """
    layers = [deepcopy(layer) for layer in law.layers]
    for layer, x in zip(layers, states, strict=True):
        fit_states_(layer, x)
    free = law.with_layers(layers)
    thetas = [
        (p.detach().to(law.dtype) + q) / 2
        for layer, theta in zip(law.layers, free.thetas, strict=True)
        for p, q in zip(theta, layer.reference(), strict=True)
    ]
    return [*thetas, *map(torch.zeros_like, law.J)]


def space_rungs(
    law: Hamiltonian,
    generator: torch.Generator,
    acceptance: float,
    max_rungs: int,
    data: Sequence[Tensor] | None = None,
) -> list[Rung]:
    """Finds machines on the straight way from independent units to a law, exchanges between which succeed.

    The units at its foot have the marginal moments of data or of a pilot run from noise. From rung to rung,
    200 pilots are drawn by their weights and moved by a few sweeps; they tell how far the next rung may be.
    This is no more than annealing: a mode that the pilots never see decides nothing, and the gaps are
    too wide for it.

    Args:
        law: the machine, with nothing held.
        generator: source of noise.
        acceptance: of exchanges between neighbours, in (0, 1).
        max_rungs: most rungs.
        data: states for the foot, for each layer (rows, width_l).

    Returns:
        The rungs below the law, from the bottom; at least one.

    Raises:
        ValueError: more rungs would be needed.
    """
    if data is None:
        pilot = KernelState([law.pure_noise(l, _FOOT, generator) for l in range(law.graph.size)], 0)
        for _ in range(_FOOT_SWEEPS):
            pilot, _ = Gibbs().step(law, pilot, generator)
        data = pilot.states
    low = independent(law, data)
    pilots = Pilots(low, draw_bottom(law_of(law, low), _PILOTS, generator))
    return [low, *pilots.reach(law, acceptance, max_rungs - 1, generator)[0]]


class Pilots(NamedTuple):
    """States that follow a rung, and tell how far exchanges with it reach.

    Attributes:
        rung: its natural parameters.
        states: for each layer (200, width_l).
    """

    rung: Rung
    states: States

    @classmethod
    def climb(cls, law: Hamiltonian, rungs: Sequence[Rung], generator: torch.Generator) -> Pilots:
        """Returns pilots of the last of some rungs, moved up from the first by some sweeps at each."""
        laws = [law_of(law, rung) for rung in rungs]
        return cls(list(rungs[-1]), climb(laws, _PILOTS, generator)[-1])

    def reach(
        self, law: Hamiltonian, acceptance: float, most: int, generator: torch.Generator
    ) -> tuple[list[Rung], list[float], Pilots]:
        """Finds rungs on the straight way to a law that leave exchanges with it to succeed.

        Args:
            law: the machine that they lead to.
            acceptance: of exchanges between neighbours, in (0, 1).
            most: rungs.
            generator: source of noise.

        Returns:
            The rungs, their places on the way in (0, 1), and the pilots at the last of them; none, and these
            pilots, where the law is within reach.

        Raises:
            ValueError: more rungs would be needed.
        """
        low, high, states = self.rung, as_rung(law), self.states
        rungs, places, t = list[Rung](), list[float](), 0.0
        while (following := _next(law, low, high, states, t, acceptance)) < 1:
            if len(rungs) == most:
                raise ValueError(
                    f"max_rungs, max_bytes: {most} more rungs lead {t:.3g} of the way to the machine at "
                    f"acceptance {acceptance:g}; allow more, ask for a lower acceptance, or give rungs "
                    "that were frozen along its training"
                )
            states, t = _move(law, low, high, states, (t, following), generator), following
            rungs.append(mix(low, high, t))
            places.append(t)
        return rungs, places, Pilots(rungs[-1] if rungs else low, states)


def _log_ratios(
    law: Hamiltonian, low: Rung, high: Rung, states: States, t: float, following: float
) -> Tensor:
    """Returns F at one place of the way less F at another, (rows,)."""
    summed = law.graph.summed
    ends = [fields_of(law_of(law, rung), states) for rung in (low, high)]
    values = []
    for place in (following, t):
        fields = {l: torch.lerp(ends[0][l], ends[1][l], place) for l in summed}
        values.append(law_of(law, mix(low, high, place)).free_energy(states, summed, fields))
    return values[0] - values[1]


def _next(law: Hamiltonian, low: Rung, high: Rung, states: States, t: float, acceptance: float) -> float:
    """Returns the farthest place that exchanges with states at t, at most 1."""

    def accepted(following: float) -> float:
        gap = _log_ratios(law, low, high, states, t, following)
        each = (gap - gap.unsqueeze(-1)).clamp(max=0).exp()  # x in rows, y in columns
        return float((each @ (-gap).softmax(0)).mean())

    if accepted(1.0) >= acceptance:
        return 1.0
    near, far = t, 1.0
    for _ in range(_BISECTIONS):
        middle = (near + far) / 2
        near, far = (middle, far) if accepted(middle) >= acceptance else (near, middle)
    return near if near > t else far


def _move(
    law: Hamiltonian,
    low: Rung,
    high: Rung,
    states: States,
    way: tuple[float, float],
    generator: torch.Generator,
) -> States:
    """Returns states at the end of a way, from those at its start."""
    weights = (-_log_ratios(law, low, high, states, *way)).softmax(0)
    drawn = _random.weighted(weights, len(weights), generator)
    there, states = law_of(law, mix(low, high, way[1])), [x[drawn] for x in states]
    moved = KernelState(complete(there, states, fields_of(there, states), generator), 0)
    for _ in range(_SWEEPS):
        moved, _ = Gibbs().step(there, moved, generator)
    return list(moved.states)
