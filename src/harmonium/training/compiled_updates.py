"""Updates of small machines, many in one compiled call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _device, _random
from harmonium.compiled import dispatch
from harmonium.couplings import Dense
from harmonium.learning import Parametrisation, Rule
from harmonium.learning.expectations import begin
from harmonium.training.batch_source import RowBatches
from harmonium.training.optimizers import Ascent
from harmonium.training.settings import Settings
from harmonium.training.state import TrainingState
from harmonium.training.updates import Made, Updates

_NUMBERS = 1 << 20  # of the batches of one call


def served(state: TrainingState, settings: Settings, total: int, climber: Ascent) -> bool:
    """Returns whether the updates of a run are made by compiled code; the one place that decides it.

    They serve contrastive divergence, persistent or not, by Gibbs sweeps, of small machines of two layers of
    two-valued units that all learn, by gradient ascent with or without momentum, from complete rows in
    memory, in runs of at least 200 updates of one process (docs/decisions/0009).
    """
    source, rule = state.batches, settings.rule
    if not (
        dispatch.COMPILED and total >= dispatch.LEAST_UPDATES and isinstance(rule, Rule) and rule.gibbs_chains
    ):
        return False
    if settings.shards is not None or settings.transform is not None or settings.precision != "float32":
        return False
    if climber.momentum is None or not (
        isinstance(source, RowBatches) and source.checked and source.observed
    ):
        return False
    law = Parametrisation(state.machine)
    dense = all(isinstance(each, Dense) for each in state.machine.couplings)
    rows = source.size + max(source.size, rule.gibbs_chains.chains or 0) * rule.gibbs_chains.sweeps
    learned = len(law.parameters) == 3 and all(p.is_contiguous() for p in law.parameters.values())
    return dense and law.identical and learned and dispatch.small_updates(law.hamiltonian(), rows)


@final
class CompiledUpdates(Updates):
    """Updates by ``compiled.updates``, as many in one call as nothing else is due in.

    The law is that of ``OneByOne``, and so are the numbers but for their noise, which every update draws from
    a key of its own: the bits do not depend on how updates are dealt into calls.
    """

    engine = "compiled"

    def __post_init__(self) -> None:
        super().__post_init__()
        layers = self.state.machine.layers
        self._names = ["couplings.0.weight", *(f"layers.{l}.{layers[l].location}" for l in (0, 1))]
        self._parameters = [self.law.parameters[name] for name in self._names]
        self._gradients = [torch.zeros_like(each) for each in self._parameters]
        values = [(layer.width, layer.two_values or (0.0, 1.0)) for layer in layers]
        self._lows = tuple(
            np.full(width, low, _array(self._parameters[0]).dtype) for width, (low, _) in values
        )

    def make(self, quiet: Callable[[int], bool]) -> Made:
        from harmonium.compiled.updates import run  # needs numba

        state, settings, source = self.state, self.settings, self.state.batches
        assert isinstance(source, RowBatches)
        count, most = 1, min(self.total - state.step, max(1, _NUMBERS // (source.size * source.width)))
        while count < most and quiet(state.step + count):
            count += 1
        v, weights, _ = source.take(state.step, count)
        v = _device.to_device(v, self.device).view(count, source.size, -1)
        if self.begin is not None:
            self.begin(v[0])
            self.begin = None
        self.monitor.watch(v[0], self.density)
        scales = [self.scale(step) for step in range(state.step, state.step + count)]
        rates = self.climber.learning_rate * np.array(scales)
        free = settings.rule.gibbs_chains
        assert free is not None
        persistent = free.start == "persistent"
        if persistent:
            law, before = self.law.hamiltonian(), state.rule_state
            if before is None:
                chains = begin(law, v[0], free.chains or source.size, free.start, state.generator)
            else:
                chains = free.go_on(law, before, state.generator)
            states, sweeps = [x.clone() for x in chains.states], chains.sweeps
        else:
            states = [v.new_empty(source.size, layer.width) for layer in state.machine.layers]
        clip_norm = np.inf if settings.clip_norm is None else float(settings.clip_norm)
        momentum = self.climber.momentum or 0.0
        norms = np.zeros(count)
        made = run(
            _array(v),
            np.zeros((count, 0)) if weights is None else _array(weights.double().view(count, -1)),
            rates,
            _random.keys(count, state.generator),
            *map(_array, self._parameters),
            self._lows,
            *map(_array, states),
            free.sweeps,
            persistent,
            settings.rule.centred,
            (float(settings.weight_decay), float(settings.l1), clip_norm),
            momentum,
            tuple(map(_array, self.climber.buffers(self._parameters) if momentum else self._gradients)),
            tuple(map(_array, self._gradients)),
            norms,
        )
        torch.autograd.graph.increment_version(self._parameters)
        for norm in norms[:made].tolist():
            state.history.add(norm, {})
        state.step += made
        if persistent:
            state.rule_state = {"chains": states, "sweeps": sweeps + made * free.sweeps, "own": None}
        last = min(made, count - 1)
        self.monitor.watch(v[last], self.density)
        rate, norm = float(rates[last]), float(norms[last])
        self.climber.optimizer.param_groups[0]["lr"] = rate
        problem = None
        if made < count:
            gradients = dict(zip(self._names, self._gradients, strict=True))
            problem = self.monitor.check_gradients(
                [gradients[name] for name in self.law.parameters], norm, {}
            )
        return Made(rate, norm, {}, problem)


def _array(x: Tensor) -> Any:
    return x.detach().numpy()
