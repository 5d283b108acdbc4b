"""Updates on a GPU, recorded once as a CUDA graph and replayed: the host neither launches nor waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from harmonium import _device, backends
from harmonium.backends import Recording, choice
from harmonium.backends.recording import aside, join
from harmonium.backends.sending import Sender
from harmonium.data import bernoulli_binarise
from harmonium.data.transforms import check_intensities, draw_bits
from harmonium.learning import Rule
from harmonium.training.batch_source import RowBatches
from harmonium.training.optimizers import find_direction, global_norm
from harmonium.training.seeds import stream_seed
from harmonium.training.settings import Settings
from harmonium.training.state import TrainingState
from harmonium.training.updates import Made, Updates

# The rows' share of a device's free memory: the machine, its chains and the recording need the rest.
_SHARE = 0.25
_MOST = 256  # updates between two waits; looks at the machine are as near, and Ctrl-C is answered in between


def find_obstacle(state: TrainingState, settings: Settings, total: int) -> str | None:
    """Returns why the updates of a run are not recorded, None where they are; the one place that decides it.

    On a CPU nothing is recorded, and there is nothing to say.
    """
    rule, source = settings.rule, state.batches
    if not choice.records(state.machine.device):
        return ""
    if total < choice.LEAST_UPDATES:
        return f"a run of fewer than {choice.LEAST_UPDATES} updates is not worth a recording"
    if settings.shards is not None:
        return "the host reads what shards note"
    if not isinstance(rule, Rule):
        return "the rule is not one of harmonium.rules"
    if not rule.is_steady:
        return f"{rule.name} decides by numbers that it asks for"
    if not isinstance(source, RowBatches):
        return "the rows are a stream"
    if not state.optimizer.recordable:
        return "the optimiser has no capturable form"
    floats = source.tensor is not None and source.tensor.is_floating_point()
    if settings.transform is bernoulli_binarise and floats:
        return None
    if settings.transform is not None:
        return "the transform is not harmonium.data.bernoulli_binarise of floats in memory"
    return None if source.checked and source.observed else "rows lack entries, or are read from a file"


class _Lot(NamedTuple):
    """Places of the rows of the updates after ``first`` earlier ones; None: those of the update before."""

    first: int
    places: Sequence[Tensor | None]


@final
class RecordedUpdates(Updates):
    """Updates whose operations, from the gather of the rows to the step of the optimiser, are one recording.

    They are those of ``OneByOne``, with the same noise, and so are their numbers but for the rounding of the
    step. The first two are made one by one, which picks algorithms and makes what is kept. The norm of the
    gradient, diagnostics and whether they are finite are summed on the device, and read where something else
    is due. So a run that diverges is stopped some updates late: at the next record at the latest.
    """

    engine = "recorded"

    def __post_init__(self) -> None:
        super().__post_init__()
        machine, source, device = self.state.machine, self.state.batches, self.device
        assert isinstance(source, RowBatches)
        self._source = source
        self._rows = source.put_on(device, int(_SHARE * _device.free_memory(device)))
        self._where = source.indices(0).to(device)
        self._v = torch.zeros(source.size, source.width, dtype=machine.dtype, device=device)
        self._sender = self._make_sender() if self._rows is None else None
        weights = source.weights
        self._weights = None if weights is None else weights.to(device=device, dtype=machine.dtype)
        # Nothing reads places where all batches are the same rows, or come from the host and weigh alike.
        self._fixed = source.complete or (self._rows is None and weights is None)
        self._ahead = _Lot(-1, [])
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

    def make(self, quiet: Callable[[int], bool]) -> Made:
        state, settings = self.state, self.settings
        count = self._count(quiet)
        if (
            self._ahead.first != state.step or len(self._ahead.places) < count
        ):  # a callback wants less than it did
            self._ahead = self._send_places(count)
        places = self._ahead.places[:count]
        self._sums.zero_()
        scale = 1.0
        for where in places:
            if where is not None:
                self._where.copy_(where)
            if self._sender is not None:
                self._sender.receive(state.step, self._taken)
            if self.begin is not None:
                self._key_draws()
                self._gather()
                self.begin(self._v)
                self.begin = None
                self.monitor.watch(self._v, self.density)
            self._key_draws()
            state.generator.manual_seed(stream_seed(settings.seed, "rule", state.step))
            scale = self.scale(state.step)
            self.climber.set_scale(scale)
            self._recording.advance()
            state.step += 1
            if self.average:
                self.average.update(state.step)
            if self._sender is not None and state.step < self.total:
                self._sender.send(state.step)
        state.rule_state = self._recording.state
        if state.step < self.total:
            self._ahead = self._send_places(self._count(quiet))  # while the device is at work
        names = len(self._names) + 1
        read = torch.cat((self._sums, self._last)).tolist()  # the one wait
        sums, (norm, *numbers) = read[:names], read[names:]
        diagnostics = dict(zip(self._names, numbers, strict=True))
        made = Made(self.climber.learning_rate * scale, norm, diagnostics, None)
        problem = self.monitor.check_gradients(
            self._gradients, sums[0], dict(zip(self._names, sums[1:], strict=True))
        )
        if problem:
            return made._replace(problem=problem)
        state.history.add(sums[0], dict(zip(self._names, sums[1:], strict=True)), count)
        return made

    def _count(self, quiet: Callable[[int], bool]) -> int:
        """Returns after how many more updates something else is due."""
        step, count = self.state.step, 1
        while count < min(self.total - step, _MOST) and quiet(step + count):
            count += 1
        return count

    def _send_places(self, count: int) -> _Lot:
        """Sends the places of the rows of the next updates to the device; the host does not wait."""
        source, step = self._source, self.state.step
        if self._fixed:
            return _Lot(step, [None] * count)
        places = source.indices(step, count)
        if self.device.type == "cuda":
            places = places.pin_memory()  # else the copy would wait for the updates before it
        return _Lot(step, [*_device.to_device(places, self.device).view(count, -1).unbind()])

    def close(self) -> None:
        del self._recording  # it has this object's method, and so would live on until garbage is collected

    @torch.no_grad()
    def _update(self, rule_state: Any) -> Any:
        """Makes one update of what lies on the device, from the rule's state to its next one."""
        settings, rule = self.settings, self.settings.rule
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
                self.law, self._v, rule_state, self.state.generator, weights, observed=True, supported=True
            )
        gradients = find_direction(self.law.parameters, estimate.parameters, weight, self.pulls)
        self._gradients = gradients
        with aside(self.device) if settings.clip_norm is None else nullcontext():
            norm = global_norm(gradients)
            self._note(norm, dict(estimate.diagnostics))
        if settings.clip_norm is not None:
            gradients = list(torch._foreach_mul(gradients, (settings.clip_norm / norm).clamp(max=1.0)))
        self.climber.step(gradients)
        if settings.clip_norm is None:
            join(self.device)
        return estimate.state

    def _key_draws(self) -> None:
        """Sets the noise of draws from grey levels, a function of the seed and the update."""
        if self._draws is not None:
            self._draws.manual_seed(stream_seed(self.settings.seed, "transform", self.state.step))

    def _make_sender(self) -> Sender:
        """Returns what sends the rows of the next update while one is made, in the narrower of two types."""
        source, dtype = self._source, self._v.dtype
        if source.tensor is not None and source.tensor.dtype.itemsize < dtype.itemsize:
            dtype = source.tensor.dtype
        return Sender(source.write, (source.size, source.width), dtype, self.device)

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
