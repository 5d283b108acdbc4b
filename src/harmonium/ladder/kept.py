"""The ladder of a training: running averages of its machine, kept as far apart as exchanges reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, final

import torch

from harmonium import _checks, _random
from harmonium._states import record, require_alike
from harmonium.ladder.kernel import Ladder
from harmonium.ladder.rungs import (
    PILOTS,
    Pilots,
    Rung,
    as_rung,
    fill_rungs,
    hamiltonian_of,
    hamiltonians_of,
    mix,
    space_rungs,
)
from harmonium.machine import BoltzmannMachine, Hamiltonian, States

_SAMPLES = 128  # of the parameters from one power of two of updates to the next, at least
_LOOK = 8  # samples from one look at the reach of exchanges to the next
_WINDOW = 1 / 3  # of the age: updates that an average reaches back


@record
@dataclass(frozen=True)
class Averages:
    """The rungs so far, and what the next ones are made of.

    Attributes:
        rungs: Rungs from the bottom.
        ages: updates after which they stood, not falling.
        average: Running average of the machine, as a rung.
        pilots: states that follow the last rung, for each layer (200, width_l).
        acceptance: Acceptance of exchanges that gaps are made for.
        step: updates that were averaged.
    """

    rungs: list[Rung]
    ages: list[float]
    average: Rung
    pilots: States
    acceptance: float
    step: int


@final
class KeptLadder:
    """A callback that keeps running averages of a machine in training as rungs (FORMULAS §8).

    An average reaches back a third of its age: the noise of single updates moves all parameters at random,
    and machines with it exchange hardly ever. 200 pilots follow the last rung. Once exchanges between it
    and the average would succeed more rarely than asked, rungs are put on the straight way between them, in
    equal gaps of acceptance, and the pilots move there by their weights and a few sweeps. So gaps that are
    too wide are filled by means of their two machines, however fast the machine learns.

    Where ``max_rungs`` binds, every second rung goes, with a warning, and gaps are twice as
    wide from then on.

    Args:
        settings: options of the ladder, without rungs.
        seed_of: the seed of the noise after so many updates.

    Attributes:
        ladder: up to the trained machine; None before the run has ended.
    """

    def __init__(self, settings: Ladder, seed_of: Callable[[int], int]) -> None:
        if settings.rungs is not None:
            raise ValueError(
                "ladder: expected settings alone, such as Ladder(acceptance=0.4), received rungs"
            )
        self.settings, self._seed_of = settings, seed_of
        self.ladder: Ladder | None = None
        self._state: Averages | None = None
        self._machine: Rung = []

    def begin(self, machine: BoltzmannMachine, metrics: Sequence[str]) -> None:
        """Starts again."""
        self._machine = as_rung(machine)
        self._state = self.ladder = None

    def needs_update(self, step: int, total: int) -> bool:
        """Returns whether the parameters are looked at after so many updates."""
        return step % _interval(step) == 0

    @torch.no_grad()
    def __call__(self, update: Any) -> None:  # a training.Update, of a package above
        """Takes the parameters into the average, and now and then looks at how far exchanges reach."""
        step = update.step
        if not self.needs_update(step, update.total):
            return
        hamiltonian = update.machine.hamiltonian()
        state = self._start(hamiltonian, step) if self._state is None else self._state
        weight = min(1.0, _interval(step) / (_WINDOW * step))
        self._state = replace(state, step=step, average=mix(state.average, as_rung(hamiltonian), weight))
        if step % (_LOOK * _interval(step)) == 0:
            self._state = self._extend(self._state, hamiltonian_of(hamiltonian, self._state.average))

    @torch.no_grad()
    def finish(self, machine: BoltzmannMachine) -> None:
        """Leads the ladder from the last average to the machine as it is."""
        hamiltonian = machine.hamiltonian()
        state = self._start(hamiltonian, 0) if self._state is None else self._state
        for end in (hamiltonian_of(hamiltonian, state.average), hamiltonian):
            state = self._extend(state, end)
        self.ladder = self.settings.with_rungs(state.rungs, state.ages)

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps: rungs and their ages, the average, the pilots."""
        return {"kept": self._state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint.

        Raises:
            ValueError: a checkpoint of another machine, or a damaged one.
        """
        averages = state["kept"]
        if averages is not None:
            expected = Averages([], [], self._machine, [], 0.0, 0)
            if isinstance(averages, Averages):
                rungs = [self._machine] * len(averages.rungs)
                expected = replace(expected, rungs=rungs, ages=[0.0] * len(rungs), pilots=averages.pilots)
            require_alike(averages, expected, "KeptLadder")
        self._state = averages

    def _start(self, hamiltonian: Hamiltonian, step: int) -> Averages:
        """Returns rungs from independent units to the machine."""
        generator = self._noise(hamiltonian, step)
        rungs = space_rungs(hamiltonian, generator, self.settings.acceptance, self.settings.max_rungs)
        pilots = fill_rungs(hamiltonians_of(hamiltonian, rungs)[:-1], PILOTS, generator)[-1]
        average = [x.clone() for x in as_rung(hamiltonian)]
        return Averages(rungs, [0.0] * len(rungs), average, pilots, self.settings.acceptance, step)

    def _extend(self, state: Averages, average: Hamiltonian) -> Averages:
        """Returns the averages with rungs up to where exchanges reach a machine."""
        generator, most = self._noise(average, state.step), self.settings.max_rungs
        while True:
            pilots = Pilots(hamiltonian_of(average, state.rungs[-1]), state.pilots)
            try:
                room = most - len(state.rungs)
                rungs, positions, pilots = pilots.reach(average, state.acceptance, room, generator)
            except ValueError:
                state = _thin(state, most)
                continue
            age = state.ages[-1]
            ages = [*state.ages, *(age + t * (state.step - age) for t in positions)]
            return replace(state, rungs=[*state.rungs, *rungs], ages=ages, pilots=pilots.states)

    def _noise(self, hamiltonian: Hamiltonian, step: int) -> torch.Generator:
        return _random.as_generator(self._seed_of(step), hamiltonian.device)


def _thin(state: Averages, most: int) -> Averages:
    """Returns the averages without every second rung but the first and the last.

    Raises:
        ValueError: too few are left to drop any.
    """
    number = len(state.rungs)
    chosen = list(range(0, number, 2)) if number % 2 else [0, *range(1, number, 2)]
    if len(chosen) == number:
        raise ValueError(
            f"ladder: max_rungs: expected room for more than {most} machines on the way of "
            "this training; allow more, or ask for a lower acceptance"
        )
    normal = NormalDist()
    wider = 2 * normal.cdf(2 * normal.inv_cdf(state.acceptance / 2))
    _checks.warn(
        f"ladder: {number} machines are kept and no more than {most} may be (max_rungs); "
        "every second one is dropped, and exchanges between those to come succeed with probability "
        f"{wider:.2g} in place of {state.acceptance:.2g}",
        RuntimeWarning,
    )
    rungs, ages = [state.rungs[r] for r in chosen], [state.ages[r] for r in chosen]
    return replace(state, rungs=rungs, ages=ages, acceptance=wider)


def _interval(step: int) -> int:
    """Returns the updates between two samples of the parameters, a power of two that grows with the age."""
    return max(1, (1 << max(step, 1).bit_length() - 1) // _SAMPLES)
