"""The ladder of a training: running averages of its machine, kept as far apart as exchanges reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, final

import torch

from harmonium import _checks, _random
from harmonium._checks import require_alike
from harmonium.ladder.kernel import Ladder
from harmonium.ladder.rungs import Rung, as_rung, law_of, mix
from harmonium.ladder.spacing import Pilots, space_rungs
from harmonium.machine import BoltzmannMachine, Hamiltonian

_SAMPLES = 128  # of the parameters from one power of two of updates to the next, at least
_LOOK = 8  # samples from one look at the reach of exchanges to the next
_WINDOW = 1 / 3  # of the age: updates that an average reaches back


@final
class KeptLadder:
    """A callback that keeps running averages of a machine in training as rungs (FORMULAS §8).

    An average reaches back a third of its age: the noise of single updates moves all parameters at random,
    and machines with it exchange hardly ever. 200 pilots follow the last rung. Once exchanges between it
    and the average would succeed more rarely than asked, rungs are put on the straight way between them, in
    equal gaps of acceptance, and the pilots move there by their weights and a few sweeps. So gaps that are
    too wide are filled by means of their two machines, however fast the machine learns.

    Where the bound on rungs or bytes binds, every second rung goes, with a warning, and gaps are twice as
    wide from then on.

    Args:
        asked: settings of the ladder, without rungs.
        seed_of: the seed of the noise after so many updates.

    Attributes:
        ladder: up to the trained machine; None before the run has ended.
    """

    def __init__(self, asked: Ladder, seed_of: Callable[[int], int]) -> None:
        if asked.rungs is not None:
            raise ValueError(
                "ladder: expected settings alone, such as Ladder(acceptance=0.4), received rungs"
            )
        self.asked, self._seed_of = asked, seed_of
        self.ladder: Ladder | None = None
        self._state: dict[str, Any] = {}
        self._machine: Rung = []

    def begin(self, machine: BoltzmannMachine, metrics: Sequence[str]) -> None:
        """Starts afresh."""
        self._machine = as_rung(machine)
        self.asked.most(self._machine)
        self._state, self.ladder = {}, None

    def wants(self, step: int, total: int) -> bool:
        """Returns whether the parameters are looked at after so many updates."""
        return step % _interval(step) == 0

    @torch.no_grad()
    def __call__(self, update: Any) -> None:  # a training.Update, of a package above
        """Takes the parameters into the average, and now and then looks at how far exchanges reach."""
        step = update.step
        if not self.wants(step, update.total):
            return
        law = update.machine.hamiltonian()
        if not self._state:
            self._start(law, step)
        weight = min(1.0, _interval(step) / (_WINDOW * step))
        self._state["step"] = step
        self._state["average"] = mix(self._state["average"], as_rung(law), weight)
        if step % (_LOOK * _interval(step)) == 0:
            self._extend(law_of(law, self._state["average"]), step)

    @torch.no_grad()
    def finish(self, machine: BoltzmannMachine) -> None:
        """Leads the ladder from the last average to the machine as it is."""
        kept, law = dict(self._state), machine.hamiltonian()
        if not self._state:
            self._start(law, 0)
        for end in (law_of(law, self._state["average"]), law):
            self._extend(end, self._state["step"])
        self.ladder = self.asked.with_rungs(self._state["rungs"], self._state["ages"])
        self._state = kept

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps: rungs and their ages, the average, the pilots."""
        return {"kept": self._state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint.

        Raises:
            ValueError: of another machine, or damaged.
        """
        kept = state["kept"]
        if kept:
            require_alike(kept["average"], self._machine, "KeptLadder: average")
            require_alike(kept["rungs"], [self._machine] * len(kept["ages"]), "KeptLadder: rungs")
        self._state = kept

    def _start(self, law: Hamiltonian, step: int) -> None:
        """Begins with rungs from independent units to the machine."""
        generator = self._noise(law, step)
        rungs = space_rungs(law, generator, self.asked.acceptance, self.asked.most(as_rung(law)))
        self._state = {
            "rungs": rungs,
            "ages": [0.0] * len(rungs),
            "average": [x.clone() for x in as_rung(law)],
            "pilots": Pilots.climb(law, rungs, generator).states,
            "acceptance": self.asked.acceptance,
            "step": step,
        }

    def _extend(self, average: Hamiltonian, step: int) -> None:
        """Adds rungs up to where exchanges reach the average."""
        own = self._state
        generator, most = self._noise(average, step), self.asked.most(as_rung(average))
        while True:
            room, pilots = most - len(own["rungs"]), Pilots(own["rungs"][-1], own["pilots"])
            try:
                rungs, places, pilots = pilots.reach(average, own["acceptance"], room, generator)
            except ValueError:
                self._thin(most)
                continue
            age = own["ages"][-1]
            self._state = {
                **own,
                "rungs": [*own["rungs"], *rungs],
                "ages": [*own["ages"], *(age + t * (step - age) for t in places)],
                "pilots": pilots.states,
            }
            return

    def _thin(self, most: int) -> None:
        """Drops every second rung but the first and the last.

        Raises:
            ValueError: too few are left to drop any.
        """
        own, number = self._state, len(self._state["rungs"])
        kept = list(range(0, number, 2)) if number % 2 else [0, *range(1, number, 2)]
        if len(kept) == number:
            raise ValueError(
                f"ladder: max_rungs, max_bytes: expected room for more than {most} machines on the way of "
                "this training; allow more, or ask for a lower acceptance"
            )
        normal = NormalDist()
        wider = 2 * normal.cdf(2 * normal.inv_cdf(own["acceptance"] / 2))
        _checks.warn(
            f"ladder: {number} machines are kept and no more than {most} may be (max_rungs, max_bytes); "
            "every second one is dropped, and exchanges between those to come succeed with probability "
            f"{wider:.2g} in place of {own['acceptance']:.2g}",
            RuntimeWarning,
        )
        for name in ("rungs", "ages"):
            own[name] = [own[name][r] for r in kept]
        own["acceptance"] = wider

    def _noise(self, law: Hamiltonian, step: int) -> torch.Generator:
        return _random.as_generator(self._seed_of(step), law.device)


def _interval(step: int) -> int:
    """Returns the updates between two samples of the parameters, a power of two that grows with the age."""
    return max(1, (1 << max(step, 1).bit_length() - 1) // _SAMPLES)
