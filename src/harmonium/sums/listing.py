"""Sums over listed states, beside which other layers are summed out by ψ or integrated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf, log2, prod
from typing import NamedTuple, final

import torch
from torch import Tensor

from harmonium import _device
from harmonium.machine import Hamiltonian, States, Statistics

_BLOCK_ELEMENTS = 1 << 21  # float64 numbers in the largest array of a block: 16 MiB, as the cache has it
_REACH = 8.0  # standard deviations of a grid beyond the outermost mean: what lies there is below 1e-15


class _Axis(NamedTuple):
    """Units of a listed layer: their indices, the number of states of each, and the grid of real ones.

    State k of real unit i is low[i] + k · step[i]; both are None for discrete units.
    """

    units: Tensor
    counts: list[int]
    low: Tensor | None = None
    step: Tensor | None = None


class _Block(NamedTuple):
    """Some listed states beside all rows, row-major.

    Attributes:
        hamiltonian: the machine for these rows.
        states: States of the listed layers, (states, width_l), or (rows · states, width_l) where rows show
            some of their units; of the others empty.
        fields: Fields of the summed layers, (rows · states, width_l).
        log_weights: -F, (rows, states) float64, with the volume of a cell of the grid; -inf where a listed
            state contradicts what the row shows.
    """

    hamiltonian: Hamiltonian
    states: States
    fields: dict[int, Tensor]
    log_weights: Tensor


@final
class Listing:
    """The joint states of some layers, one by one, with the others summed out by ψ.

    Of a layer of which all rows show the same units the others alone are listed.

    Args:
        hamiltonian: the machine, with what the rows show clamped.
        rows: their number.
        listed: layers to list, in this order, the last of them fastest.
        summed: all other layers that are not clamped, no two of them joined.
        grid: whether real layers are listed as well, on a grid; all rows lack the same of their units.
            Given the hidden units the visible ones are Gaussian, with means in a box that follows from the
            couplings. The grid covers the box and eight standard deviations more at a spacing of one: the
            trapezoid rule is then wrong by less than 1e-8 of Z.
    """

    def __init__(
        self,
        hamiltonian: Hamiltonian,
        rows: int,
        listed: Sequence[int],
        summed: Sequence[int],
        grid: bool = False,
    ) -> None:
        self.hamiltonian, self.rows = hamiltonian, rows
        self.listed, self.summed = tuple(listed), tuple(summed)
        self._axes = {l: _find_axis(hamiltonian, l, grid) for l in self.listed}
        cells = [axis.step.log().sum() for axis in self._axes.values() if axis.step is not None]
        self._log_cell = float(sum(cells))
        self._states = prod(n for axis in self._axes.values() for n in axis.counts)
        self.log2_states = log2(self._states) if self._states else inf
        self.columns = sum(layer.width for layer in hamiltonian.layers)
        self.unit_updates = rows * self.columns * (inf if self.log2_states > 1000 else 2.0**self.log2_states)
        self._clamped = [l for l in range(len(hamiltonian.layers)) if hamiltonian.is_clamped(l)]
        self._shown = [hamiltonian.thetas[0][0].new_empty(rows, 0)] * len(hamiltonian.layers)
        for l in self._clamped:
            self._shown[l] = hamiltonian.apply_clamp(l, self._shown[l])
        self._only: _Block | None = None

    @cached_property
    def log_weights(self) -> Tensor:
        """ln Σ exp(-E) over all that each row does not show, (rows,) float64."""
        total = torch.full((self.rows,), -inf, dtype=torch.float64, device=self.hamiltonian.device)
        for block in self._blocks():
            total = torch.logaddexp(total, block.log_weights.logsumexp(-1))
        return total

    def by_state(self) -> Tensor:
        """Returns ln Σ exp(-E) over the summed layers beside every listed state, (rows, states) float64."""
        return torch.cat([block.log_weights for block in self._blocks()], 1)

    def expect(self, into: Statistics, weight: float | Tensor) -> None:
        """Adds the sum over rows of weight, a number or (rows,), times E[S | what the row shows]."""
        row_weights = weight.unsqueeze(-1) if isinstance(weight, Tensor) else weight
        for block in self._blocks():
            p = (block.log_weights - self.log_weights.unsqueeze(-1)).exp() * row_weights
            states = list(block.states)
            for l in self._clamped:
                states[l] = self._shown[l].repeat_interleave(p.shape[1], 0)
            for l in self.listed:
                states[l] = states[l].repeat(p.numel() // len(states[l]), 1)
            into.add(block.hamiltonian, states, p.flatten(), summed=block.fields, fields=block.fields)

    def _blocks(self) -> Iterator[_Block]:
        """Yields all listed states beside every row, some at a time; a single block is kept."""
        if self._only is not None:
            yield self._only
            return
        hamiltonian, rows, device = self.hamiltonian, self.rows, self.hamiltonian.device
        size = max(1, _BLOCK_ELEMENTS // (max(layer.width for layer in hamiltonian.layers) * rows))
        bare, clamped_states = replace(hamiltonian, held=None), self._shown
        partly = [l for l in (*self.listed, *self.summed) if hamiltonian.mask(l) is not None]
        times = 1 if set(partly).isdisjoint(self.listed) else rows
        # ln of the weight of a listed state x is -E(clamped) - E(x) + x·(field of what is clamped) + Σ ψ(B)
        # over the summed layers: -F of the joint distribution with these taken out (FORMULAS §2).
        # What is clamped weighs alike on all listed states: its part is made once for a row.
        outer = {
            l: hamiltonian.field(l, clamped_states, self._clamped)
            for l in (*self.listed, *self.summed)
            if any(joint.other in self._clamped for joint in hamiltonian.graph.joints[l])
        }
        base = torch.full((rows, 1), self._log_cell, dtype=torch.float64, device=device)
        base -= torch.as_tensor(hamiltonian.offset, dtype=torch.float64, device=device).view(-1, 1)
        if self._clamped:
            base -= bare.energy(clamped_states, self._clamped).unsqueeze(1)
        for start in range(0, self._states, size):
            index = torch.arange(start, min(start + size, self._states), device=device)
            part, count = bare, len(index)
            if partly:
                part = hamiltonian.select_rows(torch.arange(rows, device=device).repeat_interleave(count))
            states = [x.repeat(times, 1) for x in _states_of(hamiltonian, self._axes, index)]
            for l, axis in self._axes.items():
                if len(axis.units) < hamiltonian.layers[l].n_units:  # elsewhere ``agrees`` tells states apart
                    states[l] = part.apply_clamp(l, states[l])
            log_weights = base.expand(rows, count)
            if self.listed:
                log_weights = log_weights - bare.energy(states, self.listed).view(times, count)
            for l in [l for l in self.listed if l in outer]:
                x = states[l].double().view(times, count, -1)
                log_weights = log_weights + (x @ outer[l].double().view(rows, -1, 1)).view(rows, count)
            fields = dict[int, Tensor]()
            for l in self.summed:
                field = bare.field(l, states, self.listed).view(-1, count, hamiltonian.layers[l].width)
                field = field + outer[l].unsqueeze(1) if l in outer else field.expand(rows, -1, -1)
                fields[l] = field.flatten(0, 1)
                log_weights = log_weights + part.summed_weight(l, fields[l]).view(rows, count)
            for l in self.listed:
                agrees = None if part.held is None else part.held.agrees(l, states[l])
                if agrees is not None:
                    log_weights = torch.where(agrees.view(rows, count), log_weights, -inf)
            block = _Block(part, states, fields, log_weights)
            if size >= self._states:
                self._only = block
            yield block


def list_units(hamiltonian: Hamiltonian, l: int) -> Tensor:
    """Returns the units of a layer that not all rows show, or all of them where the rows differ."""
    layer, held = hamiltonian.layers[l], hamiltonian.mask(l)
    units = torch.arange(layer.n_units, device=hamiltonian.device)
    if held is None or bool((held != held[0]).any()):
        return units
    return units[~layer.by_unit(held[0])[:, 0]]


def _find_axis(hamiltonian: Hamiltonian, l: int, grid: bool) -> _Axis:
    """Returns the units of a layer to list; on a grid those of a Gaussian layer beside one discrete layer."""
    units, n_states = list_units(hamiltonian, l), hamiltonian.layers[l].n_states or 0
    if not grid:
        return _Axis(units, [n_states] * len(units))
    linear, precision = (theta.detach().double() for theta in hamiltonian.thetas[l])
    low = high = linear
    for edge, other, above in hamiltonian.graph.joints[l]:
        J = hamiltonian.beta_times(
            (hamiltonian.J.matrix(edge) if above else hamiltonian.J.matrix(edge).t()).detach().double()
        )
        layer = hamiltonian.layers[other]
        reach = layer.by_unit(J) @ layer.values().to(J).t()  # (units, units of the other layer, its states)
        low, high = low + reach.amin(-1).sum(-1), high + reach.amax(-1).sum(-1)
    low, high, step = (x[units] for x in (low / precision, high / precision, precision.rsqrt()))
    counts = [int(n) for n in ((high - low) / step + 2 * _REACH).ceil().tolist()]
    return _Axis(units, counts, low - _REACH * step, step)


def list_states(hamiltonian: Hamiltonian, among: Sequence[int]) -> States:
    """Returns all joint states of some layers, for each (states, width_l); of the others (states, 0)."""
    free = replace(hamiltonian, held=None)
    axes = {l: _find_axis(free, l, grid=False) for l in among}
    number = prod(n for axis in axes.values() for n in axis.counts)
    return _states_of(free, axes, torch.arange(number, device=hamiltonian.device))


def _states_of(hamiltonian: Hamiltonian, axes: Mapping[int, _Axis], index: Tensor) -> States:
    """Returns the joint states of some numbers, the last unit fastest: (states, width_l), or (states, 0)."""
    # A state's number, read in the mixed base of the units' state counts, has a digit for every unit.
    radices = [n for axis in axes.values() for n in axis.counts]
    strides = [prod(radices[i + 1 :]) for i in range(len(radices))]
    stride, radix = _device.to_device(torch.tensor([strides, radices], dtype=torch.int64), index.device)
    digits = index.unsqueeze(-1).div(stride, rounding_mode="floor").remainder_(radix)
    states = [digits.new_empty(len(index), 0, dtype=hamiltonian.dtype)] * len(hamiltonian.layers)
    parts = torch.split(digits, [len(axis.counts) for axis in axes.values()], 1)
    for (l, axis), layer_digits in zip(axes.items(), parts, strict=True):
        layer = hamiltonian.layers[l]
        if axis.low is not None and axis.step is not None:
            x = axis.low.new_zeros(len(index), layer.n_units)
            x[:, axis.units] = axis.low + layer_digits * axis.step
        else:
            every = digits.new_zeros(len(index), layer.n_units)
            every[:, axis.units] = layer_digits
            x = layer.from_digits(every)
        states[l] = x.to(hamiltonian.dtype)
    return states
