"""Straight lines beside a machine: missing cells predicted by one normal distribution of all columns.

They help where cells are filled in with means. Each column has a share for them, which hidden cells of
held-out rows choose; draws and scores are the machine's alone (docs/decisions/0020-one-model-a-table.md).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self, final

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine
from harmonium.tables.joint_normal import fit_normal, normal
from harmonium.training import take_rows

_RIDGE = 0.05  # share of the variances that is added, which serves tables of 60 rows and of 1,000
# Of more than 50 columns with less than 3 rows each: 60 rows of 72 have an error of 0.74, by 0.05 of 0.95.
_WIDE_RIDGE, _MANY_COLUMNS = 1.0, 50
_ROUNDS, _TOLERANCE = 20, 1e-3  # of expectation-maximisation; nats a cell: another changes an error by 1e-3
_ROWS = slice(5000)  # rows that the distribution is fitted to: each round passes over them
WIDEST = 1000
"""Columns of states that lines stand beside at most: their covariances take 6 MB in a machine's file."""


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
    """

    columns: Tensor
    mean: Tensor
    covariance: Tensor
    low: Tensor
    high: Tensor
    shares: Tensor

    @classmethod
    @torch.no_grad()
    def fit(cls, x: Tensor, weights: Tensor | None = None) -> Self:
        """Fits the distribution to cells (rows, width), NaN where missing; the shares are 1.

        Args:
            x: cells.
            weights: Row weights, (rows,), at least 0; None means uniform.
        """
        x, seen = x.double(), ~x.isnan()
        ends = x.nan_to_num(nan=torch.inf).amin(0), x.nan_to_num(nan=-torch.inf).amax(0)
        low, high = (torch.where(seen.any(0), end, 0.0) for end in ends)
        rows, row_weights = take_rows(x, weights, _ROWS)
        deviation = (rows - rows.nanmean(0)).square().nanmean(0).sqrt()
        columns = (deviation > 0).nonzero().flatten()
        spread = deviation[columns]
        mean, covariance = fit_normal(
            rows[:, columns] / spread,
            row_weights,
            ridge=_WIDE_RIDGE if len(columns) > _MANY_COLUMNS and len(rows) < 3 * len(columns) else _RIDGE,
            rounds=_ROUNDS,
            tolerance=_TOLERANCE * len(columns),
        )
        covariance = covariance * torch.outer(spread, spread)
        return cls(columns, mean * spread, covariance, low, high, torch.ones_like(low))

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Returns conditional means in place of NaN, (rows, width).

        Cells beyond the range seen count as its ends, since a line goes as far out as they are.
        """
        within = x.double().clamp(self.low, self.high)
        spread = self.covariance.diagonal().sqrt()
        known, _ = normal(self.mean / spread, self.covariance / torch.outer(spread, spread))
        full = torch.where(x.isnan(), self.low, within)
        for block_rows, posterior in known.blocks(within[:, self.columns] / spread):
            full[block_rows, self.columns] = posterior.moments().mean * spread
        return torch.where(x.isnan(), full.clamp(self.low, self.high), x.double())

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
            if len(parts["mean"]) != n or any(
                len(parts[name]) != machine.visible_width for name in ("low", "high", "shares")
            ):
                raise ValueError(f"expected numbers of {machine.visible_width} columns")
            torch.linalg.cholesky(parts["covariance"])  # refuses what is no covariance
        except (KeyError, TypeError, ValueError, RuntimeError, IndexError) as error:
            raise ValueError(f"machine: its metadata are damaged, linear {error}") from error
        return cls(columns, **parts)

    def keep_in(self, machine: BoltzmannMachine) -> None:
        """Puts the prediction into the metadata of a machine, in plain JSON types."""
        n = len(self.columns)
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        parts["covariance"] = self.covariance[*torch.tril_indices(n, n)]
        digits = {name: [float(f"{x:.9g}") for x in part.tolist()] for name, part in parts.items()}
        machine.metadata["linear"] = digits | {"columns": self.columns.tolist()}


def choose_mixing_weights(
    cells: Tensor, by_machine: Tensor, by_lines: Tensor, weights: Tensor | None, units: Tensor
) -> Tensor:
    """Returns the share of the lines in each unit, (width,): least squares over hidden cells, in [0, 1].

    Args:
        cells: what was hidden, (rows, width), NaN where it is not known.
        by_machine: what the machine took for it.
        by_lines: what the lines did.
        weights: Row weights, (rows,); None means uniform.
        units: the unit of each column, (width,) int64.
    """
    of_rows = cells.new_ones(len(cells)) if weights is None else weights.to(cells)
    apart, off = (by_lines - by_machine).where(~cells.isnan(), torch.nan), cells - by_machine

    def by_unit(x: Tensor) -> Tensor:
        return x.new_zeros(int(units[-1]) + 1).index_add_(0, units, (of_rows.unsqueeze(1) * x).nansum(0))

    mixing_weights = by_unit(apart * off) / by_unit(apart.square()).clamp(min=1e-300)
    return mixing_weights.clamp(0.0, 1.0)[units]
