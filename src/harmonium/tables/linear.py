"""Straight lines beside a machine: cells predicted by one normal distribution of all columns.

What a cell is filled in with is the mean of the machine and that of the lines, each with a share that hidden
cells of held-out rows choose, column by column (docs/decisions/0020-linear-models-beside-a-machine.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Self, final

import torch
from torch import Tensor

from harmonium._random import as_generator, uniform
from harmonium.data import Encoder
from harmonium.layers import Gaussian
from harmonium.machine import BoltzmannMachine
from harmonium.sums import HiddenStates
from harmonium.tables.column import ColumnCodec
from harmonium.tables.correlated import ANY, Shape, choose_shape, fit_normal, list_shapes
from harmonium.tables.table import Table
from harmonium.training import take_rows

_RIDGES = (0.005, 0.05, 0.2)  # shares of the variances that are added, of which hidden cells choose one
_ROUNDS, _TOLERANCE = 20, 1e-3  # of expectation-maximisation; nats a cell: another changes an error by 1e-3
_ROWS = slice(5000)  # rows that the distribution is fitted to, as those of covariances in ``table_fit``
_WIDEST = 1000  # columns of states: their covariances take 6 MB in the file of a machine
_PARTS = 5  # parts of the cells of held-out rows, each hidden in turn: a fifth is what tables often lack
_JUDGED = 1000  # held-out rows whose cells are hidden, at most: a share is then known to about 0.1
# At least, and over the cube of the columns, which a row's hidden cells take: fewer of over 400 columns.
_FEWEST_JUDGED, _JUDGED_PRODUCTS = 100, 6e10
_EVEN, _VARIANCE = 0.5, 1 / 12  # mean and variance of a share that no cell tells of: uniform on [0, 1]
_DRAWS = 100  # of a row, whose mean cell is that of a column along a curve: its noise adds 0.5 % to an error
_COVERED, _REACH = 0.9, 1.645  # share of a normal distribution within so many deviations of its mean
_FEW_CELLS = 20  # hidden real cells: fewer leave their 90 % quantile open
_BLOCK = 2048  # rows whose draws are held at a time: 30 MB of 20 columns


@final
@dataclass(frozen=True)
class LinearPrediction:
    """A normal distribution of all columns, labels as 0/1 columns, and the share that its means have.

    Cells are those of ``straighten``.

    Attributes:
        columns: the columns of states that vary, (n,) int64.
        mean: of their cells, (n,) float64.
        covariance: (n, n).
        low: least cell that was seen of every column of states, (width,).
        high: largest one.
        shares: in [0, 1], (width,), equal within a unit; the machine's are the rest.
        spread: Factor by which the machine's draws of real cells are spread about their means, () above 0.
    """

    columns: Tensor
    mean: Tensor
    covariance: Tensor
    low: Tensor
    high: Tensor
    shares: Tensor
    spread: Tensor

    @classmethod
    @torch.no_grad()
    def fit(
        cls,
        x: Tensor,
        weights: Tensor | None,
        shape: Shape = ANY,
        start: Self | None = None,
    ) -> Self:
        """Fits the distribution to cells (rows, width), NaN where missing; the shares are even.

        Args:
            x: cells.
            weights: Row weights, (rows,), at least 0; None means uniform.
            shape: Shape of the covariance.
            start: a prediction of similar rows, to begin with; None: there is none.
        """
        x, seen = x.double(), ~x.isnan()
        ends = x.nan_to_num(nan=torch.inf).amin(0), x.nan_to_num(nan=-torch.inf).amax(0)
        low, high = (torch.where(seen.any(0), end, 0.0) for end in ends)
        rows, row_weights = take_rows(x, weights, _ROWS)
        deviation = (rows - rows.nanmean(0)).square().nanmean(0).sqrt()
        columns = (deviation > 0).nonzero().flatten()
        spread = deviation[columns]
        begin = None
        if start is not None and torch.equal(start.columns, columns):
            begin = (start.mean / spread, start.covariance / torch.outer(spread, spread))
        mean, covariance = fit_normal(
            rows[:, columns] / spread,
            row_weights,
            **shape._asdict(),
            rounds=_ROUNDS,
            tolerance=_TOLERANCE * len(columns),
            start=begin,
        )
        shares = torch.full_like(low, _EVEN)
        covariance = covariance * torch.outer(spread, spread)
        return cls(columns, mean * spread, covariance, low, high, shares, low.new_ones(()))

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Returns conditional means, within the range that was seen, in place of NaN, (rows, width)."""
        full, hidden_states, spread = x.double().clone(), *self._hidden_states
        for place, posterior in hidden_states.blocks(full[:, self.columns] / spread):
            full[place, self.columns] = posterior.moments().mean * spread
        within = torch.where(full.isnan(), self.low, full).clamp(self.low, self.high)
        return torch.where(x.isnan(), within, x.double())

    @property
    def _hidden_states(self) -> tuple[HiddenStates, Tensor]:
        """The distribution of the columns over their deviations, and these."""
        spread = self.covariance.diagonal().sqrt()
        root = torch.linalg.cholesky(self.covariance / torch.outer(spread, spread))
        machine = BoltzmannMachine([Gaussian(len(spread))], edges=[]).to(spread.device).double()
        one = torch.ones_like(spread)
        mean = torch.linalg.solve_triangular(root, (self.mean / spread).unsqueeze(1), upper=False)[:, 0]
        machine.layers[0].fit_((mean, one), one)
        return HiddenStates(machine.hamiltonian(), {0: root}), spread

    @classmethod
    def of(cls, machine: BoltzmannMachine) -> Self | None:
        """Reads what ``keep_in`` has put into the metadata of a machine; None: nothing is there.

        Raises:
            ValueError: metadata that are damaged.
        """
        stored = machine.metadata.get("linear")
        if stored is None:
            return None
        try:
            columns = torch.tensor(stored["columns"], dtype=torch.int64)
            parts = {f.name: torch.tensor(stored[f.name], dtype=torch.float64) for f in fields(cls)[1:]}
            n, lower = len(columns), parts["covariance"]
            covariance = lower.new_zeros(n, n)
            covariance[*torch.tril_indices(n, n)] = lower
            parts["covariance"] = covariance + covariance.tril(-1).t()
            (parts["spread"],) = parts["spread"]
            if len(parts["mean"]) != n or any(
                len(parts[name]) != machine.visible_width for name in ("low", "high", "shares")
            ):
                raise ValueError(f"expected numbers of {machine.visible_width} columns")
            made = cls(columns, **parts)
            made._hidden_states  # noqa: B018 - refuses what is no covariance
        except (KeyError, TypeError, ValueError, RuntimeError, IndexError) as error:
            raise ValueError(f"machine: its metadata are damaged, linear {error}") from error
        return made

    def keep_in(self, machine: BoltzmannMachine) -> None:
        """Puts the prediction into the metadata of a machine, in plain JSON types."""
        n = len(self.columns)
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        parts["covariance"] = self.covariance[*torch.tril_indices(n, n)]
        digits = {name: [float(f"{x:.9g}") for x in part.view(-1).tolist()] for name, part in parts.items()}
        machine.metadata["linear"] = digits | {"columns": self.columns.tolist()}


@torch.no_grad()
def fit_lines(
    machine: BoltzmannMachine,
    encoder: Encoder,
    hidden_states: HiddenStates,
    learned: tuple[Tensor, Tensor | None],
    held: tuple[Tensor, Tensor | None],
    seed: int,
) -> LinearPrediction | None:
    """Fits straight lines to rows, and chooses their ridge and shares by hidden cells of held-out rows.

    Args:
        machine: Machine whose cells are predicted.
        encoder: Encoder of its data.
        hidden_states: The machine that has learned the rows of ``learned`` alone, in float64.
        learned: Visible states with their weights.
        held: the same of the rows held out.
        seed: Seed of which cells are hidden, and of draws.

    Returns:
        The lines, fitted to all rows; None where the machine has no column of numbers, or too many columns.
    """
    layers = [machine.layers[l] for l in machine.visible]
    if all(layer.one_hot or layer.two_values for layer in layers) or machine.visible_width > _WIDEST:
        return None
    generator, units = as_generator(seed), machine.unit_of_column.cpu()
    judged = slice(max(_FEWEST_JUDGED, min(_JUDGED, round(_JUDGED_PRODUCTS / machine.visible_width**3))))
    (v, weights), (rows, row_weights) = (
        (x.double().cpu(), w) for x, w in (learned, take_rows(*held, judged))
    )
    cells, learned_cells = straighten(encoder, rows), straighten(encoder, v)
    parts = (uniform((len(rows), int(units[-1]) + 1), generator, torch.float64) * _PARTS).long()[:, units]
    by_machine, straight = cells.clone(), list[Tensor]()
    mean, variance = rows.clone(), torch.ones_like(rows)
    for part in range(_PARTS):
        hidden = parts == part
        shown = rows.masked_fill(hidden, torch.nan)
        by_machine[hidden] = expected_cells(hidden_states, encoder, shown, generator)[hidden]
        for place, posterior in hidden_states.blocks(shown):
            states = posterior.moments()
            for total, part_of_it in ((mean, states.mean), (variance, states.variance)):
                total[place] = torch.where(hidden[place], part_of_it.to(total), total[place])
        straight.append(straighten(encoder, shown))
    of_rows = (
        cells.new_ones(len(cells), 1) if row_weights is None else row_weights.cpu().double().unsqueeze(1)
    )
    scale = (of_rows * (cells - cells.nanmean(0)).square()).nansum(0).clamp(min=1e-300)
    rivals = dict[Shape, tuple[LinearPrediction, Tensor]]()

    def score(shape: Shape) -> float:
        start = [*rivals.values()][-1][0] if rivals and shape.factors is None else None
        rival, found = LinearPrediction.fit(learned_cells, weights, shape, start), cells.clone()
        for part, shown in enumerate(straight):
            found[parts == part] = rival.predict(shown)[parts == part]
        rivals[shape] = (rival, found)
        return -float(((of_rows * (found - cells).square()).nansum(0) / scale).mean())

    best = choose_shape(list_shapes(learned_cells[_ROWS], _RIDGES), score)
    rival, by_lines = rivals[best]
    numbers = torch.cat([torch.full((x.width,), not (x.one_hot or x.two_values)) for x in layers])
    shares = choose_shares(cells, by_machine, by_lines, of_rows, units, numbers)
    middle = _middle(encoder, mean, torch.lerp(by_machine, by_lines, shares))
    off = ((rows - middle).abs() / variance.sqrt())[:, _real_columns(machine)]
    off = off[~off.isnan()]
    # A regression on p columns from n rows has new residuals of (1 + p/n) n/(n - p) times the variance of its
    # own: at least so much, as cells of few rows, where they seem better, told coverage that was lost.
    count = min(len(units) / (len(v) + len(held[0])), 0.5)
    spread = off.new_tensor((1 + count) / (1 - count)).sqrt()
    if len(off) >= _FEW_CELLS:
        spread = torch.maximum(spread, off.quantile(_COVERED) / _REACH)
    all_cells, all_weights = torch.cat([learned_cells, straighten(encoder, held[0].double().cpu())]), None
    if weights is not None and held[1] is not None:
        all_weights = torch.cat([weights, held[1]])
    lines = LinearPrediction.fit(all_cells, all_weights, best, rival)
    return replace(lines, shares=shares, spread=spread)


def choose_shares(
    cells: Tensor, by_machine: Tensor, by_lines: Tensor, row_weights: Tensor, units: Tensor, numbers: Tensor
) -> Tensor:
    """Returns the share of the lines in each unit: least squares over hidden cells, with a prior.

    The share is the mean of a Gaussian posterior whose noise is that of even shares, within [0, 1]. The prior
    mean is one half for a label, and for numbers what those of the table have in common.

    Args:
        cells: what was hidden, (rows, width), NaN where it is not known.
        by_machine: what the machine took for it.
        by_lines: what the lines did.
        row_weights: (rows, 1).
        units: the unit of each column, (width,) int64.
        numbers: Marks the columns of numbers, (width,) bool.

    Returns:
        (width,), equal within a unit.
    """
    count = int(units[-1]) + 1

    def by_unit(x: Tensor) -> Tensor:
        return x.new_zeros(count).index_add_(0, units, (row_weights * x).nansum(0))

    known = ~cells.isnan()
    apart = (by_lines - by_machine).masked_fill(~known, 0.0)
    off = (cells - by_machine).masked_fill(~known, 0.0)
    precision = by_unit(known.double()) / by_unit((off - _EVEN * apart).square()).clamp(min=1e-300)
    told, weight = precision * by_unit(apart * off), precision * by_unit(apart.square())
    is_number = by_unit(torch.ones_like(cells) * numbers) > 0
    common = (told[is_number].sum() + _EVEN / _VARIANCE) / (weight[is_number].sum() + 1 / _VARIANCE)
    prior = torch.where(is_number, common.clamp(0.0, 1.0), _EVEN)
    return ((told + prior / _VARIANCE) / (weight + 1 / _VARIANCE)).clamp(0.0, 1.0)[units]


@torch.no_grad()
def mean_states(
    machine: BoltzmannMachine, encoder: Encoder, v: Tensor, mean: Tensor, seed: int | torch.Generator = 0
) -> Tensor:
    """Returns the states of the mean cells of what rows lack, by the machine and the lines beside it.

    Args:
        machine: whose hidden states are summed over.
        encoder: Encoder of its data.
        v: (rows, visible_width), NaN where missing.
        mean: The machine's mean states.
        seed: Seed of draws, of columns along curves, an int or a generator.
    """
    generator = as_generator(seed, machine.device)
    lines, curved = LinearPrediction.of(machine), bool([*_curves(encoder)])
    if lines is None and not curved:
        return mean
    x = expected_cells(HiddenStates.of(machine), encoder, v, generator) if curved else mean.double()
    if lines is not None:
        straight = straighten(encoder, v).cpu()
        x = torch.lerp(x.cpu(), lines.predict(straight), lines.shares).to(x.device)
    return torch.where(v.isnan(), bend(encoder, x).to(v), v)


def spread_draws(
    machine: BoltzmannMachine, encoder: Encoder, mean: Tensor, states: Tensor, draws: Tensor
) -> Tensor:
    """Returns draws of what rows lack with their real cells spread as far as hidden cells were found to be.

    A machine of few rows is too sure of what it fills in.

    Args:
        machine: whose draws they are.
        encoder: Encoder of its data.
        mean: The machine's mean states, (rows, width), with what is not missing as it is.
        states: those of ``mean_states``.
        draws: (draws, rows, width).
    """
    lines, real = LinearPrediction.of(machine), _real_columns(machine).to(draws.device)
    if lines is None:
        return draws
    wider = _middle(encoder, mean, states) + lines.spread.to(draws) * (draws - mean)
    return torch.where(real, wider, draws)


def _middle(encoder: Encoder, mean: Tensor, filled: Tensor) -> Tensor:
    """Returns the states about which draws lie: those filled in, along curves the mean states."""
    middle = filled.clone()
    for place, _ in _curves(encoder):
        middle[:, place] = mean[:, place]
    return middle


def _real_columns(machine: BoltzmannMachine) -> Tensor:
    """Marks the visible columns of Gaussian units, (visible_width,) bool."""
    layers = [machine.layers[l] for l in machine.visible]
    return torch.cat([torch.full((layer.width,), layer.gaussian) for layer in layers])


@torch.no_grad()
def expected_cells(
    hidden_states: HiddenStates, encoder: Encoder, v: Tensor, generator: torch.Generator
) -> Tensor:
    """Returns the cells of rows with their means in place of what is missing, (rows, width) float64."""
    x = straighten(encoder, v)
    curved = bool([*_curves(encoder)])
    for some in torch.split(torch.arange(len(v), device="cpu"), _BLOCK):
        for place, posterior in hidden_states.blocks(v[some]):
            rows = some[place]
            x[rows] = posterior.moments().mean.to(x)
            if curved:
                drawn = straighten(encoder, posterior.draw(generator, _DRAWS))
                for at, column in _curves(encoder):
                    limits = column.filled
                    x[rows, at] = (drawn[..., at] if limits is None else drawn[..., at].clamp(*limits)).mean(
                        0
                    )
    return x


def straighten(encoder: Encoder, v: Tensor) -> Tensor:
    """Returns states (..., width) in float64, with cells in place of those of columns along curves."""
    x = v.double().clone()
    for place, column in _curves(encoder):
        x[..., place] = torch.from_numpy(column.numbers(x[..., place].cpu().numpy())).to(x)
    return x


def bend(encoder: Encoder, x: Tensor) -> Tensor:
    """Returns the states of what ``straighten`` has made of them."""
    v = x.clone()
    for place, column in _curves(encoder):
        v[..., place] = torch.from_numpy(column.between(v[..., place].cpu().numpy())).to(v)
    return v


def _curves(encoder: Encoder) -> Iterator[tuple[int, ColumnCodec]]:
    """Yields the places among the states of columns along curves, ranks among them, with these."""
    start = 0
    for column in encoder.columns if isinstance(encoder, Table) else ():
        if column.curved or (column.ranked and len(column.values) > 2):
            yield start, column
        start += column.width
