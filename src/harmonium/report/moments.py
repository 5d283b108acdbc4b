"""Moments of samples beside those of data: scaled errors, and covariances of pairs of visible units."""

from __future__ import annotations

from typing import NamedTuple, final

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.machine import BoltzmannMachine
from harmonium.report.hidden_units import hidden_means

_WIDEST = 2000  # columns; of more, so many evenly spaced ones are compared


class MomentErrors(NamedTuple):
    """Scaled root mean squared errors of moments: 0 is as good as training data, 1 as bad as shuffled ones.

    NaN where there are no such moments, or where training data are no better than shuffled ones.

    Attributes:
        visible: Error of the means of visible units.
        hidden: Error of the means of hidden units given the rows.
        products: Error of the means of products of visible and hidden units that an edge joins.
        covariances: Error of the covariances of pairs of visible units.
    """

    visible: float
    hidden: float
    products: float
    covariances: float


@torch.no_grad()
def moment_errors(
    machine: BoltzmannMachine,
    samples: Numbers,
    held_out: Numbers,
    training: Numbers,
    *,
    weights: tuple[Numbers | None, Numbers | None] = (None, None),
    seed: int | torch.Generator = 0,
) -> MomentErrors:
    """Compares moments of samples with those of held-out data (normalised RMSE of van der Plas et al. 2023).

    The error of the samples is (e - e_training) / (e_shuffled - e_training), where e is the root mean squared
    difference from the held-out data over all moments of a kind. Shuffled are the moments of the training
    data, dealt at random to other units or pairs; that error is computed as an expectation. As many rows of
    the training data are used as there are samples, so that the number of samples does not count against
    them. Below 0 the samples are nearer to the held-out data than the training data are.

    Args:
        machine: the machine, which has the hidden units.
        samples: visible states, (samples, visible_width), at least two.
        held_out: rows that the machine was not trained on, at least two.
        training: rows that it was trained on, at least two.
        weights: Row weights of ``held_out`` and of ``training``, each (rows,); None means uniform.
        seed: an int or a generator.

    Returns:
        An error for every kind of moment.

    Raises:
        TypeError, ValueError: rows that do not fit the machine, or fewer than two.
    """
    generator = _random.as_generator(seed, machine.device)
    sets = {"samples": samples, "held_out": held_out, "training": training}
    rows = {name: machine.visible_rows(v, name) for name, v in sets.items()}
    for name, v in rows.items():
        if len(v) < 2:
            raise ValueError(f"{name}: expected at least two rows, received {len(v)}")
    shares = {
        name: _checks.weights(each, f"weights[{k}]", len(rows[name]))
        for k, (name, each) in enumerate(zip(("held_out", "training"), weights, strict=True))
    }
    n = min(len(rows["samples"]), len(rows["training"]))
    for name in ("samples", "training"):
        order = _random.permutation(len(rows[name]), generator)[:n]
        rows[name], each = rows[name][order], shares.get(name)
        shares[name] = None if each is None else each[order.to(each.device)]
    pairs = PairStatistics(machine, rows["held_out"], shares["held_out"])
    kinds = [_find_moments(machine, v, shares[name], pairs, generator) for name, v in rows.items()]
    return MomentErrors(*(_scale(*moments) for moments in zip(*kinds, strict=True)))


def _find_moments(
    machine: BoltzmannMachine,
    v: Tensor,
    weights: Tensor | None,
    pairs: PairStatistics,
    generator: torch.Generator,
) -> list[Tensor]:
    """Returns moments of every kind, each as a vector in float64; rows may have weights, (rows,)."""
    share = torch.full((len(v),), 1 / len(v)) if weights is None else weights / weights.sum()
    share = share.to(v.device, torch.float64)
    x = {l: part.double() for l, part in machine.split(v).items()}
    h = {l: part.double() for l, part in hidden_means(machine, v, generator).items()}
    both = x | h
    joined = [(l, m) for l, m in machine.edges if (l in x) != (m in x)]
    products = [((both[l].t() * share) @ both[m]).flatten() for l, m in joined]
    return [
        _concatenate([share @ part for part in x.values()]),
        _concatenate([share @ part for part in h.values()]),
        _concatenate(products),
        pairs.covariances(v, weights).cpu(),
    ]


def _concatenate(parts: list[Tensor]) -> Tensor:
    """Returns vectors as one, on the CPU, empty where there are none."""
    return torch.cat(parts).cpu() if parts else torch.empty(0, dtype=torch.float64)


def _scale(samples: Tensor, held_out: Tensor, training: Tensor) -> float:
    """Returns the error of the samples' moments on the scale from training to shuffled data."""
    if len(held_out) == 0:
        return float("nan")
    error, least = ((x - held_out).square().mean().sqrt() for x in (samples, training))
    shuffled = training.var(correction=0) + held_out.var(correction=0)
    most = (shuffled + (training.mean() - held_out.mean()).square()).sqrt()
    return float((error - least) / (most - least)) if most > least else float("nan")


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
        return self._find_covariances(v, weights)[self._pairs]

    def correlation(self, v: Tensor, weights: Tensor | None = None) -> Tensor:
        """Returns the Pearson correlation of the covariances of rows, (rows, width), with the data's, ()."""
        return self._correlate(self._find_covariances(v, weights))

    def _find_covariances(self, v: Tensor, weights: Tensor | None) -> Tensor:
        """Returns the covariance matrix of rows, which may have weights."""
        x = self._centre_rows(v)
        if weights is None:
            return _find_covariance(x.t() @ x, x.sum(0), len(x))
        shares = (weights / weights.sum()).to(x)
        return _find_covariance((x.t() * shares) @ x, shares @ x, 1)

    def jackknife(self, v: Tensor, groups: int) -> tuple[Tensor, Tensor]:
        """Returns the correlation of all rows, and those of the rows without each group, (groups,)."""
        parts = torch.tensor_split(self._centre_rows(v), groups)
        products, sums = sum(x.t() @ x for x in parts), sum(x.sum(0) for x in parts)
        assert isinstance(products, Tensor) and isinstance(sums, Tensor)
        whole = self._correlate(_find_covariance(products, sums, len(v)))
        without = [
            self._correlate(_find_covariance(products - x.t() @ x, sums - x.sum(0), len(v) - len(x)))
            for x in parts
        ]
        return whole, torch.stack(without)

    def _correlate(self, covariance: Tensor) -> Tensor:
        """Returns the correlation of a covariance matrix with the data's, ()."""
        product = self._standardise(covariance[self._pairs]) * self._data
        correlation: Tensor = product.sum().nan_to_num(0.0)  # 0 where the rows have one covariance
        return correlation

    def _standardise(self, covariances: Tensor) -> Tensor:
        """Returns covariances of pairs with their mean taken off, of norm 1; NaN where all are alike."""
        x = covariances - covariances.mean()
        scores: Tensor = x / x.norm()
        return scores

    def _centre_rows(self, v: Tensor) -> Tensor:
        """Returns columns about the data's means, so that sums of squares lose no digits."""
        return v[:, self._columns].double() - self._centre


def _find_covariance(products: Tensor, sums: Tensor, rows: int) -> Tensor:
    """Returns the covariance matrix by sums over rows of products and of columns."""
    mean = sums / rows
    return products / rows - torch.outer(mean, mean)
