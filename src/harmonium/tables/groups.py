"""The start of training on real columns: roots of their covariance, and hidden units that stand for groups.

Where the covariance of all rows is 1, hidden units are slow to find groups of rows, and none narrows the
columns within them. So a mixture finds two groups first, where there are any, and training begins with them.
The other units halve the rows along directions in which they vary most: of small couplings they may stay
near 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _random
from harmonium._random import as_generator
from harmonium.likelihood import separate
from harmonium.machine import BoltzmannMachine
from harmonium.tables.joint_normal import fit_normal, normal
from harmonium.training import take_rows, unit_means

_ROWS = slice(5000)  # of rows: every round of expectation-maximisation passes over them
_RIDGES = (1e-3, 1e-2, 0.1, 0.3)  # added to variances, which are about 1, to choose from
_FOLDS, _ROWS_OF_GROUP = 5, 10
_STARTS = 4  # of a mixture: k-means may miss the best groups
_APART = 1.5  # deviations between halves along a direction, which differ from a normal one by 0.0014 nats
_STD = 0.1  # of the other couplings


class Units(NamedTuple):
    """Hidden units of 0 and 1 for groups and halves, beside columns x = root u of variance 1 given the units.

    Attributes:
        root: (columns, columns).
        base: Means of u where no unit is on, (columns,).
        moves: Shifts of these means by each unit, (units, columns).
        biases: (units,).
    """

    root: np.ndarray
    base: np.ndarray
    moves: np.ndarray
    biases: np.ndarray


def choose_groups(x: Tensor, weights: Tensor | None, most: int, seed: int) -> Any:
    """Finds the ridge, and the number of groups, by which rows left out have the largest ln p.

    A fifth of the rows is left out in turn. A larger ridge, and two groups, are taken where the mean gain is
    above its standard error.

    Args:
        x: rows, (rows, columns), NaN where missing.
        weights: Row weights, (rows,); None means uniform.
        most: Hidden units at most.
        seed: Seed of what is filled in.

    Returns:
        Fitted ``GaussianMixture`` of scikit-learn, with one or two components of one covariance. Its
        ``directions_`` are those of the units that stand for no group (``find_directions``).
    """
    from sklearn.model_selection import GroupKFold  # slow to import, and only needed here

    rows, numbers = _fill(*take_rows(x, weights, _ROWS), _RIDGES[1], seed)
    few = len(set(numbers)) < _ROWS_OF_GROUP
    chosen = _mixture(1, _RIDGES[2 if few else 0]).fit(rows)
    folds = [] if few else [*GroupKFold(_FOLDS).split(rows, groups=numbers)]

    def score(mixture: Any) -> Any:
        again = _mixture(mixture.n_components, mixture.reg_covar, mixture)
        return np.array([again.fit(rows[learned]).score(rows[left]) for learned, left in folds])

    best, two = score(chosen), most > 0 and len(rows) >= 2 * _ROWS_OF_GROUP
    for tried in ([(1, ridge) for ridge in _RIDGES[1:]], [(2, 0.0)] if two else []):
        for count, ridge in tried if folds else ():
            mixture = _mixture(count, ridge or chosen.reg_covar).fit(rows)
            gains = score(mixture) - best
            if gains.mean() <= gains.std(ddof=1) / _FOLDS**0.5:
                break
            chosen, best = mixture, best + gains
    chosen.directions_ = find_directions(place_groups(chosen), most)
    return chosen


@torch.no_grad()
def group_start(
    machine: BoltzmannMachine, v: Tensor, weights: Tensor | None, known: Mapping[int, Any], seed: int
) -> tuple[BoltzmannMachine, dict[int, Tensor]]:
    """Returns a machine whose first hidden units stand for groups and halves of rows, and roots of columns.

    Args:
        machine: Machine that is not changed.
        v: visible states, (rows, visible_width), NaN where missing.
        weights: Row weights, (rows,); None means uniform.
        known: Groups of some of the rows (``choose_groups``), for each layer of columns to join.
        seed: Seed of the other couplings.
    """
    start, roots, units_of = separate(machine, v, weights), dict[int, Tensor](), dict[int, Units]()
    for l, mixture in known.items():
        x, row_weights = take_rows(start.split(v)[l], weights, _ROWS)
        again = _mixture(mixture.n_components, mixture.reg_covar, mixture)
        if mixture.n_components == 1:  # without what would be filled in
            mean, total = fit_normal(x, row_weights, ridge=mixture.reg_covar, rounds=30, tolerance=1e-3)
            again.weights_, again.means_ = mixture.weights_, mean.unsqueeze(0).cpu().numpy()
            again.covariances_ = total.cpu().numpy()
        else:
            again.fit(_fill(x, row_weights, mixture.reg_covar, seed)[0])
        units_of[l] = units = halve(place_groups(again), mixture.directions_)
        roots[l], base = torch.from_numpy(units.root).to(v), torch.from_numpy(units.base).to(v)
        start.layers[l].fit_((base, torch.ones_like(base)), torch.ones_like(base))
    means, generator = unit_means(start, v), as_generator(seed, start.device)
    places = [getattr(layer, layer.location).view(-1) for layer in start.layers]
    used = sum(len(units.biases) for units in units_of.values())
    for (below, above), coupling in zip(start.edges, start.couplings, strict=True):
        coupling.draw_(_STD, generator)
        W, first = coupling.weight.detach().clone(), 0
        W[:, :used] = 0.0
        places[below].sub_(W @ means[above])
        places[above].sub_(W.t() @ means[below])
        for l, units in units_of.items():
            some = slice(first, first := first + len(units.biases))
            if l == below:
                W[:, some] = torch.from_numpy(units.moves.T).to(W)
                places[above][some] += torch.from_numpy(units.biases).to(W)
        coupling.fill_(W)
    return start, roots


def place_groups(mixture: Any) -> Units:
    """Returns the hidden units for the groups of a mixture: none for one, and for two exactly one unit.

    Args:
        mixture: fitted, of one or two groups with one covariance.
    """
    root = np.linalg.cholesky(mixture.covariances_)
    means = np.linalg.solve(root, mixture.means_.T).T
    logs = np.log(mixture.weights_) - (means**2).sum(1) / 2
    return Units(root, means[0], np.diff(means, axis=0), np.diff(logs))


def find_directions(units: Units, most: int) -> np.ndarray:
    """Returns directions of u in which columns vary most within groups, (directions, columns), orthonormal.

    None lies along the moves of units for groups, beside which there are as many as make ``most`` units.
    """
    across = np.eye(len(units.root)) - np.linalg.pinv(units.moves) @ units.moves
    free = min(most, len(units.root)) - len(units.moves)
    return np.linalg.svd(units.root @ across)[2][: max(0, free)]


def halve(units: Units, directions: np.ndarray) -> Units:
    """Returns the units for groups with one for each direction, which is on in half of the rows.

    Two halves are nearly the normal distribution along their direction.

    Args:
        units: Units for groups.
        directions: Rows to make orthonormal, and at right angles to the moves of units, by small turns.
    """
    across = np.eye(len(units.root)) - np.linalg.pinv(units.moves) @ units.moves
    left, _, right = np.linalg.svd(directions @ across, full_matrices=False)
    directions, widening = left @ right, (1 + _APART**2 / 4) ** 0.5
    along = directions.T @ directions
    halves = _APART * directions
    base = units.base + (widening - 1) * along @ units.base - halves.sum(0) / 2
    return units._replace(
        root=units.root @ (np.eye(len(base)) + (1 / widening - 1) * along),
        base=base,
        moves=np.vstack([units.moves, halves]),
        biases=np.append(units.biases, -halves @ base - _APART**2 / 2),
    )


def _mixture(count: int, ridge: float, start: Any = None) -> Any:
    """Returns a mixture of Gaussians with one covariance, which is to begin where one was found."""
    from sklearn.mixture import GaussianMixture

    settings: dict[str, Any] = {"n_init": _STARTS}
    if start is not None or count == 1:  # k-means would find nothing more
        settings = {"init_params": "random_from_data"}
    if start is not None:
        settings |= {"weights_init": start.weights_, "means_init": start.means_}
        settings |= {"precisions_init": start.precisions_}
    return GaussianMixture(count, covariance_type="tied", reg_covar=ridge, random_state=0, **settings)


def _fill(x: Tensor, weights: Tensor | None, ridge: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows drawn by their weights, with draws from a normal distribution for what they lack.

    Returns:
        Rows in float64, and their numbers, which repeat themselves.
    """
    generator, full = as_generator(seed, x.device), x.double().clone()
    if bool(x.isnan().any()):
        table, _ = normal(*fit_normal(x, weights, ridge=ridge, rounds=30, tolerance=1e-3))
        for block_rows, posterior in table.blocks(x.double()):
            full[block_rows] = posterior.draw(generator)[0]
    numbers = torch.arange(len(x), device=x.device)
    if weights is not None and bool((weights != weights[0]).any()):  # equal ones would repeat rows by chance
        numbers = _random.weighted(weights.to(full), len(full), generator)
    return full[numbers].cpu().numpy(), numbers.cpu().numpy()
