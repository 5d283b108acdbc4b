"""Updates on a GPU, recorded once as a CUDA graph and replayed: the host neither launches nor waits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from harmonium import _device, backends
from harmonium.backends import Recording
from harmonium.backends.recording import aside, join
from harmonium.backends.sending import Sender
from harmonium.data import bernoulli_binarise
from harmonium.data.transforms import check_intensities, draw_bits
from harmonium.learning import Rule
from harmonium.training.divergence import DivergenceMonitor, TrainingDiverged
from harmonium.training.optimizers import find_direction, global_norm
from harmonium.training.seeds import stream_seed
from harmonium.training.state import TrainingState
from harmonium.training.updates import DueWork, UpdateResult, Updates

# The rows' share of a device's free memory: the machine, its chains and the recording need the rest.
_SHARE = 0.25
_MOST = 256  # updates between two waits; looks at the machine are as near, and Ctrl-C is answered in between


def why_not_recorded(state: TrainingState) -> str | None:
    """Returns why the updates of a run are not recorded, None where they are; the one place that decides it.

    On a CPU nothing is recorded, and there is nothing to say.
    """
    settings, source, rule = state.settings, state.batches, state.settings.rule
    if not backends.records(state.machine.device):
        return ""
    if not backends.pays(state.machine.device, state.total):
        return f"a run of {state.total} updates is not worth a recording"
    if state.group.size > 1:
        return "several processes sum their statistics"
    if not isinstance(rule, Rule):
        return "the rule is not one of harmonium.rules"
    if not rule.is_steady:
        return f"{rule.name} decides by numbers that it asks for"
    if not state.optimizer.recordable:
        return "the optimiser has no capturable form"
    floats = source.tensor is not None and source.tensor.is_floating_point()
    if settings.transform is bernoulli_binarise and floats:
        return None
    if settings.transform is not None:
        return "the transform is not harmonium.data.bernoulli_binarise of floats in memory"
    return None if source.checked and source.observed else "rows lack entries, or are read from a file"


class _Lot(NamedTuple):
    """Updates that were started on the device.

    Attributes:
        first: updates before them.
        stop: updates up to the last of them.
        rate: Learning rate of the last.
    """

    first: int
    stop: int
    rate: float


@final
class RecordedUpdates(Updates):
    """Updates whose operations, from the gather of the rows to the step of the optimiser, are one recording.

    They are those of ``OneByOne``, with the same noise, and so are their numbers but for the rounding of the
    step. The first two are made one by one, which picks algorithms and makes what is kept. The norm of the
    gradient, diagnostics and whether they are finite are summed on the device. Where something else is due
    they are sent to the host, with what the monitor measures there. Unless the machine itself is read after
    these updates, the next ones are started before the host waits for the numbers (``ahead``). So a run that
    diverges is stopped some updates late: after the next look at the latest.
    """

    engine = "recorded"

    def __init__(self, state: TrainingState, monitor: DivergenceMonitor) -> None:
        super().__init__(state, monitor)
        machine, source, device = state.machine, state.batches, self.device
        self._source = source
        self._rows = source.put_on(device, int(_SHARE * _device.free_memory(device)))
        self._where = source.indices(0).to(device)
        self._v = torch.zeros(source.size, source.width, dtype=machine.dtype, device=device)
        self._sender: Sender | None = None
        if self._rows is None:  # the narrower of two types travels
            there, dtype = source.tensor, machine.dtype
            if there is not None and there.dtype.itemsize < dtype.itemsize:
                dtype = there.dtype
            self._sender = Sender(source.write, (source.size, source.width), dtype, device)
        weights = source.weights
        self._weights = None if weights is None else weights.to(device=device, dtype=machine.dtype)
        # Nothing reads places where all batches are the same rows, or come from the host and weigh alike.
        self._fixed = source.complete or (self._rows is None and weights is None)
        self._running: _Lot | None = None
        self._launched = self.state.step
        self._taken = self._v  # the rows as they lie, of which a transform makes states
        self._draws: torch.Generator | None = None
        if self.settings.transform is not None:
            assert source.tensor is not None
            low, high = source.tensor.aminmax()
            if not 0 <= float(low) <= float(high) <= 1:
                check_intensities(source.tensor)
            self._taken, self._draws = torch.zeros_like(self._v), torch.Generator(device)
        self._names: list[str] = []
        self._sums = self._last = torch.zeros(1, device=device)
        self._gradients: list[Tensor] = []
        self.climber.keep_rates_on(device)
        noise = [self.state.generator, *([] if self._draws is None else [self._draws])]
        self._recording = Recording(self._update, self.state.rule_state, device, noise)

    def make(self, due_after: Callable[[int], DueWork]) -> UpdateResult:
        lot = self._running or self._launch(due_after)
        now = due_after(lot.stop)
        measured = [self.monitor.measure(now.check)] if now.record or now.check else []
        reading = _device.Reading(torch.cat([self._sums, self._last, *measured]))
        names, self._running = self._names, None
        self.runs_ahead = lot.stop < self.total and not now.read
        if self.runs_ahead:
            self._running = self._launch(
                due_after
            )  # the device goes on, and so has no need to wait for the host
        self.state.step, self.state.rule_state = lot.stop, self._recording.state
        numbers, kinds = reading.read(), len(names) + 1
        (norm, *sums), (last_norm, *last) = numbers[:kinds], numbers[kinds : 2 * kinds]
        diagnostics = dict(zip(names, sums, strict=True))
        result = UpdateResult(lot.rate, last_norm, dict(zip(names, last, strict=True)), None)
        problem: TrainingDiverged | None = None
        if not all(map(math.isfinite, (norm, *diagnostics.values()))):
            problem = self.monitor.find_cause(lot.stop, self._gradients, norm, diagnostics)
        if not problem and (looked := numbers[2 * kinds :]):
            problem = self.monitor.check(lot.stop, looked)
        if problem:
            return result._replace(problem=problem)
        self.state.history.add(norm, diagnostics, lot.stop - lot.first)
        return result

    def _launch(self, due_after: Callable[[int], DueWork]) -> _Lot:
        """Starts the next updates on the device."""
        first = self._launched
        count = self.count(due_after, first, _MOST)
        places = self._send_places(first, count)
        self._sums.zero_()
        scale = 1.0
        for step, where in zip(range(first, first + count), places, strict=True):
            if where is not None:
                self._where.copy_(where)
            if self._sender is not None:
                self._sender.receive(step, self._taken)
            if self.monitor.v is None:
                self._key_draws(step)
                self._gather()
                self.monitor.watch(self._v)
            self._key_draws(step)
            self.state.generator.manual_seed(stream_seed(self.settings.root, "rule", step))
            scale = self.factor(step, self.total)
            self.climber.set_scale(scale)
            self._recording.advance()
            if self.average:
                self.average.update(step + 1)
            if self._sender is not None and step + 1 < self.total:
                self._sender.send(step + 1)
        self._launched = first + count
        return _Lot(first, first + count, self.climber.learning_rate * scale)

    def _send_places(self, first: int, count: int) -> Sequence[Tensor | None]:
        """Sends the places of the rows of some updates; the host does not wait. None: as they were before."""
        if self._fixed:
            return [None] * count
        places = self._source.indices(first, count)
        if self.device.type == "cuda":
            places = places.pin_memory()  # else the copy would wait for the updates before it
        return _device.to_device(places, self.device).view(count, -1).unbind()

    def close(self) -> None:
        del self._recording  # it has this object's method, and so would live on until garbage is collected

    @torch.no_grad()
    def _update(self, rule_state: Any) -> Any:
        """Makes one update of what lies on the device, from the rule's state to its next one."""
        settings, rule = self.settings, self.settings.rule
        self._gradients = []  # of the update before: their memory serves this one
        self._gather()
        weights: Tensor | None = None
        weight: float | Tensor = 1.0
        if self._weights is not None:
            weights = self._weights.index_select(0, self._where)
            weight = weights.mean()
            weights = weights / weight
        rounds = settings.precision != "float32"
        with backends.precision(settings.precision) if rounds else nullcontext():
            estimate = rule.estimate(
                self.parametrisation,
                self._v,
                rule_state,
                self.state.generator,
                weights,
                observed=True,
                supported=True,
            )
        gradients = find_direction(self.parametrisation.parameters, estimate.parameters, weight, self.pulls)
        self._gradients = gradients
        with aside(self.device) if settings.clip_norm is None else nullcontext():
            norm = global_norm(gradients)
            self._note(norm, {**estimate.diagnostics, **self.note_clip(norm)})
        if settings.clip_norm is not None:
            gradients = list(torch._foreach_mul(gradients, (settings.clip_norm / norm).clamp(max=1.0)))
        self.climber.step(gradients)
        if settings.clip_norm is None:
            join(self.device)
        return estimate.state

    def _key_draws(self, step: int) -> None:
        """Sets the noise of draws from grey levels, a function of the seed and the update."""
        if self._draws is not None:
            self._draws.manual_seed(stream_seed(self.settings.root, "transform", step))

    def _gather(self) -> None:
        """Fills the batch with the rows that are next."""
        if self._rows is not None and self._rows.dtype is self._taken.dtype:
            torch.index_select(self._rows, 0, self._where, out=self._taken)
        elif self._rows is not None:
            self._taken.copy_(self._rows.index_select(0, self._where))
        if self._draws is not None:
            self._v.copy_(draw_bits(self._taken, self._draws))

    def _note(self, norm: Tensor, diagnostics: dict[str, Any]) -> None:
        """Adds the numbers of an update to those since the last wait."""
        if self._names != [*diagnostics] or len(self._sums) != 1 + len(diagnostics):
            self._names = [*diagnostics]
            self._sums = torch.zeros(1 + len(diagnostics), device=self.device)
        numbers = [x if isinstance(x, Tensor) else norm.new_tensor(x) for x in diagnostics.values()]
        self._last = torch.stack([norm, *numbers]) if numbers else norm.view(1)
        self._sums += self._last
