"""Sums over listed states, beside which other layers are summed out by ψ or integrated.

Which layers are listed is decided here, for every sum: ``log_weights`` and ``expect`` take the fewest states.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, log2, nan, prod
from typing import NamedTuple, final

import torch
from torch import Tensor

from harmonium import _device
from harmonium.layers import Layer
from harmonium.machine import Graph, Hamiltonian, States, Statistics
from harmonium.sums.hidden_states import HiddenStates, has_hidden_states
from harmonium.sums.limits import EXPLICIT_LIMIT, LIMIT_TEXT, MAX_MISSING_STATES

_SHORT_LOG2_STATES = 10  # that are rather listed for rows of all patterns at once than pattern by pattern
_BLOCK_ELEMENTS = 1 << 21  # float64 numbers in the largest array of a block: 16 MiB, as the cache has it
_ROWS = 1024  # beside the listed states at a time: 8 MiB for each of 1,000 columns
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
        law: the machine for these rows.
        states: States of the listed layers, (states, width_l), or (rows · states, width_l) where rows show
            some of their units; of the others empty.
        fields: Fields of the summed layers, (rows · states, width_l).
        log_weights: -F, (rows, states) float64, with the volume of a cell of the grid; -inf where a listed
            state contradicts what the row shows.
    """

    law: Hamiltonian
    states: States
    fields: dict[int, Tensor]
    log_weights: Tensor


@final
class Listing:
    """The joint states of some layers, one by one, with the others summed out by ψ.

    Of a layer of which all rows show the same units the others alone are listed.

    Args:
        law: the machine, with what the rows show clamped.
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
        law: Hamiltonian,
        rows: int,
        listed: Sequence[int],
        summed: Sequence[int],
        grid: bool = False,
    ) -> None:
        self.law, self.rows, self.listed, self.summed = law, rows, tuple(listed), tuple(summed)
        self._axes = {
            l: _grid_of(law, l)
            if grid
            else _Axis(units := _list_units(law, l), [law.layers[l].n_states or 0] * len(units))
            for l in self.listed
        }
        steps = [axis.step for axis in self._axes.values() if axis.step is not None]
        self._log_cell = float(torch.cat(steps).log().sum()) if steps else 0.0
        self._radices = [n for axis in self._axes.values() for n in axis.counts]
        self._states = prod(self._radices)
        self.log2_states = log2(self._states) if self._states else inf
        self.columns = sum(layer.width for layer in law.layers)
        self.unit_updates = rows * self.columns * (inf if self.log2_states > 1000 else 2.0**self.log2_states)
        self._clamped = [l for l in range(len(law.layers)) if law.is_clamped(l)]
        empty = torch.empty(rows, 0, dtype=law.dtype, device=law.device)
        self._shown = [
            law.apply_clamp(l, empty) if law.is_clamped(l) else empty for l in range(len(law.layers))
        ]
        self._only: _Block | None = None

    def log_weights(self) -> Tensor:
        """Returns ln Σ exp(-E) over all that each row does not show, (rows,) float64."""
        total = torch.full((self.rows,), -inf, dtype=torch.float64, device=self.law.device)
        for block in self._blocks():
            total = torch.logaddexp(total, block.log_weights.logsumexp(-1))
        return total

    def by_state(self) -> Tensor:
        """Returns ln Σ exp(-E) over the summed layers beside every listed state, (rows, states) float64."""
        return torch.cat([block.log_weights for block in self._blocks()], 1)

    def expect(self, into: Statistics, weight: float | Tensor) -> None:
        """Adds the sum over rows of weight, a number or (rows,), times E[S | what the row shows]."""
        total = self.log_weights()
        row_weights = weight.unsqueeze(-1) if isinstance(weight, Tensor) else weight
        for block in self._blocks():
            self._add(into, block, (block.log_weights - total.unsqueeze(-1)).exp() * row_weights)

    def _add(self, into: Statistics, block: _Block, weights: Tensor) -> None:
        row = torch.arange(self.rows, device=weights.device).repeat_interleave(weights.shape[1])
        states = list(block.states)
        for l in self._clamped:
            states[l] = self._shown[l][row]
        for l in self.listed:
            states[l] = states[l].repeat(weights.numel() // len(states[l]), 1)
        into.add(block.law, states, weights.flatten(), summed=block.fields, fields=block.fields)

    def _blocks(self) -> Iterator[_Block]:
        """Yields all listed states beside every row, some at a time; a single block is kept."""
        if self._only is not None:
            yield self._only
            return
        law, rows, device = self.law, self.rows, self.law.device
        size = max(1, _BLOCK_ELEMENTS // (max(layer.width for layer in law.layers) * rows))
        strides = [prod(self._radices[i + 1 :]) for i in range(len(self._radices))]
        stride, radix = _device.to_device(torch.tensor([strides, self._radices], dtype=torch.int64), device)
        bare, clamped_states = replace(law, held=None), self._shown
        partly = [l for l in (*self.listed, *self.summed) if law.mask(l) is not None]
        times = 1 if set(partly).isdisjoint(self.listed) else rows
        # ln of the weight of a listed state x is -E(clamped) - E(x) + x·(field of what is clamped) + Σ ψ(B)
        # over the summed layers: -F of the joint law with these taken out (FORMULAS §2).
        # What is clamped weighs alike on all listed states: its part is made once for a row.
        outer = {
            l: law.field(l, clamped_states, self._clamped)
            for l in (*self.listed, *self.summed)
            if any(joint.other in self._clamped for joint in law.graph.joints[l])
        }
        base = torch.full((rows, 1), self._log_cell, dtype=torch.float64, device=device)
        if self._clamped:
            base -= bare.energy(clamped_states, self._clamped).unsqueeze(1)
        for start in range(0, self._states, size):
            index = torch.arange(start, min(start + size, self._states), device=device)
            # A state's number, read in the mixed base of the units' state counts, has a digit for every unit.
            digits = index.unsqueeze(-1).div(stride, rounding_mode="floor").remainder_(radix)
            part, count = bare, len(index)
            if partly:
                part = law.select_rows(torch.arange(rows, device=device).repeat_interleave(count))
            states, first = [digits.new_empty(times * count, 0, dtype=law.dtype)] * len(law.layers), 0
            for l, axis in self._axes.items():
                layer_digits = digits[:, first : first + len(axis.counts)]
                states[l] = _states_of(law.layers[l], axis, layer_digits).to(law.dtype).repeat(times, 1)
                if len(axis.units) < law.layers[l].n_units:
                    states[l] = part.apply_clamp(l, states[l])
                first += len(axis.counts)
            log_weights = base.expand(rows, count)
            if self.listed:
                log_weights = log_weights - bare.energy(states, self.listed).view(times, count)
            for l in [l for l in self.listed if l in outer]:
                x = states[l].double().view(times, count, -1)
                log_weights = log_weights + (x @ outer[l].double().view(rows, -1, 1)).view(rows, count)
            fields = dict[int, Tensor]()
            for l in self.summed:
                field = bare.field(l, states, self.listed).view(-1, count, law.layers[l].width)
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


def _list_units(law: Hamiltonian, l: int) -> Tensor:
    """Returns the units of a layer that not all rows show, or all of them where the rows differ."""
    layer, held = law.layers[l], law.mask(l)
    units = torch.arange(layer.n_units, device=law.device)
    if held is None or bool((held != held[0]).any()):
        return units
    return units[~layer.by_unit(held[0])[:, 0]]


def _grid_of(law: Hamiltonian, l: int) -> _Axis:
    """Returns the grid of a Gaussian layer beside one discrete layer, over the units that rows lack."""
    units = _list_units(law, l)
    linear, precision = (theta.detach().double() for theta in law.thetas[l])
    low = high = linear
    for edge, other, above in law.graph.joints[l]:
        J = law.beta_times((law.J.matrix(edge) if above else law.J.matrix(edge).t()).detach().double())
        layer = law.layers[other]
        reach = layer.by_unit(J) @ layer.values().to(J).t()  # (units, units of the other layer, its states)
        low, high = low + reach.amin(-1).sum(-1), high + reach.amax(-1).sum(-1)
    low, high, step = (x[units] for x in (low / precision, high / precision, precision.rsqrt()))
    counts = [int(n) for n in ((high - low) / step + 2 * _REACH).ceil().tolist()]
    return _Axis(units, counts, low - _REACH * step, step)


def _states_of(layer: Layer, axis: _Axis, digits: Tensor) -> Tensor:
    """Returns states of a layer, (states, width), for the digits of the units of an axis."""
    if axis.low is not None and axis.step is not None:
        x = axis.low.new_zeros(len(digits), layer.n_units)
        x[:, axis.units] = axis.low + digits * axis.step
        return x
    if len(axis.units) == layer.n_units:
        return layer.from_digits(digits)
    every = digits.new_zeros(len(digits), layer.n_units)
    every[:, axis.units] = digits
    return layer.from_digits(every)


# Which layers are listed, and what that costs
# ----------------------------------------------------------------------------------------------------------


def _plan(law: Hamiltonian, v: Tensor | None, complete: bool = False, grid: bool = False) -> Listing:
    """Returns the listing of the fewest states for rows, without ``HiddenStates``; refuses too much work."""
    rows = 1 if v is None else len(v)
    law = law.clamp(v, rows, complete)
    layers, free = law.layers, [l for l in range(len(law.layers)) if not law.is_clamped(l)]
    if grid:
        check_plane(law)
        listed, summed = tuple(l for l in free if l in law.graph.visible), law.graph.hidden
    else:
        sizes = {l: layers[l].log2_states * len(_list_units(law, l)) / layers[l].n_units for l in free}
        listed, summed, _ = _split(law.graph, sizes)
    listing = Listing(law, rows, listed, summed, grid)
    if listing.unit_updates > EXPLICIT_LIMIT:
        received = f"at least 2^{listing.log2_states:.4g} states of {listing.columns} columns"
        raise ValueError(
            f"machine: expected layers that can be summed out beside discrete ones, in {LIMIT_TEXT}; "
            "received "
            + ("real units" if listing.log2_states == inf else received)
            + (f" for each of {rows} rows" if rows > 1 else "")
            + "; use harmonium.likelihood.ais, or make units that are not joined with each other a layer, "
            "which is summed out"
        )
    return listing


def check_plane(law: Hamiltonian) -> None:
    """Refuses any machine but Gaussian visible units with one hidden layer of discrete units.

    Raises:
        ValueError: another machine.
    """
    graph, layers = law.graph, law.layers
    if not (graph.is_chain and len(layers) == 2 and layers[0].gaussian and layers[1].discrete):
        raise ValueError(
            "machine: expected Gaussian visible units and one hidden layer of discrete units, "
            f"received {', '.join(layer.kind for layer in layers)}"
        )


def _split(graph: Graph, log2_sizes: Mapping[int, float]) -> tuple[tuple[int, ...], tuple[int, ...], float]:
    """Splits layers into those to list and those to sum out; returns log2 of the states to list."""
    best: tuple[tuple[int, ...], tuple[int, ...], float] = (tuple(log2_sizes), (), inf)
    for summed in sorted(graph.independent_sets(log2_sizes)) or [()]:
        listed = tuple(l for l in log2_sizes if l not in summed)
        size = sum(log2_sizes[l] for l in listed)
        if size < best[2]:
            best = (listed, summed, size)
    return best


def _fewest(law: Hamiltonian, missing: Mapping[int, float]) -> tuple[bool, float]:
    """Returns whether hidden states (``HiddenStates``) are fewest, and log2 of the states to list.

    ``missing`` has the share of the units that are missing, for every visible layer that rows lack units of.
    """
    graph, layers = law.graph, law.layers
    hidden = {l: layers[l].log2_states for l in graph.hidden}
    listed = _split(graph, {l: layers[l].log2_states * share for l, share in missing.items()} | hidden)[2]
    table = sum(hidden.values()) if has_hidden_states(graph, layers) else inf
    return table <= listed and table < inf, min(table, listed)


def _lacked(law: Hamiltonian, v: Tensor | None) -> dict[int, float]:
    """Returns the visible layers that some of the rows lack entries of; all of them without rows."""
    lacking = [True] * len(law.graph.visible) if v is None else law.unobserved(v).any(0).tolist()
    return {l: 1.0 for l, lacks in zip(law.graph.visible, lacking, strict=True) if lacks}


def log2_states(law: Hamiltonian, v: Tensor | None = None) -> Tensor:
    """Returns log2 of the states that are listed for every row, (rows,) on the CPU.

    Args:
        law: the machine.
        v: (rows, visible_width), NaN where not observed; None: one row that shows nothing.

    Returns:
        0 where nothing is left to list, infinite where real units cannot be summed out.
    """
    layers, visible = law.layers, law.graph.visible
    states = law.split(_nothing_seen(law) if v is None else v)
    shares = [layers[l].by_unit(states[l])[..., 0].isnan().double().mean(1) for l in visible]
    patterns, which = torch.unique(torch.stack(shares, 1).cpu(), dim=0, return_inverse=True)
    shares_missing = [
        {l: share for l, share in zip(visible, row, strict=True) if share} for row in patterns.tolist()
    ]
    fewest = [_fewest(law, missing)[1] for missing in shares_missing]
    return torch.tensor(fewest, dtype=torch.float64, device="cpu")[which]


def unit_updates_by_row(law: Hamiltonian, v: Tensor | None = None) -> Tensor:
    """Returns the unit updates of each row, (rows,) on the CPU, whose sum is ``unit_updates``."""
    log2_sizes = log2_states(law, v)
    return sum(layer.width for layer in law.layers) * torch.where(log2_sizes > 0, log2_sizes.exp2(), 0.0)


def unit_updates(law: Hamiltonian, v: Tensor | None = None) -> float:
    """Returns the unit updates of a sum, states that are listed times columns.

    Args:
        law: the machine.
        v: rows, (rows, visible_width), NaN where not observed, of which those cost nothing that leave nothing
            to list; None: ln Z.

    Returns:
        Unit updates over all rows, infinite where real units cannot be summed out.
    """
    return float(unit_updates_by_row(law, v).sum())


def few_states(law: Hamiltonian, missing: Collection[int]) -> bool:
    """Returns whether rows that lack these visible layers have at most ``MAX_MISSING_STATES`` states."""
    return _fewest(law, dict.fromkeys(missing, 1.0))[1] <= log2(MAX_MISSING_STATES)


# Of rows that lack whatever cells
# ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def log_weights(law: Hamiltonian, v: Tensor | None = None, *, grid: bool = False) -> Tensor:
    """Returns ln Σ exp(-E) over all that each row does not show, (rows,) float64.

    In a chain the even or the odd layers are listed, and for rows what they lack or else the hidden states.
    Where hidden states alone are fewest (``HiddenStates``), all rows go together. Elsewhere those do that
    lack entries of the same layers; where that is long, those that lack the same entries.

    Args:
        law: the machine, in float64 for exact answers.
        v: (rows, visible_width), NaN where not observed; None: one row that shows nothing, for ln Z.
        grid: whether Gaussian visible units are listed, on a grid; without rows.

    Raises:
        ValueError: a machine that a grid does not suit, or more work than ``EXPLICIT_LIMIT``.
    """
    if grid:
        return _plan(law, None, grid=True).log_weights()
    v = _nothing_seen(law) if v is None else v
    total = torch.empty(len(v), dtype=torch.float64, device=v.device)
    over_hidden = torch.zeros(len(v), dtype=torch.bool, device=v.device)
    for rows in same_rows(law.unobserved(v)):
        by_hidden, size = _fewest(law, _lacked(law, v[rows]))
        if by_hidden:
            over_hidden[rows] = True
            continue
        together = size <= _SHORT_LOG2_STATES
        for alike in [rows] if together else [rows[same] for same in same_rows(v[rows].isnan())]:
            for part in torch.split(alike, _ROWS):
                total[part] = _plan(law, v[part]).log_weights()
    if bool(over_hidden.any()):
        total[over_hidden] = HiddenStates(law).log_weights(v[over_hidden])
    return total


@torch.no_grad()
def unit_log_weights(law: Hamiltonian, v: Tensor, layer: int, unit: int) -> Tensor:
    """Returns ln Σ exp(-E) of rows for every state of a discrete visible unit, (rows, n_states) float64.

    Args:
        law: the machine.
        v: (rows, visible_width), NaN where not observed; the unit's columns are not read.
        layer: Layer of the unit.
        unit: its number in the layer.
    """
    kind, states = law.layers[layer], law.split(v.clone())
    kind.by_unit(states[layer])[:, unit] = torch.nan
    v = law.visible_states(states)
    lacks = v.isnan().sum(1) > kind.width // kind.n_units
    if not law.graph.independent:
        lacks = torch.ones_like(lacks)
    values = kind.values().to(v)
    log_sums = torch.empty(len(v), len(values), dtype=torch.float64, device=v.device)
    if not bool(lacks.all()):  # then the unit's states alone are listed, and what others send up is made once
        rows = int((~lacks).sum())
        alone, split = kind.n_units == 1, law.split(v[~lacks])
        observed = {l: split[l] for l in law.graph.visible if l != layer or not alone}
        clamped = law.clamp(observed, rows, checked=alone)
        log_sums[~lacks] = Listing(clamped, rows, [layer], law.graph.hidden).by_state()
    if bool(lacks.any()):
        states = law.split(v[lacks])
        for i, value in enumerate(values):
            kind.by_unit(states[layer])[:, unit] = value
            log_sums[lacks, i] = log_weights(law, law.visible_states(states))
    return log_sums


@torch.no_grad()
def expect(
    law: Hamiltonian,
    into: Statistics,
    weight: float | Tensor,
    v: Tensor | None = None,
    *,
    complete: bool = False,
    roots: Mapping[int, Tensor] | None = None,
    grid: bool = False,
) -> None:
    """Adds weight · E[S], or with v the sum over its rows of weight · E[S | v_row].

    Args:
        law: the machine, in float64 for exact answers.
        into: where to add.
        weight: Weight of every row, a number or (rows,).
        v: (rows, visible_width), NaN where not observed; None: one row that shows nothing.
        complete: whether the rows are known to be observed throughout, and checked.
        roots: Roots of columns, see ``HiddenStates``; hidden states are then listed.
        grid: see ``log_weights``; rows that lack the same units are then integrated together.

    Raises:
        ValueError: as ``log_weights``.
    """
    if not grid and (roots or _fewest(law, {} if complete else _lacked(law, v))[0]):
        HiddenStates(law, roots).expect(into, weight, v)
    elif v is None or not grid:
        _plan(law, v, complete, grid).expect(into, weight)
    else:
        for rows in same_rows(v.isnan()):
            row_weights = weight[rows] if isinstance(weight, Tensor) else weight
            _plan(law, v[rows], grid=True).expect(into, row_weights)


def _nothing_seen(law: Hamiltonian) -> Tensor:
    """Returns one row that shows nothing, (1, visible_width)."""
    return law.thetas[0][0].detach().new_full((1, law.visible_width), nan)


def same_rows(patterns: Tensor) -> list[Tensor]:
    """Returns the indices of rows that are equal, for each row that there is."""
    which = torch.unique(patterns, dim=0, return_inverse=True)[1]
    return [(which == i).nonzero().flatten() for i in which.unique()]
