"""The start of training on tables with labels: hidden units that form a logistic regression."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from harmonium._random import as_generator
from harmonium.likelihood import separate
from harmonium.machine import BoltzmannMachine

_REACH = 6.0  # log odds over which a hidden unit of the regression is nearly linear, to both sides
_STD = 0.3  # of the other couplings: 0.1 is too small to leave a linear regression in 60 updates


@torch.no_grad()
def regression_start(
    machine: BoltzmannMachine, v: Tensor, weights: Tensor | None, seed: int | torch.Generator
) -> BoltzmannMachine:
    """Returns a machine of small couplings, in which some hidden units form a logistic regression.

    A hidden unit with couplings w to x and ±r to the label adds softplus(w·x + r) - softplus(w·x - r) to the
    log odds, which is nearly w·x + r while |w·x| is well below r. Biases are shifted against the couplings,
    so that the means of units are those of the rows.
    """
    start = separate(machine, v, weights)
    (hidden,), (*data, label) = start.hidden, start.visible
    generator = as_generator(seed, start.device)
    places = {l: getattr(start.layers[l], start.layers[l].location) for l in (*start.visible, hidden)}
    centre = start.split(v.nanmean(0, keepdim=True).nan_to_num(0.0))
    on = torch.full((start.layers[hidden].n_units,), 0.5, dtype=v.dtype, device=v.device)  # their means
    regression, count = _regress(start, v, weights), 0
    if regression is not None:
        slopes, intercepts = regression
        count = len(slopes)
        class_of_unit = torch.eye(len(intercepts)).to(v)[:, -count:]  # of two classes the second, else each
        on[:count] = centre[label][0] @ class_of_unit
        places[label].copy_(intercepts.view_as(places[label]))
        slopes_of = dict(
            zip(data, torch.split(slopes, [start.layers[l].width for l in data], 1), strict=True)
        )
    for (l, _), coupling in zip(start.edges, start.couplings, strict=True):
        coupling.draw_(_STD, generator)
        W, scale = coupling.weight.detach().clone(), start.layers[l].scale
        W[:, :count] = 0.0
        if count and l != label:
            W[:, :count] = slopes_of[l].t() if scale is None else slopes_of[l].t() / scale.unsqueeze(1)
        places[hidden].sub_((W.t() @ centre[l][0]).view_as(places[hidden]))
        places[l].sub_((W @ on).view_as(places[l]))
        if count and l == label:
            W[:, :count] = _REACH * (2 * class_of_unit - 1)
        coupling.fill_(W)
    return start


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
