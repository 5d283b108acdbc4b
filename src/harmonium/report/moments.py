"""Covariances of pairs of visible units, of samples beside those of data."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from harmonium.machine import BoltzmannMachine

_WIDEST = 2000  # columns; of more, so many evenly spaced ones are compared


@final
class PairStatistics:
    """Covariances of pairs of columns of different visible units, compared with those of data.

    Args:
        machine: the machine, of whose visible units the columns are.
        rows: the data, (rows, visible_width), at least one.
        weights: Row weights, (rows,); None means uniform.
    """

    def __init__(self, machine: BoltzmannMachine, rows: Tensor, weights: Tensor | None = None) -> None:
        width = rows.shape[1]
        columns = torch.linspace(0, width - 1, min(width, _WIDEST), dtype=torch.float64).round().long()
        self._columns = columns.to(rows.device)
        unit = machine.unit_of_column.to(rows.device)[self._columns]
        self._pairs = unit.unsqueeze(-1) < unit
        x = rows[:, self._columns].double()
        self._centre = x.mean(0) if weights is None else weights.to(x) @ x / weights.to(x).sum()
        self._data = self._standardise(self.covariances(rows, weights))

    @property
    def varied(self) -> bool:
        """Returns True if the data's covariances differ, so that there is something to correlate with."""
        return len(self._data) > 1 and bool(self._data.isfinite().all())

    def covariances(self, v: Tensor, weights: Tensor | None = None) -> Tensor:
        """Returns the covariance of every pair, (pairs,) float64."""
        x = self._centre_rows(v)
        if weights is None:
            return self._find_covariances(x.t() @ x, x.sum(0), len(x))
        shares = (weights / weights.sum()).to(x)
        return self._find_covariances((x.t() * shares) @ x, shares @ x, 1)

    def correlation(self, v: Tensor, weights: Tensor | None = None) -> Tensor:
        """Returns the Pearson correlation of the covariances of rows, (rows, width), with the data's, ()."""
        return self._correlate(self.covariances(v, weights))

    def jackknife(self, v: Tensor, groups: int) -> tuple[Tensor, Tensor]:
        """Returns the correlation of all rows, and those of the rows without each group, (groups,)."""
        parts = torch.tensor_split(self._centre_rows(v), groups)
        products, sums = sum(x.t() @ x for x in parts), sum(x.sum(0) for x in parts)
        assert isinstance(products, Tensor) and isinstance(sums, Tensor)
        whole = self._correlate(self._find_covariances(products, sums, len(v)))
        without = [
            self._correlate(self._find_covariances(products - x.t() @ x, sums - x.sum(0), len(v) - len(x)))
            for x in parts
        ]
        return whole, torch.stack(without)

    def _correlate(self, covariances: Tensor) -> Tensor:
        """Returns the correlation of covariances of pairs with the data's, ()."""
        correlation: Tensor = (self._standardise(covariances) * self._data).sum()
        return correlation.nan_to_num(0.0)  # 0 where the rows have one covariance

    def _standardise(self, covariances: Tensor) -> Tensor:
        """Returns covariances of pairs with their mean taken off, of norm 1; NaN where all are alike."""
        x = covariances - covariances.mean()
        scores: Tensor = x / x.norm()
        return scores

    def _centre_rows(self, v: Tensor) -> Tensor:
        """Returns columns about the data's means, so that sums of squares lose no digits."""
        return v[:, self._columns].double() - self._centre

    def _find_covariances(self, products: Tensor, sums: Tensor, rows: int) -> Tensor:
        """Returns the covariances of pairs by sums over rows of products and of columns."""
        mean = sums / rows
        return (products / rows - torch.outer(mean, mean))[self._pairs]
