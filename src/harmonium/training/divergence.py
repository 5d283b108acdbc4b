"""Stopping a run that diverges, and going back to its last good parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from harmonium import _checks
from harmonium.learning import Parametrisation
from harmonium.machine import BoltzmannMachine, find_improper
from harmonium.training.optimizers import global_norm
from harmonium.training.plausibility import energy_gap, is_saturated

_LARGE = 1 << 26  # numbers, 256 MB: of more only one copy is kept, of the last that a look found good
_EVERY = 100  # updates between two looks, of a fifth of the time of an update of 784x500: 0.2 %
# In units of uniform noise; docs/decisions/0017 has what was measured.
_ABSURD = 10.0
_REAL = 100.0  # one column of data and 100 hidden units: 35 at its worst, and sound again after ten updates


class Problem(NamedTuple):
    """A problem of a run: the name of the value that has it, and a description."""

    name: str
    cause: str


class TrainingDiverged(RuntimeError):
    """Training met a number that is not finite, or a machine that finds its data all but impossible.

    A RuntimeError rather than a ValueError: every argument was well formed, their combination went wrong.
    The machine is left with its last good parameters.

    Attributes:
        step: updates made.
        parameter: the parameter, diagnostic or state that is not finite; "machine" where all are.
        learning_rate: Rate of the last update, or of the one that was refused.
        diagnostics: Diagnostics of the rule in that update.
        checkpoint: the last good checkpoint, None where none was written.
    """

    def __init__(
        self,
        problem: Problem,
        step: int,
        learning_rate: float,
        diagnostics: Mapping[str, float],
        checkpoint: Path | None,
        clip_norm: float | None,
    ) -> None:
        self.step = step
        self.parameter = problem.name
        self.learning_rate = learning_rate
        self.diagnostics = dict(diagnostics)
        self.checkpoint = checkpoint
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in diagnostics.items()) or "none"
        kept = f"the last good checkpoint is {checkpoint}" if checkpoint else "no checkpoint was written"
        super().__init__(
            f"training diverged after {step} updates: {problem.cause}; learning rate {learning_rate:.4g}; "
            f"diagnostics: {numbers}; {kept}. {_advice(clip_norm)}"
        )


def _advice(clip_norm: float | None) -> str:
    """Returns what to change in a training that had this ``clip_norm``."""
    return f"A third of the learning_rate{' or a clip_norm' if clip_norm is None else ''} may help"


class Snapshot:
    """A copy of tensors, and after how many updates it was taken."""

    def __init__(self, tensors: list[Tensor], step: int) -> None:
        self.step, self._tensors = step, tensors
        self._copies = [tensor.clone() for tensor in tensors]

    def take(self, step: int) -> None:
        """Copies the tensors as they are now."""
        torch._foreach_copy_(self._copies, self._tensors)
        self.step = step

    def restore(self) -> None:
        """Gives the tensors the values that they had."""
        torch._foreach_copy_(self._tensors, self._copies)


class Look(NamedTuple):
    """The numbers of a machine after ``step`` updates: norms of what is learned and of the couplings.

    ``gap`` is that of ``energy_gap``; None where it was not asked for. ``early``: whether they were measured
    before the machine may have moved on.
    """

    step: int
    early: bool
    norm: float
    weights: float
    gap: float | None = None


class DivergenceMonitor:
    """Watches whether a run is sound, and keeps its last good parameters.

    Gradients are checked to be finite at every update, parameters at every record. Whether the machine has
    run away from its data, finite as it may be, is looked at after 1, 2, 4, 8, ... updates, after every
    hundredth, at the end and before a checkpoint. Data below the machine's own states by no more than uniform
    noise would be are good, ten times as far is a problem; a run that began further away is measured by that.
    Energies of real units swing without harm: a machine of such units gets a hundred times as much. Where the
    density is but a share of what is learned, a problem is as many times further.

    What a check needs may be measured earlier, and read when a device has come to it (``measure``): the
    parameters may have moved on by then.

    Args:
        machine: Machine in training.
        parameters: Parameters that are trained, by name.
        step: updates made before.
        clip_norm: Clipping of the run, which its advice takes into account.

    Attributes:
        parametrisation: Parametrisation that the updates use, whose matrices a look may use too; None: there
            is none.
    """

    def __init__(
        self,
        machine: BoltzmannMachine,
        parameters: Mapping[str, Parameter],
        step: int = 0,
        clip_norm: float | None = None,
    ) -> None:
        self._clip_norm = clip_norm
        self._machine = machine
        self._names = list(parameters)
        self._current = [parameter.detach() for parameter in parameters.values()]
        self._couplings = [
            W.detach() for name, W in machine.named_parameters() if name.startswith("couplings")
        ]
        stored = {f"couplings.{edge}.weight": each.stored for edge, each in enumerate(machine.couplings)}
        kept = [part for name, p in parameters.items() for part in stored.get(name, [p.detach()])]
        self._good = Snapshot(kept, step)  # finite, and not run away
        one = machine.device.type == "cpu" and sum(part.numel() for part in kept) > _LARGE
        self._noted = self._good if one else Snapshot(kept, step)  # finite; or measured early, not judged yet
        self.parametrisation: Parametrisation | None = None
        self._look: Look | None = None
        self._v: Tensor | None = None
        self._sound = self._limit = math.inf
        self._gap = 0.0  # as last seen

    def watch(self, v: Tensor, density: float) -> None:
        """Hands over the batch of the next update; the first is where the run begins.

        Args:
            v: the batch.
            density: how much ln p(v) counts in what is learned; p(y | x) may be good where p(v) is all but 0.
        """
        if density == 0:
            return
        if self._v is None:
            begun = float(self._find_gap(v))
            real = any(not layer.discrete for layer in self._machine.layers)
            least = _REAL if real else 1.0
            self._sound = max(least, begun) if math.isfinite(begun) else math.inf
            self._limit = _ABSURD * self._sound / density
        self._v = v

    def check_gradients(
        self, gradients: list[Tensor], norm: float, diagnostics: Mapping[str, float]
    ) -> Problem | None:
        """Finds a value that is not finite in the next update; a parameter if parameters are the cause."""
        problem = None
        if not math.isfinite(norm):
            name = self._find_worst(gradients)
            problem = Problem(name, f"the gradient of {name} is not finite")
        else:
            for name, value in diagnostics.items():
                if not math.isfinite(value):
                    problem = Problem(name, f"the rule's diagnostic {name} is {value}")
                    break
        if problem:
            norm = float(global_norm(self._current))
            problem = self._find_not_finite(norm) or self._find_run_away(self._measure_gap()) or problem
        return problem

    def measure(self, step: int) -> Tensor:
        """Returns the numbers of a look after so many updates, on the device: for ``take_in``, once read.

        Where a check is due it keeps a copy of the parameters, to go back to if the check finds them good.
        """
        if self.is_due(step):
            self._noted.take(step)
        return self._numbers(step)

    def take_in(self, step: int, numbers: Sequence[float]) -> None:
        """Takes in what was read of ``measure``; the checks after so many updates then read nothing."""
        self._look = Look(step, True, *numbers)

    def weight_norm(self, step: int) -> float:
        """Returns the norm of all couplings after so many updates."""
        return self._look_at(step).weights

    def forget(self) -> None:
        """Forgets the last look: to be called where the machine may have changed since."""
        self._look = None

    def check_parameters(self, step: int) -> Problem | None:
        """Finds a parameter that is not finite; records finite parameters, or restores the last record."""
        look = self._look_at(step)
        problem = self._find_not_finite(look.norm)
        if not problem and not look.early and self._noted is not self._good:
            self._noted.take(step)
        return problem

    def is_due(self, step: int) -> bool:
        """Returns whether the machine is checked after so many updates: powers of 2, and every 100."""
        return step & (step - 1) == 0 or step % _EVERY == 0

    def check_machine(self, step: int) -> Problem | None:
        """Finds a machine that is not finite or has run away; records good parameters, or restores them."""
        look = self._look_at(step)
        gap = self._measure_gap() if look.gap is None else look.gap
        problem = self._find_not_finite(look.norm) or self._find_run_away(gap) or self._find_improper()
        if not problem and self._gap <= self._limit / _ABSURD:
            if look.early and self._noted.step == step:
                self._good, self._noted = self._noted, self._good
            elif not look.early:
                self._good.take(step)
        return problem

    def warn(self) -> None:
        """Warns where the last look showed a machine that is worse than none, but not yet a problem."""
        if self._v is None or not math.isfinite(self._sound):
            return
        words = ""
        if self._gap > self._limit / _ABSURD:
            words = "the data of the last batch are less likely under the machine than under uniform noise"
        elif is_saturated(self._machine, self._v):
            words = (
                "the first hidden layer is saturated and rebuilds the last batch hardly better than "
                "independent units"
            )
        if words:
            _checks.warn(f"training ended, but {words}. {_advice(self._clip_norm)}", RuntimeWarning)

    def _look_at(self, step: int) -> Look:
        """Returns the numbers after so many updates, measured now where they were not taken in."""
        if self._look is None or self._look.step != step:
            self._look = Look(step, False, *self._numbers(step).tolist())
        return self._look

    def _numbers(self, step: int) -> Tensor:
        """Returns the numbers of the machine as it is now, and the gap where a check is due."""
        numbers = [global_norm(self._current), global_norm(self._couplings).to(self._current[0].device)]
        if self.is_due(step) and self._v is not None:
            numbers.append(self._find_gap(self._v))
        return torch.stack([x.double() for x in numbers])

    def _find_gap(self, v: Tensor) -> Tensor:
        """Returns the gap of the machine as it is now, without a second copy of large matrices."""
        shares = self.parametrisation is not None and self.parametrisation.rewrites
        return energy_gap(
            self._machine, v, self.parametrisation.hamiltonian() if self.parametrisation and shares else None
        )

    def _find_not_finite(self, norm: float) -> Problem | None:
        if math.isfinite(norm):
            return None
        name = self._find_worst(self._current)
        return Problem(name, f"the values of {name} are not finite and were {self._put_parameters_back()}")

    def _find_run_away(self, gap: float) -> Problem | None:
        self._gap = gap
        if gap <= self._limit:  # not so for NaN
            return None
        far = f", whose rows lie {self._gap:.3g} times as far below its states as uniform noise would,"
        return Problem(
            "machine",
            f"the machine has run away from the data{far if math.isfinite(self._gap) else ''} and its "
            f"parameters were {self._put_parameters_back()}",
        )

    def _find_improper(self) -> Problem | None:
        """Finds couplings among Gaussian layers that leave no distribution, and restores good parameters."""
        improper = find_improper(self._machine.hamiltonian(checked=False))
        if not improper:
            return None
        self._good.restore()
        return Problem(
            "machine",
            f"the couplings among its Gaussian layers {improper} no longer leave their joint precision "
            "positive definite, so that the machine has no distribution, and its parameters were put back to "
            f"those after {self._good.step} updates",
        )

    def _measure_gap(self) -> float:
        """Returns the gap of the machine as it is now; the last one where no data are watched."""
        return self._gap if self._v is None else float(self._find_gap(self._v))

    def _put_parameters_back(self) -> str:
        """Restores the last finite parameters if they are good, else the last that were found good."""
        look = self._look  # what it copied early is what it judges now
        if self._noted.step > self._good.step and not (look and look.early and look.step == self._noted.step):
            self._noted.restore()
            self._gap = self._measure_gap()
            if self._gap <= self._limit:
                return f"put back to those after {self._noted.step} updates"
        self._good.restore()
        return f"put back to those after {self._good.step} updates"

    def _find_worst(self, tensors: Sequence[Tensor]) -> str:
        """Names the first that is not finite; where only their norm overflows, the largest."""
        for name, tensor in zip(self._names, tensors, strict=True):
            if not bool(torch.isfinite(tensor).all()):
                return name
        norms = [float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) for tensor in tensors]
        return self._names[norms.index(max(norms))]
