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
from harmonium.training.divergence import DivergenceMonitor, TrainingDiverged
from harmonium.training.history import CLIPPED
from harmonium.training.optimizers import find_direction, global_norm
from harmonium.training.penalties import pulls_of
from harmonium.training.schedules import as_schedule
from harmonium.training.seeds import stream_seed
from harmonium.training.state import TrainingState


class UpdateResult(NamedTuple):
    """The last update that was made, or was refused for a problem; ``stop``: why the rule ends the run.

    The norm is that of the gradient, with decay terms, before clipping.
    """

    rate: float
    norm: float
    diagnostics: Mapping[str, float]
    problem: TrainingDiverged | None
    stop: str | None = None


class DueWork(NamedTuple):
    """Tells what is due after an update.

    Attributes:
        evaluate: metrics, which are recorded.
        record: a record of the history, with the norm of the weights.
        check: a check whether the machine runs away from its data.
        read: a read of the machine itself, by metrics, callbacks or a checkpoint.
    """

    evaluate: bool
    record: bool
    check: bool
    read: bool


class Updates(ABC):
    """A way to make the updates of a run, each of which moves its state on."""

    engine: ClassVar[str]
    """The name of the way in the record of a run; the bits of a run depend on it."""
    runs_ahead = False
    """True while the machine has gone further than the state says, by updates that ``make`` returns next."""

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
    def make(self, due_after: Callable[[int], DueWork]) -> UpdateResult:
        """Makes the next update, or more as long as nothing else is due.

        Args:
            due_after: what else is due after so many updates of the run.
        """

    def count(self, due_after: Callable[[int], DueWork], first: int, most: int) -> int:
        """Returns after how many updates, from ``first`` earlier ones on, something else is due."""
        count = 1
        while count < min(self.total - first, most) and not any(due_after(first + count)):
            count += 1
        return count

    def note_clip(self, norm: float | Tensor) -> dict[str, Any]:
        """Returns whether a gradient of this norm is clipped, 1 or 0, by its name; else nothing."""
        limit = self.settings.clip_norm
        return {} if limit is None else {CLIPPED: 1.0 * (norm > limit)}

    def close(self) -> None:  # noqa: B027
        """Lets go of what the updates keep on a device."""


@final
class OneByOne(Updates):
    """Updates that are made one at a time, by any rule and optimiser."""

    engine = "torch"

    def make(self, due_after: Callable[[int], DueWork]) -> UpdateResult:
        state, settings, climber = self.state, self.settings, self.climber
        v, weights, where = state.batches.take(state.step)
        if settings.transform is not None:
            v = settings.transform(v, _random.as_generator(self._seed("transform")))
        if not state.batches.checked:
            state.machine.check_batch(v, where, "X")
        if self.monitor.v is None:
            self.monitor.watch(v)
        self.monitor.v = v
        if self.renews:
            state.generator.manual_seed(self._seed("rule"))
        may_overwrite = isinstance(
            settings.rule, Rule
        )  # whose estimate is made of sums that nothing else keeps
        rounds = settings.precision != "float32"
        with backends.precision(settings.precision) if rounds else nullcontext():
            estimate = self._estimate(v, weights)
        control, parameters = estimate.control, self.parametrisation.parameters
        scale = self.factor(state.step, self.total) * control.rate
        result = UpdateResult(climber.learning_rate * scale, 0.0, {}, None, control.stop)
        if control.restart is not None:
            result = result._replace(diagnostics=_device.read_numbers(estimate.diagnostics))
            climber.restart([control.restart[name] for name in parameters])
        else:
            if may_overwrite and weights is None and not self.pulls:
                gradients = [estimate.parameters[name] for name in parameters]
            else:
                weight = 1.0 if weights is None else float(weights.mean())
                gradients = find_direction(parameters, estimate.parameters, weight, self.pulls, may_overwrite)
            # The one wait for a device: the norm is finite only if all gradients are.
            size, noted = global_norm(gradients), estimate.diagnostics
            norm, *values = _device.to_floats([size, *noted.values()]) if noted else [float(size)]
            diagnostics = dict(zip(noted, values, strict=True))
            if settings.clip_norm is not None:
                diagnostics |= self.note_clip(norm)
            result = result._replace(norm=norm, diagnostics=diagnostics)
            if not all(map(math.isfinite, (norm, *values))):
                problem = self.monitor.find_cause(state.step, gradients, norm, diagnostics)
                return result._replace(problem=problem)
            if settings.clip_norm is not None and norm > settings.clip_norm:
                gradients = [gradient * (settings.clip_norm / norm) for gradient in gradients]
            climber.step(gradients, scale)
        state.step += 1
        if self.average:
            self.average.update(state.step)
        state.rule_state = estimate.state
        state.history.add(result.norm, result.diagnostics)
        return result

    def _estimate(self, v: Tensor, weights: Tensor | None) -> Estimate:
        """Returns the gradient that the rule estimates, checking what was not checked before the run.

        Raises:
            TypeError: a rule of somebody's own returned something else.
        """
        state, rule, batches, share = self.state, self.settings.rule, self.state.batches, 1.0
        if not isinstance(rule, Rule):
            options: dict[str, Any] = {} if weights is None else {"weights": weights}
            v = _device.to_device(v, self.device)
            estimate: Estimate = rule.gradient(
                state.machine, v, state=state.rule_state, seed=state.generator, **options
            )
            _checks.instance(estimate, "rule", Estimate, "one whose gradient returns an Estimate")
            return estimate
        if batches.part is not None:
            share = len(v) / batches.size
            if weights is not None:
                share, weights = float(weights[batches.part].sum() / weights.sum()), weights[batches.part]
        row_weights: Tensor | None = None
        observed: bool | None = batches.observed or None
        if weights is not None or not batches.checked:
            v, row_weights, observed = rule.checked(state.machine, v, weights)
        elif v.device != self.device:
            v = _device.to_device(v, self.device)
        return rule.estimate(
            self.parametrisation, v, state.rule_state, state.generator, row_weights, observed,
            group=state.group, share=share,
        )  # fmt: skip

    def _seed(self, purpose: str) -> int:
        """Returns the seed of noise of this update for a purpose, from which no other process draws."""
        rank = self.state.group.rank
        stream = f"{purpose} {rank}" if rank else purpose
        return stream_seed(self.settings.root, stream, self.state.step)
