"""Exact training of tables with labels, which begins at a logistic regression."""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor

from harmonium import _random
from harmonium._random import as_generator
from harmonium.likelihood import separate
from harmonium.machine import BoltzmannMachine
from harmonium.training import Objective, TrainingRun, count_rows, mean_score, take_rows, train_exactly

# docs/decisions/0028 has what was measured.
_HELD_OUT = 3  # one row in three tells how long to train
_RATE, _UPDATES = 0.05, 60  # learning rate, and most updates
_DECAY = 1.0  # weight decay, over the number of rows
_REACH = 6.0  # log odds over which a hidden unit of the regression is nearly linear, to both sides
_STD = 0.3  # of the other couplings: 0.1 is too small to leave a linear regression in 60 updates


@torch.no_grad()
def fit_labels(
    machine: BoltzmannMachine,
    v: Tensor,
    weights: Tensor | None = None,
    *,
    objective: Objective,
    may_hold_out: Tensor | None = None,
    seed: int | torch.Generator = 0,
    **watch: Any,
) -> TrainingRun:
    """Trains a new machine of rows and their labels by exact gradients, beginning with a logistic regression.

    A third of the rows tells after how many updates ln p(y | x) is largest; then all rows are used. It may be
    none: labels are then predicted about as well as by the regression.

    Args:
        machine: one layer of Bernoulli units joined to all visible ones, the last of them a label;
            it is not changed.
        v: visible states, (rows, visible_width), NaN where missing.
        weights: row weights, (rows,), above 0; None means uniform.
        objective: Objective to ascend.
        may_hold_out: Marks the rows with a label, (rows,) bool, at least one; None: all.
        seed: Seed of the rows that are held out and of the couplings, an int or a generator.
        **watch: folder, resume, metrics, callbacks and progress of the training on all rows, as of ``train``.

    Returns:
        The run on all rows; its history has the scores of the rows held out after as many updates. Where no
        update is best it has one at rate 0.
    """
    started, generator = time.perf_counter(), as_generator(seed)
    order, stream = _random.permutation(len(v), generator), generator.initial_seed() % (1 << 63)
    order = order if may_hold_out is None else order[may_hold_out.to(order.device)[order]]
    held = torch.zeros(len(v), dtype=torch.bool)
    held[order[: len(order) // _HELD_OUT]] = True
    scores = _score_lengths(machine, v, weights, objective, held, stream) if bool(held.any()) else {}
    updates = max(scores, key=scores.__getitem__, default=_UPDATES)
    return train_exactly(
        regression_start(machine, v, weights, stream),
        v,
        weights,
        updates=max(updates, 1),
        learning_rate=_RATE if updates else 0.0,
        objective=objective,
        weight_decay=_DECAY / count_rows(v, weights),
        seed=stream,
        notes={max(n, 1): {"validation_score": score} for n, score in scores.items() if n <= updates},
        spent=time.perf_counter() - started,
        **watch,
    )


def _score_lengths(
    machine: BoltzmannMachine,
    v: Tensor,
    weights: Tensor | None,
    objective: Objective,
    out: Tensor,
    seed: int,
) -> dict[int, float]:
    """Returns ln p(y | x) of the rows held out, (rows,) bool, by the updates that the rest was learned with."""
    (rows, row_weights), (held, held_weights) = (take_rows(v, weights, some) for some in (~out, out))
    start = regression_start(machine, rows, row_weights, seed)
    score = partial(mean_score, weights=held_weights, objective=objective)
    before = score(start, held)
    run = train_exactly(
        start,
        rows,
        row_weights,
        updates=_UPDATES,
        learning_rate=_RATE,
        objective=objective,
        weight_decay=_DECAY / count_rows(rows, row_weights),
        seed=seed,
        validation=held,
        metrics={"validation_score": score},
    ).whole()
    return {0: before} | {record["step"]: record["validation_score"] for record in run.history}


@torch.no_grad()
def regression_start(
    machine: BoltzmannMachine, v: Tensor, weights: Tensor | None, seed: int | torch.Generator
) -> BoltzmannMachine:
    """Returns a machine of small couplings, in which some hidden units form a logistic regression.

    A hidden unit with couplings w to x and ±r to the label adds softplus(w·x + r) - softplus(w·x - r) to the
    log odds, which is nearly w·x + r while |w·x| is well below r. Biases are shifted against the couplings,
    so that the means of units are those of the rows.
    """
    made = separate(machine, v, weights)
    (hidden,), (*data, label) = made.hidden, made.visible
    generator = as_generator(seed, made.device)
    places = {l: getattr(made.layers[l], made.layers[l].location) for l in (*made.visible, hidden)}
    centre = made.split(v.nanmean(0, keepdim=True).nan_to_num(0.0))
    on = torch.full((made.layers[hidden].n_units,), 0.5, dtype=v.dtype, device=v.device)  # their means
    regression, count = _regress(made, v, weights), 0
    if regression is not None:
        slopes, intercepts = regression
        count = len(slopes)
        class_of_unit = torch.eye(len(intercepts)).to(v)[:, -count:]  # of two classes the second, else each
        on[:count] = centre[label][0] @ class_of_unit
        places[label].copy_(intercepts.view_as(places[label]))
        slopes_of = dict(zip(data, torch.split(slopes, [made.layers[l].width for l in data], 1), strict=True))
    for (l, _), coupling in zip(made.edges, made.couplings, strict=True):
        coupling.draw_(_STD, generator)
        W, scale = coupling.weight.detach().clone(), made.layers[l].scale
        W[:, :count] = 0.0
        if count and l != label:
            W[:, :count] = slopes_of[l].t() if scale is None else slopes_of[l].t() / scale.unsqueeze(1)
        places[hidden].sub_((W.t() @ centre[l][0]).view_as(places[hidden]))
        places[l].sub_((W @ on).view_as(places[l]))
        if count and l == label:
            W[:, :count] = _REACH * (2 * class_of_unit - 1)
        coupling.fill_(W)
    return made


def _regress(machine: BoltzmannMachine, v: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """Returns a logistic regression of the label on states; missing states are replaced by their means.

    Returns:
        Slopes of the log odds of the second class, (1, data width), or of more classes those of each,
        (classes, data width); and locations of the label, (classes,), beside hidden units of these slopes.
        None where there are too few hidden units, or rows of fewer classes.
    """
    *data, label = machine.visible
    split, classes = machine.split(v), machine.layers[label].width
    there = ~split[label].isnan().any(1)
    y = split[label][there].argmax(1)
    functions = 1 if classes == 2 else classes
    if (
        functions > machine.layers[machine.hidden[0]].n_units
        or int(split[label][there].any(0).sum()) < classes
    ):
        return None
    x = torch.cat([split[l] for l in data], 1)
    x = (x - x.nanmean(0)).nan_to_num(0.0)
    coded = [machine.layers[l].one_hot or machine.layers[l].two_values is not None for l in data]
    widths = torch.tensor([machine.layers[l].width for l in data])
    spread = x.std(0).masked_fill(torch.tensor(coded).repeat_interleave(widths).to(v.device), 1.0)
    spread = spread.masked_fill(spread == 0, 1.0)
    from sklearn.linear_model import LogisticRegression  # slow to import, and only needed here

    row_weights = None if weights is None else weights[there.cpu()].numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a start that has not converged serves too
        model = LogisticRegression(max_iter=200)
        model.fit((x / spread)[there].cpu().numpy(), y.cpu().numpy(), row_weights)
    slopes, intercepts = (torch.from_numpy(part).to(v) for part in (model.coef_, model.intercept_))
    if classes == 2:
        intercepts = torch.stack([torch.zeros_like(intercepts[0]), intercepts[0] - _REACH])
    return slopes / spread, intercepts
