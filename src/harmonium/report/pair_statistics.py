"""Covariances of pairs of visible units, of samples and of data."""

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
    """

    def __init__(self, machine: BoltzmannMachine, rows: Tensor) -> None:
        width = rows.shape[1]
        self._columns = torch.linspace(0, width - 1, min(width, _WIDEST), dtype=torch.float64).round().long()
        unit = _units(machine)[self._columns]
        self._pairs = (unit.unsqueeze(-1) < unit).to(rows.device)
        self._columns = self._columns.to(rows.device)
        self._centre = rows[:, self._columns].double().mean(0)
        self._data = self._scores(self.covariances(rows))

    @property
    def varied(self) -> bool:
        """Returns True if the data's covariances differ, so that there is something to correlate with."""
        return len(self._data) > 1 and bool(self._data.isfinite().all())

    def covariances(self, v: Tensor) -> Tensor:
        """Returns the covariance of every pair, (pairs,) float64."""
        x = self._centred(v)
        whole: Tensor = _covariance(x.t() @ x, x.sum(0), len(x))
        return whole[self._pairs]

    def correlation(self, v: Tensor) -> Tensor:
        """Returns the Pearson correlation of the covariances of rows with those of the data."""
        return self.jackknife(v, 1)[0]

    def jackknife(self, v: Tensor, groups: int) -> tuple[Tensor, Tensor]:
        """Returns the correlation of all rows, and those of the rows without each group, (groups,)."""
        parts = torch.tensor_split(self._centred(v), groups)
        products, sums = sum(x.t() @ x for x in parts), sum(x.sum(0) for x in parts)
        assert isinstance(products, Tensor) and isinstance(sums, Tensor)
        whole = self._with_data(_covariance(products, sums, len(v)))
        if groups == 1:
            return whole, whole.new_empty(0)
        without = [
            self._with_data(_covariance(products - x.t() @ x, sums - x.sum(0), len(v) - len(x)))
            for x in parts
        ]
        return whole, torch.stack(without)

    def _with_data(self, covariance: Tensor) -> Tensor:
        product = self._scores(covariance[self._pairs]) * self._data
        correlation: Tensor = product.sum().nan_to_num(0.0)  # 0 where the rows have one covariance
        return correlation

    def _scores(self, covariances: Tensor) -> Tensor:
        """Covariances of pairs with their mean taken off, of norm 1; NaN where all are alike."""
        x = covariances - covariances.mean()
        scores: Tensor = x / x.norm()
        return scores

    def _centred(self, v: Tensor) -> Tensor:
        """About the data's means, so that sums of squares lose no digits."""
        return v[:, self._columns].double() - self._centre


def _covariance(products: Tensor, sums: Tensor, rows: int) -> Tensor:
    mean = sums / rows
    return products / rows - torch.outer(mean, mean)


def _units(machine: BoltzmannMachine) -> Tensor:
    """The unit of every column of the data, (visible_width,)."""
    layers = [machine.layers[l] for l in machine.visible]
    units, before = [], 0
    for layer in layers:
        states = layer.width // layer.n_units
        units.append(before + torch.arange(layer.n_units).repeat_interleave(states))
        before += layer.n_units
    return torch.cat(units)
