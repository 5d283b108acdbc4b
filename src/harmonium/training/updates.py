"""The updates of a run: a batch, the gradient that the rule estimates from it, a step of the optimiser."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar, NamedTuple, final

from torch import Tensor

from harmonium import _checks, _device, _random, backends
from harmonium.learning import Estimate, Parametrisation, Rule
from harmonium.training.batch_source import Batch
from harmonium.training.divergence import DivergenceMonitor, TrainingDiverged
from harmonium.training.history import CLIPPED
from harmonium.training.optimizers import find_direction, global_norm
from harmonium.training.penalties import pulls_of
from harmonium.training.schedules import as_schedule
from harmonium.training.seeds import stream_seed
from harmonium.training.state import TrainingState


class Made(NamedTuple):
    """The last update that was made, or was refused for a problem; ``stop``: why the rule ends the run.

    The norm is that of the gradient, with decay terms, before clipping.
    """

    rate: float
    norm: float
    diagnostics: Mapping[str, float]
    problem: TrainingDiverged | None
    stop: str | None = None


class Due(NamedTuple):
    """Tells what is due after an update: a look at the machine's numbers, a read of the machine itself."""

    look: bool
    read: bool


class Updates(ABC):
    """A way to make the updates of a run, each of which moves its state on."""

    engine: ClassVar[str]
    """The name of the way in the record of a run; the bits of a run depend on it."""

    def __init__(self, state: TrainingState, monitor: DivergenceMonitor) -> None:
        self.state, self.settings, self.monitor = state, state.settings, monitor
        self.climber, self.average, self.total = state.optimizer, state.average, state.total
        self.parametrisation, self.device = Parametrisation(state.machine), state.machine.device
        if self.parametrisation.rewrites:  # large matrices, of which there is no second copy
            monitor.hamiltonian = self.parametrisation.hamiltonian
        self.pulls = pulls_of(state.machine, self.settings.pulls())
        self.factor = as_schedule(self.settings.schedule)
        # Noise is then a function of the update: nothing of a device, or of other processes, has to be kept.
        self.renews = _device.is_async(self.device) or state.group.size > 1

    @abstractmethod
    def make(self, due: Callable[[int], Due]) -> Made:
        """Makes the next update, or more as long as nothing else is due.

        Args:
            due: what else is due after so many updates of the run.
        """

    @property
    def ahead(self) -> bool:
        """True if the machine has gone further than the state says, by updates that ``make`` returns next."""
        return False

    def count(self, due: Callable[[int], Due], first: int, most: int) -> int:
        """Returns after how many updates, from ``first`` earlier ones on, something else is due."""
        count = 1
        while count < min(self.total - first, most) and not any(due(first + count)):
            count += 1
        return count

    def note_clip(self, norm: float | Tensor) -> dict[str, Any]:
        """Returns whether a gradient of this norm is clipped, 1 or 0, by its name; else nothing."""
        limit = self.settings.clip_norm
        return {} if limit is None else {CLIPPED: 1.0 * (norm > limit)}

    def close(self) -> None:  # noqa: B027
        """Lets go of what the updates keep on a device."""

    def scale(self, step: int) -> float:
        """Returns the factor of the learning rates in the update that follows ``step`` earlier ones.

        Raises:
            ValueError: the schedule returned a factor that is not finite or negative.
        """
        scale = float(self.factor(step, self.total))
        if not 0 <= scale < math.inf:
            raise ValueError(
                f"schedule: expected a finite factor >= 0, received {scale} at step {step} of {self.total}"
            )
        return scale


@final
class OneByOne(Updates):
    """Updates that are made one at a time, by any rule and optimiser."""

    engine = "torch"

    def make(self, due: Callable[[int], Due]) -> Made:
        state, settings = self.state, self.settings
        batch = self._take()
        estimate = self._estimate(batch)
        control = estimate.control
        scale = self.scale(state.step) * control.rate
        rate = self.climber.learning_rate * scale
        if control.restart is not None:
            diagnostics = _device.read_numbers(estimate.diagnostics)
            made = Made(rate, 0.0, diagnostics, None, control.stop)
            self.climber.restart([control.restart[name] for name in self.parametrisation.parameters])
        else:
            weight = 1.0 if batch.weights is None else float(batch.weights.mean())
            owned = isinstance(settings.rule, Rule)  # whose estimate is made of sums that nothing else keeps
            gradients = find_direction(
                self.parametrisation.parameters, estimate.parameters, weight, self.pulls, owned
            )
            size = global_norm(gradients)
            if not estimate.diagnostics:
                norm, diagnostics = float(size), {}
            else:  # with one wait for a device
                norm, *values = _device.to_floats([size, *estimate.diagnostics.values()])
                diagnostics = dict(zip(estimate.diagnostics, values, strict=True))
            if settings.clip_norm is not None:
                diagnostics |= self.note_clip(norm)
            problem = self.monitor.check_gradients(state.step, gradients, norm, diagnostics)
            made = Made(rate, norm, diagnostics, problem, control.stop)
            if problem:
                return made
            if settings.clip_norm is not None and norm > settings.clip_norm:
                gradients = [gradient * (settings.clip_norm / norm) for gradient in gradients]
            self.climber.step(gradients, scale)
        state.step += 1
        if self.average:
            self.average.update(state.step)
        state.rule_state = estimate.state
        state.history.add(made.norm, made.diagnostics)
        return made

    def _take(self) -> Batch:
        """Returns the rows of the next update."""
        state, transform = self.state, self.settings.transform
        batch = state.batches.take(state.step)
        if transform is not None:
            noise = _random.as_generator(stream_seed(self.settings.root, self._own("transform"), state.step))
            batch = batch._replace(v=transform(batch.v, noise))
        if not state.batches.checked:
            state.machine.check_batch(batch.v, batch.where, "X")
        self.monitor.watch(batch.v)
        return batch

    def _estimate(self, batch: Batch) -> Estimate:
        """Returns the gradient that the rule estimates, checking what was not checked before the run."""
        state, rule, generator = self.state, self.settings.rule, self.state.generator
        if self.renews:
            generator.manual_seed(stream_seed(self.settings.root, self._own("rule"), state.step))
        rounds = self.settings.precision != "float32"
        with backends.precision(self.settings.precision) if rounds else nullcontext():
            v, weights = batch.v, batch.weights
            if not isinstance(rule, Rule):  # a rule of somebody's own
                v = _device.to_device(v, self.device)
                options: dict[str, Any] = {} if weights is None else {"weights": weights}
                estimate: Estimate = rule.gradient(
                    state.machine, v, state=state.rule_state, seed=generator, **options
                )
                _checks.instance(estimate, "rule", Estimate, "one whose gradient returns an Estimate")
                return estimate
            share, part = 1.0, state.batches.part
            if part is not None:
                share = len(v) / state.batches.size
                if weights is not None:
                    share, weights = float(weights[part].sum() / weights.sum()), weights[part]
            row_weights: Tensor | None = None
            observed: bool | None = state.batches.observed or None
            if weights is not None or not state.batches.checked:
                v, row_weights, observed = rule.checked(state.machine, v, weights)
            elif v.device != self.device:
                v = _device.to_device(v, self.device)
            return rule.estimate(
                self.parametrisation, v, state.rule_state, generator, row_weights, observed,
                group=state.group, share=share,
            )  # fmt: skip

    def _own(self, purpose: str) -> str:
        """Returns the purpose of a stream of noise that no other process draws from."""
        rank = self.state.group.rank
        return f"{purpose} {rank}" if rank else purpose
