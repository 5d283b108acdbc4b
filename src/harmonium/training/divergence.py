"""Watching a training: numbers that are not finite, machines that run away from their data, saddles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.chains import climb
from harmonium.machine import Hamiltonian, find_improper
from harmonium.training.history import Record
from harmonium.training.optimizers import global_norm

if TYPE_CHECKING:
    from harmonium.training.state import TrainingState

CHECK_EVERY = 100  # updates between two checks, of a quarter of the time of an update of 784x500: 0.3 %
_ABSURD = 10.0  # in units of uniform noise; docs/decisions/0017 has what was measured
_REAL = 100.0  # one column of data and 100 hidden units: 35 at its worst, and sound again after ten updates
_ROWS = 8  # whose median is compared: enough to tell runs apart
_GROWN = 1000.0  # times what is usual: 25 in sound runs at their worst; docs/decisions/0017
_SILENT = 0.05  # deviation of hidden fields: 0.014 in a new machine of two columns, 0.08 in one that learns


@dataclass(eq=False)
class TrainingDiverged(RuntimeError):
    """Ends a training whose numbers are not finite, or whose machine finds its data all but impossible."""

    cause: str  # what was found, by the name of the parameter, diagnostic or state
    step: int = 0  # updates made
    learning_rate: float = math.nan  # of the last update, or of the one that was refused
    checkpoint: Path | None = None  # the last good one; None: none was written

    def __post_init__(self) -> None:
        # What pickle makes it from again: else a pool of processes would break in place of telling.
        self.args = self.cause, self.step, self.learning_rate, self.checkpoint

    def __str__(self) -> str:
        return (
            f"training diverged after {self.step} updates: {self.cause}; learning rate "
            f"{self.learning_rate:.4g}; last good checkpoint: {self.checkpoint or 'none'}. "
            "A third of the learning_rate or a smaller clip_norm may help"
        )


class DivergenceMonitor:
    """Watches whether a run is sound, and keeps the last parameters that a check found good.

    An energy gap as of uniform noise, or as at the start, is good; ten times as large is a problem, and of
    real units a thousand times. ``slack`` is one more factor: 1 where ln p(v) is learned, infinite where only
    ln p(y | x) is. A resumed run has the limit that it began with.
    """

    def __init__(self, state: TrainingState, slack: float) -> None:
        self.hamiltonian: Callable[[], Hamiltonian] = lambda: state.machine.hamiltonian(checked=False)
        self._names, self._parameters = [*state.learned], [p.detach() for p in state.learned.values()]
        stored = {f"couplings.{edge}.weight": x.stored for edge, x in enumerate(state.machine.couplings)}
        self._stored = [part for name, p in state.learned.items() for part in stored.get(name, [p.detach()])]
        self._good, self._good_step = [x.clone() for x in self._stored], state.step
        self.v: Tensor | None = None
        self._state, self._slack, self._gap = state, slack, 0.0
        self._checked, self.weight_norm = -1, math.nan

    def watch(self, v: Tensor) -> None:
        """Hands over the batch of the first update, by which the limit of the run is found."""
        if math.isnan(self._state.limit):
            noise = 1.0 if all(layer.discrete for layer in self.hamiltonian().layers) else _REAL
            gap = float(energy_gap(self.hamiltonian(), v))
            self._state.limit = _ABSURD * self._slack * max(noise, self._state.group.broadcast(gap))
        self.v = v

    def find_cause(
        self, step: int, gradients: list[Tensor], norm: float, diagnostics: Mapping[str, float]
    ) -> TrainingDiverged:
        """Finds which value of the update after ``step`` is not finite, or the machine as its cause."""
        wrong = (name for name, value in diagnostics.items() if not math.isfinite(value))
        name = next(wrong) if math.isfinite(norm) else self._worst(gradients)
        return self.check(step, gap=True, again=True) or TrainingDiverged(
            f"the update's {name} is not finite"
        )

    def check_growth(self, step: int, norm: float, records: Sequence[Record]) -> TrainingDiverged | None:
        """Finds a gradient that has grown by orders since the first hundred updates, by their records."""
        early = [
            x["gradient_norm"]
            for x in records[:CHECK_EVERY]
            if x["step"] <= max(CHECK_EVERY, records[0]["step"])
        ]
        # At a saddle it is nearly 0: 1 for every parameter is usual at any rate.
        usual = max([*early, math.sqrt(sum(x.numel() for x in self._parameters))])
        if step <= CHECK_EVERY or not early or not norm > _GROWN * usual:
            return None
        return self._put_back(f"the gradient's norm has grown to {norm:.3g}: the parameters")

    def measure(self, gap: bool) -> Tensor:
        """Returns the numbers of ``check`` on the device, which may have moved on when they are read."""
        self._copy = [x.clone() for x in self._stored] if gap else []
        return self._numbers(gap)

    def check(
        self, step: int, numbers: Sequence[float] = (), *, gap: bool = False, again: bool = False
    ) -> TrainingDiverged | None:
        """Judges the machine after some updates, once; bad parameters give way to the last good ones.

        Args:
            step: how many.
            numbers: those of ``measure`` after so many; none: they are measured now.
            gap: whether to measure the gap, beside the norms.
            again: whether to judge it even if it was judged at this step before.
        """
        if step == self._checked and not again:
            return None
        measured = numbers or self._numbers(gap).tolist()
        # The gap is that of the rows of rank 0, by which all processes go on or end.
        norm, self.weight_norm, *gaps = (
            measured if self._state.group.size == 1 else self._state.group.broadcast(measured)
        )
        self._gap, self._checked = gaps[0] if gaps else self._gap, step
        cause = ""
        if not math.isfinite(norm):
            cause = f"the values of {self._worst(self._parameters)} are not finite and"
        elif self._gap > self._state.limit or math.isnan(self._gap):
            cause = f"the machine has run away from the data (energy gap {self._gap:.3g}) and its parameters"
        elif gaps and (improper := find_improper(self.hamiltonian())):
            cause = f"the joint precision of its Gaussian layers {improper} is not positive definite: they"
        if cause:
            return self._put_back(cause)
        if gaps and self._gap <= self._state.limit / _ABSURD:
            torch._foreach_copy_(self._good, self._copy if numbers else self._stored)
            self._good_step = step
        return None

    def _put_back(self, cause: str) -> TrainingDiverged:
        torch._foreach_copy_(self._stored, self._good)
        return TrainingDiverged(f"{cause} were put back to those after {self._good_step} updates")

    def warn(self) -> None:
        """Warns where the last check showed a machine that is worse than none, but not yet a problem."""
        if self._gap > self._state.limit / _ABSURD:
            words = "the data of the last batch are less likely under the machine than under uniform noise"
            _checks.warn(f"training ended, but {words}. A lower learning_rate may help", RuntimeWarning)

    def _numbers(self, gap: bool) -> Tensor:
        couplings = [x.weight.detach() for x in self._state.machine.couplings]
        numbers = [global_norm(self._parameters), global_norm(couplings)]
        if gap:
            numbers.append(torch.zeros(()) if self.v is None else energy_gap(self.hamiltonian(), self.v))
        return torch.stack([x.to(self._parameters[0].device, torch.float64) for x in numbers])

    def _worst(self, tensors: Sequence[Tensor]) -> str:
        norms = [torch.linalg.vector_norm(x, dtype=torch.float64) for x in tensors]
        return self._names[int(torch.stack(norms).argmax())]  # a NaN is the largest


@torch.no_grad()
def energy_gap(hamiltonian: Hamiltonian, v: Tensor) -> Tensor:
    """Measures how much less probable data are than the states a sweep towards a mode away.

    No state is more probable than 1: ln p(v) <= F(v') - F(v) for every v' of discrete units. Large fields
    draw next to a mode, where one sweep finds such a v'. Of (batch, visible_width) the first rows are read.

    Returns:
        The median over the rows of F - (the least F that was met), (), in units of what uniform noise has:
        ln n_states for each discrete unit, 1 for each real one. NaN where an energy overflowed.
    """
    graph, v = hamiltonian.graph, v[:_ROWS].to(hamiltonian.device, hamiltonian.dtype)
    hidden = [l for l in graph.unsummed if l not in graph.visible]
    states = [v.new_zeros(len(v), layer.width) for layer in hamiltonian.layers]
    rows = hamiltonian.split(v)
    for l in graph.visible:
        alone = hamiltonian.layers[l].mode(states[l], hamiltonian.thetas[l])
        states[l] = torch.where(rows[l].isnan(), alone, rows[l])
    climb(hamiltonian, states, graph.order)
    for _ in hidden:  # hidden layers of a deep machine settle to the data
        climb(hamiltonian, states, (*hidden, *graph.summed))
    data = hamiltonian.free_energy(states, graph.summed)
    climb(hamiltonian, states, graph.unsummed)
    lowest = torch.minimum(data.min(), hamiltonian.free_energy(states, graph.summed).min())
    unsummed = [hamiltonian.layers[l] for l in graph.unsummed]
    return (data - lowest).median().double() / sum(
        x.n_units * math.log(x.n_states or math.e) for x in unsummed
    )


@torch.no_grad()
def warn_of_saddle(state: TrainingState) -> None:
    """Warns where discrete hidden units beside Gaussian visible ones do not respond to the first batch."""
    machine, rows, layers = state.machine, state.batches, state.machine.layers
    if not machine.graph.is_chain or not layers[0].gaussian or not layers[1].discrete or rows.size < 2:
        return
    fields = machine.hamiltonian().J.factors[0].times(rows.take(0).v.to(machine.device))
    if (deviation := float(fields.var(0).mean().sqrt())) < _SILENT:  # not so for data observed in part
        _checks.warn(
            f"machine: the hidden fields hardly vary over the data (deviation {deviation:.2g}), near a "
            "saddle beside Gaussian units, where learning is slow. machine.init_from_data_ starts off it",
            RuntimeWarning,
        )
