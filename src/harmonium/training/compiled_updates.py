"""Updates of small machines, many in one compiled call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from harmonium import _device, _random, backends
from harmonium.chains import KernelState
from harmonium.couplings import Dense
from harmonium.layers import Layer
from harmonium.learning import FreeChains, Rule, begin
from harmonium.training.divergence import DivergenceMonitor
from harmonium.training.penalties import L1, L2
from harmonium.training.state import TrainingState
from harmonium.training.updates import DueWork, UpdateResult, Updates

_NUMBERS = 1 << 20  # of the batches of one call


def served(state: TrainingState) -> bool:
    """Returns whether the updates of a run are made by compiled code; the one place that decides it.

    They serve contrastive divergence, persistent or not, by Gibbs sweeps, of small machines whose visible
    layers, of two-valued, categorical or ``Gaussian`` units, are joined to one hidden layer of two-valued
    ones, and that learn as a whole, by gradient ascent without projection and penalties but weight decay and
    ℓ₁, from complete rows in memory, in runs of at least 200 updates of one process (docs/decisions/0012).
    """
    source, settings, machine = state.batches, state.settings, state.machine
    rule, climber = settings.rule, state.optimizer
    if not (isinstance(rule, Rule) and rule.gibbs_chains):
        return False
    if state.group.size > 1 or settings.transform is not None or settings.precision != "float32":
        return False
    if (
        any(not isinstance(x, L1 | L2) or x.edges is not None for x in settings.pulls())
        or not climber.plain
        or climber.radius is not None
        or not (source.checked and source.observed)
    ):
        return False
    chains = max(source.size, rule.gibbs_chains.chains or 0)
    rows = source.size + chains * rule.gibbs_chains.sweeps
    return (
        all(isinstance(coupling, Dense) for coupling in machine.couplings)
        and all(_learns_mean(layer) or _learns_theta(layer) for layer in machine.layers)
        and all(x.requires_grad and x.is_contiguous() for x in machine.parameters())
        and backends.small_updates(machine.hamiltonian(), chains, rows, state.total)
    )


def _learns_mean(layer: Layer) -> bool:
    """Returns whether Gaussian units learn mean and log-variance, as those of ``layers.Gaussian``."""
    return layer.gaussian and {name for name, _ in layer.named_parameters()} == {"mean", "log_variance"}


def _learns_theta(layer: Layer) -> bool:
    """Returns whether discrete units learn θ itself."""
    parameters, theta = list(layer.parameters()), layer.natural()
    return len(parameters) == len(theta) == 1 and parameters[0].data_ptr() == theta[0].data_ptr()


@final
class CompiledUpdates(Updates):
    """Updates by ``backends.updates``, as many in one call as nothing else is due in.

    The distribution is that of ``OneByOne``, and so are the numbers but for their noise, which every update
    draws from a key of its own: the bits do not depend on how updates are dealt into calls.
    """

    engine = "compiled"

    def __init__(self, state: TrainingState, monitor: DivergenceMonitor) -> None:
        super().__init__(state, monitor)
        machine = state.machine
        *visible, hidden = machine.layers
        # Couplings, locations of visible and hidden units, log-variances: each of all layers, side by side.
        learned = [
            *((coupling.weight, coupling.weight.numel()) for coupling in machine.couplings),
            *((getattr(layer, layer.location), layer.width) for layer in machine.layers),
            *((getattr(layer, "log_variance", None), layer.width) for layer in visible),
        ]
        self._places: dict[Parameter, slice] = {}
        size = 0
        for parameter, width in learned:
            if parameter is not None:
                self._places[parameter] = slice(size, size + width)
            size += width
        self._shape = machine.visible_width, hidden.width
        dtype = _array(machine.couplings[0].weight).dtype
        self._all, self._gradient, self._velocity = (np.zeros(size, dtype) for _ in range(3))
        # As parts of the whole, made once: of an update of 64 x 16 units their making would take a quarter.
        self._whole, self._gradients = self._parts(self._all), self._parts(self._gradient)
        self._arrays = [(_array(p).reshape(-1), self._all[x]) for p, x in self._places.items()]
        if self.climber.momentum:
            self._keep_momenta()
        pulls = self.settings.pulls()  # floats, as numba compiles by type
        self._decay, self._lasso = (
            float(sum(x.strength for x in pulls if isinstance(x, kind))) for kind in (L2, L1)
        )
        self._space: tuple[Any, ...] | None = None
        self._own_chains: tuple[Any, Tensor, Tensor] = None, torch.empty(0), torch.empty(0)
        self._widths = [layer.width for layer in visible]
        self._blocks, self._floors, self._lows = _describe(visible, hidden, dtype)

    def make(self, due_after: Callable[[int], DueWork]) -> UpdateResult:
        from harmonium.backends.updates import run, work_space  # needs numba

        state, settings, source = self.state, self.settings, self.state.batches
        most = 1 if self.average else _NUMBERS // (source.size * source.width)
        count = self.count(due_after, state.step, most)
        v, weights, *_ = source.take(state.step, count)
        v = _device.to_device(v, self.device).view(count, source.size, -1)
        if self.monitor.v is None:
            self.monitor.watch(v[0])
        scales = [self.factor(step, self.total) for step in range(state.step, state.step + count)]
        rates = self.climber.learning_rate * np.array(scales)
        free = settings.rule.gibbs_chains
        assert free is not None
        seen, hidden, sweeps = self._chains(v, free)
        clip_norm = np.inf if settings.clip_norm is None else float(settings.clip_norm)
        for array, part in self._arrays:
            part[:] = array
        norms = np.zeros(count)
        if self._space is None:
            self._space = work_space(_array(v), *self._shape, source.size + len(seen))
        done = run(
            _array(v),
            np.zeros((count, 0)) if weights is None else _array(weights.double().view(count, -1)),
            rates,
            _random.keys(count, state.generator),
            self._whole,
            self._blocks,
            self._floors,
            self._lows,
            _array(seen),
            _array(hidden),
            free.sweeps,
            free.start == "persistent",
            settings.rule.centred,
            self._decay,
            self._lasso,
            clip_norm,
            self.climber.momentum,
            self._velocity,
            self._gradients,
            norms,
            self._space,
        )
        for array, part in self._arrays:
            array[:] = part
        torch.autograd.graph.increment_version(self._places)
        for norm in norms[:done].tolist():
            state.history.add(norm, self.note_clip(norm))
        state.step += done
        if self.average and done:
            self.average.update(state.step)
        if free.start == "persistent":
            chains = [x.contiguous() for x in seen.split_with_sizes(self._widths, 1)]
            state.rule_state = KernelState([*chains, hidden], sweeps + done * free.sweeps, None, {})
            self._own_chains = state.rule_state, seen, hidden
        last = min(done, count - 1)
        self.monitor.v = v[last]
        rate, norm = float(rates[last]), float(norms[last])
        self.climber.set_scale(scales[last])
        problem = None
        if done < count:
            spans = [self._places[x] for x in self.parametrisation.parameters.values()]
            gradients = [torch.from_numpy(self._gradient[span]) for span in spans]
            problem = self.monitor.find_cause(state.step, gradients, norm, {})
        return UpdateResult(rate, norm, self.note_clip(norm), problem)

    def _chains(self, v: Tensor, free: FreeChains) -> tuple[Tensor, Tensor, int]:
        """Returns visible and hidden states of the chains, to be written over, and their sweeps so far."""
        state, rule_state = self.state, self.state.rule_state
        if (
            rule_state is not None and rule_state is self._own_chains[0]
        ):  # made here, so that they may be written over
            return self._own_chains[1], self._own_chains[2], rule_state.sweeps
        v = v[0]
        if free.start != "persistent":
            return v.clone(), v.new_empty(len(v), state.machine.layers[-1].width), 0
        if rule_state is None:
            hamiltonian = self.parametrisation.hamiltonian()
            rule_state = begin(hamiltonian, v, free.chains or len(v), free.start, state.generator)
        elif not isinstance(rule_state, KernelState):
            rule_state = free.go_on(self.parametrisation.hamiltonian(), rule_state, state.generator)
        *visible, hidden = rule_state.states
        return torch.cat(visible, 1), hidden.clone(), rule_state.sweeps

    def _keep_momenta(self) -> None:
        """Lets the optimiser keep its momenta, with which a checkpoint may have begun, in ``_velocity``."""
        for parameter, span in self._places.items():
            state, velocity = self.climber.optimizer.state[parameter], self._velocity[span]
            if state.get("momentum_buffer") is not None:
                velocity[:] = _array(state["momentum_buffer"]).reshape(-1)
            state["momentum_buffer"] = torch.from_numpy(velocity).view_as(parameter)

    def _parts(self, whole: Any) -> tuple[Any, ...]:
        """Returns an array of all parameters and its parts, by which ``run`` knows them."""
        n, m = self._shape
        a, b = n * m + n, n * m + n + m
        return whole, whole[: n * m].reshape(n, m), whole[n * m : a], whole[a:b], whole[b:]


def _describe(visible: Sequence[Layer], hidden: Layer, dtype: Any) -> tuple[Any, Any, Any]:
    """Returns the blocks, floors and lower values of ``backends.updates.run``."""
    widths = [layer.width for layer in visible]
    ends = np.cumsum(widths)
    units = [layer.n_units for layer in visible]
    states = [0 if layer.gaussian else layer.columns_per_unit for layer in visible]
    floors = [getattr(layer, "variance_floor", 0.0) for layer in visible]
    lows = [layer.two_values[0] if layer.two_values else 0.0 for layer in (*visible, hidden)]
    return (
        np.stack([ends - widths, ends, units, states], 1),
        None if states == [1] else np.repeat(floors, widths).astype(dtype),
        (np.repeat(lows[:-1], widths).astype(dtype), np.full(hidden.width, lows[-1], dtype)),
    )


def _array(x: Tensor) -> Any:
    return x.detach().numpy()
