"""Likelihoods of rows under the simplest models: independent columns, and pairs of columns."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from harmonium.layers import Layer
from harmonium.likelihood import score_separate, separate
from harmonium.machine import BoltzmannMachine
from harmonium.tables.correlated import fit_normal, normal

# Added to the counts of every pair of units, spread as if they were independent: one row keeps the likelihood
# of a pair that was not seen finite, and is little beside the tens of rows that a comparison needs.
_PSEUDO_ROWS = 1.0
_RIDGE = 1e-3  # of the variance of a real column, which keeps the covariance of equal columns invertible
_MOST_STATES = 4096  # states of all discrete units together: tables of pairs are its square, 128 MiB


class Baselines(NamedTuple):
    """Mean ln p of rows, in nats of the machine's states.

    Attributes:
        independent: Mean under independent columns.
        pairs: Mean under the best tree of pairs of discrete columns, beside a normal distribution of the real
            ones; None where there is one unit of these kinds, or many.
    """

    independent: float
    pairs: float | None


@torch.no_grad()
def score_baselines(machine: BoltzmannMachine, rows: Tensor, training: Tensor) -> Baselines:
    """Scores rows by the simplest models of the same columns.

    Args:
        machine: Machine with the columns' visible layers; it is not changed.
        rows: complete visible states to score, (rows, visible_width).
        training: complete rows that the distributions are fitted to, (rows, visible_width).
    """
    alone = separate(machine, training.double())
    layers = [alone.layers[l] for l in alone.visible]
    split, fitted = ([*alone.split(v.double()).values()] for v in (rows, training))
    by_layer = [float(score.mean()) for score in score_separate(alone, rows)]
    independent = sum(by_layer)
    discrete = [i for i, layer in enumerate(layers) if layer.two_values or layer.one_hot]
    varies = [bool((x.amax(0) > x.amin(0)).all()) for x in fitted]
    real = [i for i, layer in enumerate(layers) if layer.gaussian and varies[i]]
    units = sum(layers[i].n_units for i in discrete) + sum(layers[i].width for i in real)
    (known, unit), (states, _) = (_indicate(v, layers, discrete) for v in (fitted, split))
    if units < 2 or known.shape[1] > _MOST_STATES:
        return Baselines(independent, None)
    pairs = independent - sum(by_layer[i] for i in (*discrete, *real))
    if discrete:
        pairs += float(_score_tree(known, states, unit).mean())
    if real:
        x, y = (torch.cat([v[i] for i in real], 1).double() for v in (fitted, split))
        pairs += float(normal(*fit_normal(x, ridge=_RIDGE))[0].log_likelihood(y).mean())
    return Baselines(independent, pairs)


def _indicate(split: list[Tensor], layers: list[Layer], discrete: list[int]) -> tuple[Tensor, Tensor]:
    """Returns indicators of the states of discrete units, (rows, states), and the unit of every state."""
    nothing = torch.zeros(0, dtype=torch.int64, device=split[0].device)
    parts, units, count = [split[0].new_zeros(len(split[0]), 0)], [nothing], 0
    for i in discrete:
        layer, x = layers[i], split[i]
        if layer.two_values:
            x = torch.stack([x == value for value in layer.two_values], 2).flatten(1).double()
        parts.append(x)
        numbers = torch.arange(layer.n_units, device=x.device) + count
        units.append(numbers.repeat_interleave(x.shape[1] // layer.n_units))
        count += layer.n_units
    return torch.cat(parts, 1), torch.cat(units)


def _score_tree(training: Tensor, rows: Tensor, unit: Tensor) -> Tensor:
    """Returns ln p of rows, (rows,), under the tree of pairs of units of greatest likelihood.

    The tree spans the units with the largest sum of mutual informations (Chow & Liu 1968).

    Args:
        training: indicators of states that the tree is fitted to, (rows, states).
        rows: indicators of states to score, (rows, states).
        unit: Number of the unit of every state, (states,).
    """
    from scipy.sparse import csgraph  # as its import takes longer than all of this module's others

    n, count = len(training), int(unit[-1]) + 1
    marginal = training.sum(0) + _PSEUDO_ROWS / unit.bincount()[unit]
    marginal /= n + _PSEUDO_ROWS
    independent = torch.outer(marginal, marginal)
    joint = (training.t() @ training + _PSEUDO_ROWS * independent) / (n + _PSEUDO_ROWS)
    terms = torch.special.xlogy(joint, joint / independent)
    information = terms.new_zeros(count, count).index_put_(
        (unit.unsqueeze(1).expand_as(terms), unit.expand_as(terms)), terms, accumulate=True
    )
    # A spanning tree of least length: lengths stay above 0, which scipy would take for no edge.
    lengths = (information.max() + 1 - information).cpu().numpy()
    tree = csgraph.minimum_spanning_tree(lengths)
    order, parents = csgraph.breadth_first_order(tree, 0, directed=False)
    scores = rows @ torch.where(unit == 0, marginal, marginal.new_ones(())).log()
    for child in order[1:]:
        above, below = unit == int(parents[child]), unit == int(child)
        table = joint[above][:, below]
        conditional = (table / table.sum(1, keepdim=True)).log()
        scores += ((rows[:, above] @ conditional) * rows[:, below]).sum(1)
    return scores
