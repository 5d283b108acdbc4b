"""Errors of samples' moments on a scale between data and shuffled data."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _random
from harmonium._checks import Numbers
from harmonium.machine import BoltzmannMachine
from harmonium.report.hidden_means import hidden_means
from harmonium.report.pair_statistics import PairStatistics


class MomentErrors(NamedTuple):
    """Scaled root mean squared errors of moments: 0 is as good as training data, 1 as bad as shuffled ones.

    NaN where there are no such moments, or where training data are no better than shuffled ones.

    Attributes:
        visible: of the means of visible units.
        hidden: of the means of hidden units given the rows.
        products: of the means of products of visible and hidden units that an edge joins.
        covariances: of covariances of pairs of visible units.
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
        seed: an int or a generator.

    Returns:
        An error for every kind of moment.

    Raises:
        TypeError, ValueError: rows that do not fit the machine, or fewer than two.
    """
    generator = _random.as_generator(seed, machine.device)
    given = {"samples": samples, "held_out": held_out, "training": training}
    rows = {name: machine.visible_rows(v, name) for name, v in given.items()}
    for name, v in rows.items():
        if len(v) < 2:
            raise ValueError(f"{name}: expected at least two rows, received {len(v)}")
    n = min(len(rows["samples"]), len(rows["training"]))
    for name in ("samples", "training"):
        rows[name] = rows[name][_random.permutation(len(rows[name]), generator)[:n]]
    pairs = PairStatistics(machine, rows["held_out"])
    kinds = [_moments(machine, v, pairs, generator) for v in rows.values()]
    return MomentErrors(*(_scaled(*each) for each in zip(*kinds, strict=True)))


def _moments(
    machine: BoltzmannMachine, v: Tensor, pairs: PairStatistics, generator: torch.Generator
) -> list[Tensor]:
    """Moments of every kind, each as a vector in float64."""
    x = {l: part.double() for l, part in machine.split(v).items()}
    h = {l: part.double() for l, part in hidden_means(machine, v, generator).items()}
    both = x | h
    joined = [(l, m) for l, m in machine.edges if (l in x) != (m in x)]
    products = [(both[l].t() @ both[m] / len(v)).flatten() for l, m in joined]
    return [
        _vector([part.mean(0) for part in x.values()]),
        _vector([part.mean(0) for part in h.values()]),
        _vector(products),
        pairs.covariances(v).cpu(),
    ]


def _vector(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts).cpu() if parts else torch.empty(0, dtype=torch.float64)


def _scaled(samples: Tensor, held_out: Tensor, training: Tensor) -> float:
    """The error of the samples' moments on the scale from the training's to the shuffled training's."""
    if len(held_out) == 0:
        return float("nan")
    error, least = ((x - held_out).square().mean().sqrt() for x in (samples, training))
    shuffled = training.var(correction=0) + held_out.var(correction=0)
    most = (shuffled + (training.mean() - held_out.mean()).square()).sqrt()
    return float((error - least) / (most - least)) if most > least else float("nan")
