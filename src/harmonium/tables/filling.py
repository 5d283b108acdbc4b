"""Means of missing cells, and intervals that hold as many of them as asked.

Intervals are conformal: the errors of hidden cells of held-out rows, in units of the deviation that the
machine gives each, tell how far from the mean the ends lie (Lei, G'Sell, Rinaldo, Tibshirani & Wasserman
2018). So they hold for cells that are missing as those were hidden: whatever their values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import compress
from math import ceil, nan
from typing import Any, NamedTuple, Self, final

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks
from harmonium._random import as_generator, uniform
from harmonium.data import Encoder
from harmonium.layers import Layer
from harmonium.machine import BoltzmannMachine
from harmonium.sums import HiddenStates
from harmonium.tables.column import ColumnCodec
from harmonium.tables.linear import WIDEST, LinearPrediction, choose_mixing_weights
from harmonium.tables.table import Table

FEWEST_ROWS = 50
"""Held-out rows that intervals need: of fewer their ends are not known well enough to be worth giving."""
_LEVELS = 200  # of the quantiles that are kept: 1/200, ..., 199/200
_LARGEST = 1 - 2 / _LEVELS  # interval of which these tell the ends
_JUDGED = 1000  # held-out rows whose cells are hidden, at most: a share is then known to about 0.1
_PARTS = 5  # parts of the cells of held-out rows, each hidden in turn: a fifth is what tables often lack
_DRAWS = 100  # of a row, whose mean cell is that of a column along a curve: its noise adds 0.5 % to an error
_BLOCK = 2048  # rows whose draws are held at a time: 30 MB of 20 columns
_FLOOR = 0.1  # of a column's usual deviation, the least of a cell's: the machine may be too sure of one


class Cells(NamedTuple):
    """Cells of rows, (rows, width) float64, as ``straighten`` has them, with what is filled in.

    Attributes:
        mean: Means, and the cells that are there.
        spread: Standard deviations given the rest of the row, by the machine; 0 of cells that are there.
    """

    mean: Tensor
    spread: Tensor


class CellInterval(NamedTuple):
    """One missing cell, and where it lies.

    Attributes:
        row: Number of its row, from 0.
        column: Name of its column, or its number.
        value: Mean of a number, not rounded, or the most probable label.
        low: Lower end of an interval of numbers; NaN of labels, and where too few cells were hidden (None of
            dates).
        high: Upper end, likewise.
        labels: Set of labels, the states of a discrete column in order; empty for numbers.
    """

    row: int
    column: Any
    value: Any
    low: Any
    high: Any
    labels: tuple[Any, ...]


@torch.no_grad()
def fill_cells(
    machine: BoltzmannMachine, encoder: Encoder, v: Tensor, seed: int | torch.Generator = 0
) -> Cells:
    """Returns the means of the cells that rows lack, by the machine and the lines beside it.

    Args:
        machine: whose hidden states are summed over.
        encoder: Encoder of its data.
        v: (rows, visible_width), NaN where missing.
        seed: Seed of draws, of columns along curves, an int or a generator.
    """
    generator = as_generator(seed, machine.device)
    cells = expected_cells(HiddenStates.of(machine), encoder, v, generator)
    lines = LinearPrediction.of(machine)
    if lines is None:
        return cells
    by_lines = lines.predict(straighten(encoder, v).cpu()).to(cells.mean)
    return cells._replace(mean=torch.lerp(cells.mean, by_lines, lines.shares.to(cells.mean)))


@torch.no_grad()
def calibrate(
    machine: BoltzmannMachine,
    encoder: Encoder,
    hidden_states: HiddenStates,
    learned: tuple[Tensor, Tensor | None],
    held: tuple[Tensor, Tensor | None],
    seed: int,
) -> None:
    """Hides cells of held-out rows, and keeps lines and intervals by them in the metadata of a machine.

    Lines stand beside machines with a column of numbers, and of at most 1,000 columns of states. There are
    no intervals where fewer than 50 rows were held out.

    Args:
        machine: Machine whose cells are to be filled in.
        encoder: Encoder of its data.
        hidden_states: The machine that has learned the rows of ``learned`` alone, in float64.
        learned: Visible states with their weights, (rows,) or None.
        held: the same of the rows held out.
        seed: Seed of which cells are hidden, and of draws.
    """
    generator, units = as_generator(seed), machine.unit_of_column.cpu()
    rows, weights = held[0][:_JUDGED].double().cpu(), None if held[1] is None else held[1][:_JUDGED]
    cells, known = straighten(encoder, rows), straighten(encoder, learned[0].double().cpu())
    numbers = any(_states_of(layer) is None for layer, _ in _list_units(machine))
    lines = LinearPrediction.fit(known, learned[1]) if numbers and rows.shape[1] <= WIDEST else None
    parts = (uniform((len(rows), int(units[-1]) + 1), generator, torch.float64) * _PARTS).long()[:, units]
    estimates, by_lines = Cells(cells.clone(), torch.ones_like(cells)), cells.clone()
    for part in range(_PARTS):
        hidden = (parts == part) & ~cells.isnan()
        shown = rows.masked_fill(hidden, torch.nan)
        for into, filled in zip(
            estimates, expected_cells(hidden_states, encoder, shown, generator), strict=True
        ):
            into[hidden] = filled.cpu()[hidden]
        if lines is not None:
            by_lines[hidden] = lines.predict(straighten(encoder, shown))[hidden]
    if lines is not None:
        mixing_weights = choose_mixing_weights(cells, estimates.mean, by_lines, weights, units)
        estimates = estimates._replace(mean=torch.lerp(estimates.mean, by_lines, mixing_weights))
        every = torch.cat([known, straighten(encoder, held[0].double().cpu())])
        both = [] if learned[1] is None or held[1] is None else [torch.cat([learned[1], held[1]])]
        replace(LinearPrediction.fit(every, *both), shares=mixing_weights).keep_in(machine)
    if len(rows) >= FEWEST_ROWS:
        Intervals.fit(machine, cells, estimates).keep_in(machine)


@torch.no_grad()
def expected_cells(
    hidden_states: HiddenStates, encoder: Encoder, v: Tensor, generator: torch.Generator
) -> Cells:
    """Returns the machine's means and deviations of the cells that rows, (rows, width), lack."""
    mean, curves = straighten(encoder, v), [*_curves(encoder)]
    spread = torch.zeros_like(mean)
    for start in range(0, len(v), _BLOCK):
        some = slice(start, start + _BLOCK)
        for block_rows, posterior in hidden_states.blocks(v[some]):
            states = posterior.moments()
            mean[some][block_rows] = states.mean.to(mean)
            spread[some][block_rows] = states.variance.clamp(min=0.0).sqrt().to(mean)
            drawn = straighten(encoder, posterior.draw(generator, _DRAWS)) if curves else mean
            for at, column in curves:
                cells = _within(column, drawn[..., at])
                mean[some][block_rows, at], spread[some][block_rows, at] = cells.mean(0), cells.std(0)
    return Cells(mean, spread)


@final
@dataclass(frozen=True)
class Intervals:
    """Quantiles of how far hidden cells of held-out rows lie from their means.

    Attributes:
        quantiles: of errors over deviations, of discrete columns of 1 - p(label), at levels 1/200 to 199/200;
            (199, width), NaN where too few cells tell them.
        floor: Least deviation of a cell of each column, (width,).
    """

    quantiles: Tensor
    floor: Tensor

    @classmethod
    def fit(cls, machine: BoltzmannMachine, cells: Tensor, filled: Cells) -> Self:
        """Finds the quantiles from cells (rows, width), NaN where not known, and what fills them in."""
        floor = _FLOOR * filled.spread.where(~cells.isnan(), torch.nan).nanmean(0).nan_to_num(0.0)
        errors = (cells - filled.mean) / filled.spread.maximum(floor).clamp(min=1e-300)
        for layer, span in _list_units(machine):
            if _states_of(layer) is not None:
                p = _probability(layer, cells[:, span], filled.mean[:, span])
                errors[:, span] = 1 - p.unsqueeze(1)
        # Between neighbours of n sorted errors lies 1 / (n + 1) of those to come, on average.
        ordered, count = errors.sort(0).values, (~errors.isnan()).sum(0)
        at = torch.arange(1, _LEVELS, dtype=torch.float64).unsqueeze(1) / _LEVELS * (count + 1) - 1
        below = at.long().clamp(0, len(ordered) - 1)
        lower, upper = (ordered.gather(0, k) for k in (below, (below + 1).clamp(max=len(ordered) - 1)))
        between = torch.where(at > below, torch.lerp(lower, upper, at - below), lower)
        in_range = (at > -1e-9) & (at < count - 1 + 1e-9)
        return cls(between.masked_fill(~in_range, torch.nan), floor)

    @classmethod
    def of(cls, machine: BoltzmannMachine) -> Self:
        """Reads what ``keep_in`` has put into the metadata of a machine.

        Raises:
            ValueError: there is nothing, or metadata that are damaged.
        """
        stored = machine.metadata.get("intervals")
        if stored is None:
            raise ValueError(
                "interval: expected a machine that was trained without chains, with at least "
                f"{FEWEST_ROWS} rows held out (a table of 200 rows or more), and has not learned since; "
                "draws (imputations) show how far cells vary"
            )
        try:
            parts = [np.array(stored[name], dtype=np.float64) for name in ("quantiles", "floor")]
            if [x.shape for x in parts] != [(_LEVELS - 1, machine.visible_width), (machine.visible_width,)]:
                raise ValueError(f"expected numbers of {machine.visible_width} columns")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"machine: its metadata are damaged, intervals {error}") from error
        return cls(*map(torch.from_numpy, parts))

    def keep_in(self, machine: BoltzmannMachine) -> None:
        """Puts the quantiles into the metadata of a machine, in plain JSON types."""
        quantiles = [[None if x != x else float(f"{x:.5g}") for x in row] for row in self.quantiles.tolist()]
        floor = [float(f"{x:.5g}") for x in self.floor.tolist()]
        machine.metadata["intervals"] = {"quantiles": quantiles, "floor": floor}

    def at(self, level: float) -> Tensor:
        """Returns the quantiles at a level between the least and the largest that is kept, (width,)."""
        position = round(min(max(level * _LEVELS - 1, 0.0), _LEVELS - 2.0), 9)
        below, above = self.quantiles[int(position)], self.quantiles[ceil(position)]
        return torch.where(below == above, below, torch.lerp(below, above, position % 1))


@torch.no_grad()
def find_intervals(
    machine: BoltzmannMachine,
    encoder: Encoder,
    v: Tensor,
    interval: float = 0.9,
    seed: int | torch.Generator = 0,
) -> list[CellInterval]:
    """Returns an interval for every missing number, and a set of labels for every missing label.

    They hold as large a share of cells that are missing as those of training rows were hidden: at random,
    whatever their values. Sets hold the most probable label at least.

    Args:
        machine: trained without chains.
        encoder: Encoder of its data, whose columns have one unit each.
        v: (rows, visible_width), NaN where missing.
        interval: Share of the cells that they are to hold, above 0 and at most 0.99.
        seed: Seed of draws, of columns along curves, an int or a generator.

    Returns:
        One for each missing cell of the data, by row and column.

    Raises:
        ValueError: another share, or a machine whose training held out too few rows.
    """
    if not 0 < _checks.real(interval, "interval") <= _LARGEST:
        raise ValueError(
            f"interval: expected a share above 0 and at most {_LARGEST:g}, received {interval:g}"
        )
    known = Intervals.of(machine)
    label = machine.layers[machine.visible[-1]].width if "label" in machine.metadata else 0
    data = slice(machine.visible_width - label)
    mean, spread = (x.cpu() for x in fill_cells(machine, encoder, v, seed))
    spread = spread.maximum(known.floor)
    ends = [mean + known.at((1 + sign * interval) / 2) * spread for sign in (-1, 1)]
    cells = [_decode(encoder, bend(encoder, x)[:, data]) for x in (mean, *ends)]
    units = [(layer, span) for layer, span in _list_units(machine) if span.stop <= data.stop]
    if len(units) != len(cells[0]):
        raise ValueError(
            f"interval: expected a unit for each of {len(cells[0])} columns, received {len(units)}"
        )
    intervals = list[tuple[int, int, CellInterval]]()
    for j, ((layer, span), name) in enumerate(zip(units, cells[0], strict=True)):
        missing, states = v[:, span.start].isnan().nonzero().flatten().tolist(), _states_of(layer)
        if states is None:
            value, low, high = (x[name] for x in cells)
            intervals += [(i, j, CellInterval(i, name, value[i], low[i], high[i], ())) for i in missing]
            continue
        every = mean.new_zeros(len(states), data.stop)
        every[:, span] = states
        labels = _decode(encoder, every)[name]
        for i in missing:
            p = _probability(layer, states, mean[i, span])
            held = (1 - p <= known.at(interval)[span.start].nan_to_num(1.0)) | (p == p.max())
            likeliest = labels[int(p.argmax())]
            intervals.append(
                (i, j, CellInterval(i, name, likeliest, nan, nan, tuple(compress(labels, held))))
            )
    return [cell for _, _, cell in sorted(intervals, key=lambda entry: entry[:2])]


def _list_units(machine: BoltzmannMachine) -> Iterator[tuple[Layer, slice]]:
    """Yields the layer and the columns of states of every visible unit."""
    start = 0
    for layer in map(machine.layers.__getitem__, machine.visible):
        for _ in range(layer.n_units):
            yield layer, slice(start, start + layer.columns_per_unit)
            start += layer.columns_per_unit


def _states_of(layer: Layer) -> Tensor | None:
    """Returns the states of a unit that has labels, (states, columns); None: it has numbers."""
    return layer.values().double().cpu() if layer.one_hot or layer.two_values else None


def _probability(layer: Layer, states: Tensor, mean: Tensor) -> Tensor:
    """Returns the probabilities, (...), of states (..., columns) of a unit that has these means."""
    if layer.one_hot:
        return (states * mean).sum(-1)
    low, high = layer.two_values or (0.0, 1.0)
    return 1 - (states - mean)[..., 0].abs() / (high - low)


def _decode(encoder: Encoder, states: Tensor) -> dict[Any, list[Any]]:
    """Returns the cells of states, not rounded, by the name or the number of their column."""
    if not isinstance(encoder, Table):
        return dict(enumerate(encoder.decode(states).T.tolist()))
    parts = encoder.split(states)
    return {c.name: c.decode(parts[c.name], rounded=False).tolist() for c in encoder.columns}


def straighten(encoder: Encoder, v: Tensor) -> Tensor:
    """Returns states (..., width) in float64, with cells in place of those of columns along curves."""
    x = v.double().clone()
    for span, column in _curves(encoder):
        x[..., span] = torch.from_numpy(column.numbers(x[..., span].cpu().numpy())).to(x)
    return x


def bend(encoder: Encoder, x: Tensor) -> Tensor:
    """Returns the states (..., width) of what ``straighten`` has made of them, within what was seen."""
    v = x.clone()
    for span, column in _curves(encoder):
        within = _within(column, v[..., span])  # a logarithm has no state for what lies below
        v[..., span] = torch.from_numpy(column.between(within.cpu().numpy())).to(v)
    return v


def _within(column: ColumnCodec, cells: Tensor) -> Tensor:
    """Returns cells within the limits of what is filled in."""
    return cells if column.ends is None else cells.clamp(*column.ends)


def _curves(encoder: Encoder) -> Iterator[tuple[int, ColumnCodec]]:
    """Yields the places among the states of columns along curves, ranks among them, with these."""
    start = 0
    for column in encoder.columns if isinstance(encoder, Table) else ():
        if column.curved or (column.ranked and len(column.values) > 2):
            yield start, column
        start += column.width
